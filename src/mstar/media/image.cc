#include "mstar/media/image.h"

#include <algorithm>
#include <array>
#include <utility>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/image_codecs.h"

namespace mstar {

namespace codec {

namespace {

uint32_t byte_at(std::string_view bytes, size_t offset) {
  return static_cast<unsigned char>(bytes[offset]);
}

}  // namespace

uint32_t little16(std::string_view bytes, size_t offset) {
  return byte_at(bytes, offset) | byte_at(bytes, offset + 1) << 8;
}

uint32_t little32(std::string_view bytes, size_t offset) {
  return little16(bytes, offset) | little16(bytes, offset + 2) << 16;
}

uint32_t big16(std::string_view bytes, size_t offset) {
  return byte_at(bytes, offset) << 8 | byte_at(bytes, offset + 1);
}

uint32_t big32(std::string_view bytes, size_t offset) {
  return big16(bytes, offset) << 16 | big16(bytes, offset + 2);
}

void broken(std::string_view where, ImageFormat format, const std::string& why) {
  throw Error(ErrorCode::kUnsupportedMedia,
              str_cat("[", where, "] is no readable ", to_string(format), ": ", why));
}

void check_size(Size size, std::string_view where, const ImageLimits& limits) {
  const auto [width, height] = size;
  if (width < 1 || height < 1 || width > limits.max_side || height > limits.max_side ||
      width * height > limits.max_pixels) {
    throw Error(ErrorCode::kTooLarge,
                str_cat("[",
                        where,
                        "] is ",
                        width,
                        "x",
                        height,
                        " pixels, at most ",
                        limits.max_pixels,
                        " with sides of ",
                        limits.max_side,
                        " are read"));
  }
}

Tensor over_white(const uint8_t* rgba, int64_t height, int64_t width) {
  constexpr int kOpaque = 255;
  Tensor pixels = Tensor::empty({height, width, 3}, DType::kU8);
  uint8_t* to = pixels.data<uint8_t>();
  for (int64_t pixel = 0; pixel < width * height; ++pixel, rgba += 4) {
    const int alpha = rgba[3];
    for (int colour = 0; colour < 3; ++colour) {
      const int shown = rgba[colour] * alpha + kOpaque * (kOpaque - alpha);
      *to++ = static_cast<uint8_t>((shown + kOpaque / 2) / kOpaque);
    }
  }
  return pixels;
}

}  // namespace codec

namespace {

struct Codec {
  ImageFormat format;
  codec::Size (*size)(std::string_view bytes, std::string_view where);
  Tensor (*decode)(std::string_view bytes, std::string_view where, const ImageLimits& limits);
};

constexpr std::array<Codec, 5> kCodecs = {{
    {ImageFormat::kPng, codec::png_size, codec::decode_png},
    {ImageFormat::kJpeg, codec::jpeg_size, codec::decode_jpeg},
    {ImageFormat::kWebp, codec::webp_size, codec::decode_webp},
    {ImageFormat::kBmp, codec::bmp_size, codec::decode_bmp},
    {ImageFormat::kGif, codec::gif_size, codec::decode_gif},
}};

const Codec& codec_of(std::string_view bytes, std::string_view where) {
  const std::optional<ImageFormat> format = image_format(bytes);
  if (!format) {
    throw Error(ErrorCode::kUnsupportedMedia,
                str_cat("[",
                        where,
                        "] found ",
                        bytes.size(),
                        " bytes that are no picture, expected PNG, JPEG, WebP, BMP or GIF"));
  }
  return *std::ranges::find(kCodecs, *format, &Codec::format);
}

// Orientations from 5 on swap the sides.
bool swaps_sides(int orientation) {
  return orientation >= 5;
}

}  // namespace

const char* to_string(ImageFormat format) {
  switch (format) {
    case ImageFormat::kPng: return "PNG";
    case ImageFormat::kJpeg: return "JPEG";
    case ImageFormat::kWebp: return "WebP";
    case ImageFormat::kBmp: return "BMP";
    case ImageFormat::kGif: return "GIF";
  }
  return "picture";
}

std::optional<ImageFormat> image_format(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) {
    return ImageFormat::kPng;
  }
  if (bytes.starts_with("\xFF\xD8\xFF")) {
    return ImageFormat::kJpeg;
  }
  if (bytes.size() >= 16 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP") {
    return ImageFormat::kWebp;
  }
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) {
    return ImageFormat::kGif;
  }
  if (bytes.size() >= 26 && bytes.starts_with("BM")) {
    return ImageFormat::kBmp;
  }
  return std::nullopt;
}

ImageInfo read_image_info(std::string_view bytes, std::string_view where) {
  const Codec& codec = codec_of(bytes, where);
  const codec::Size size = codec.size(bytes, where);
  ImageInfo info{.format = codec.format, .width = size.width, .height = size.height};
  info.orientation = codec::exif_orientation(bytes, codec.format);
  if (swaps_sides(info.orientation)) {
    std::swap(info.width, info.height);
  }
  return info;
}

Tensor decode_image(std::string_view bytes, std::string_view where, const ImageLimits& limits) {
  const Codec& codec = codec_of(bytes, where);
  return orient(codec.decode(bytes, where, limits), codec::exif_orientation(bytes, codec.format));
}

Tensor orient(const Tensor& pixels, int orientation) {
  if (orientation <= 1 || orientation > 8) {
    return pixels;
  }
  const int64_t height = pixels.dim(0);
  const int64_t width = pixels.dim(1);
  // The picture shown at (y, x) is stored at `origin + y * down + x * right`: EXIF names the edges
  // that row 0 and column 0 of the stored picture are at.
  int64_t origin = 0;
  int64_t down = width;
  int64_t right = 1;
  const int64_t last_row = (height - 1) * width;
  switch (orientation) {
    case 2: origin = width - 1, right = -1; break;                            // right, mirrored
    case 3: origin = last_row + width - 1, down = -width, right = -1; break;  // half a turn
    case 4: origin = last_row, down = -width; break;                          // mirrored upright
    case 5: down = 1, right = width; break;                                   // transposed
    case 6: origin = last_row, down = 1, right = -width; break;  // turn right to see it
    case 7: origin = last_row + width - 1, down = -1, right = -width; break;
    default: origin = width - 1, down = -1, right = width; break;  // 8: turn left to see it
  }
  const bool swaps = swaps_sides(orientation);
  const int64_t rows = swaps ? width : height;
  const int64_t columns = swaps ? height : width;
  Tensor out = Tensor::empty({rows, columns, 3}, DType::kU8);
  const uint8_t* from = pixels.data<uint8_t>();
  uint8_t* to = out.data<uint8_t>();
  for (int64_t y = 0; y < rows; ++y) {
    for (int64_t x = 0; x < columns; ++x, to += 3) {
      std::copy_n(from + 3 * (origin + y * down + x * right), 3, to);
    }
  }
  return out;
}

}  // namespace mstar

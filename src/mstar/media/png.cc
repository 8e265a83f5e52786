#include "mstar/media/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr size_t kSignatureBytes = 8;
constexpr int kCompressionLevel = 1;
constexpr int kOpaque = 255;

// libpng's simplified interface, which frees itself and never jumps into our frames.
struct Reader {
  png_image image{};

  Reader() { image.version = PNG_IMAGE_VERSION; }

  ~Reader() { png_image_free(&image); }

  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
};

[[noreturn]] void broken(std::string_view name, const char* why) {
  throw Error(ErrorCode::kUnsupportedMedia, str_cat("[", name, "] is no readable PNG: ", why));
}

}  // namespace

bool is_png(std::string_view bytes) {
  return bytes.size() >= kSignatureBytes &&
         png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kSignatureBytes) == 0;
}

Tensor decode_png(std::string_view bytes, std::string_view name, const ImageLimits& limits) {
  if (!is_png(bytes)) {
    broken(name, "the signature is missing");
  }
  Reader reader;
  png_image& image = reader.image;
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) {
    broken(name, image.message);
  }
  const auto width = static_cast<int64_t>(image.width);
  const auto height = static_cast<int64_t>(image.height);
  if (width < 1 || height < 1 || width > limits.max_side || height > limits.max_side ||
      width * height > limits.max_pixels) {
    throw Error(ErrorCode::kTooLarge,
                str_cat("[",
                        name,
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
  const bool has_alpha = (image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  image.format = has_alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  std::vector<uint8_t> raw(PNG_IMAGE_SIZE(image));
  if (png_image_finish_read(&image, nullptr, raw.data(), 0, nullptr) == 0) {
    broken(name, image.message);
  }
  Tensor pixels = Tensor::empty({height, width, 3}, DType::kU8);
  uint8_t* to = pixels.data<uint8_t>();
  if (!has_alpha) {
    std::copy(raw.begin(), raw.end(), to);
    return pixels;
  }
  for (int64_t pixel = 0; pixel < width * height; ++pixel) {
    const uint8_t* from = raw.data() + pixel * 4;
    const int alpha = from[3];
    for (int colour = 0; colour < 3; ++colour) {
      const int shown = from[colour] * alpha + kOpaque * (kOpaque - alpha);
      *to++ = static_cast<uint8_t>((shown + kOpaque / 2) / kOpaque);
    }
  }
  return pixels;
}

namespace {

void append(png_structp png, png_bytep data, png_size_t size) {
  auto* out = static_cast<std::string*>(png_get_io_ptr(png));
  out->append(reinterpret_cast<const char*>(data), size);
}

void ignore_flush(png_structp) {}

// libpng reports errors by longjmp: nothing with a destructor may live in this function.
bool write_png(const uint8_t* pixels, int64_t height, int64_t width, std::string& out) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  if (png == nullptr) {
    return false;
  }
  png_infop info = png_create_info_struct(png);
  if (info == nullptr || setjmp(png_jmpbuf(png)) != 0) {
    png_destroy_write_struct(&png, &info);
    return false;
  }
  png_set_write_fn(png, &out, append, ignore_flush);
  png_set_compression_level(png, kCompressionLevel);
  png_set_IHDR(png,
               info,
               static_cast<png_uint_32>(width),
               static_cast<png_uint_32>(height),
               8,
               PNG_COLOR_TYPE_RGB,
               PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int64_t row = 0; row < height; ++row) {
    png_write_row(png, pixels + row * width * 3);
  }
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return true;
}

}  // namespace

std::string encode_png(const Tensor& pixels) {
  MSTAR_CHECK(pixels.num_dims() == 3 && pixels.dim(2) == 3 && pixels.dtype() == DType::kU8 &&
                  pixels.is_contiguous(),
              pixels.to_string());
  std::string out;
  if (!write_png(pixels.data<uint8_t>(), pixels.dim(0), pixels.dim(1), out)) {
    throw Error(ErrorCode::kInternal, "[png] the picture could not be written");
  }
  return out;
}

}  // namespace mstar

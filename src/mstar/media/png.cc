#include "mstar/media/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <vector>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/media/image_codecs.h"

namespace mstar {

namespace {

constexpr size_t kSignatureBytes = 8;
constexpr int kCompressionLevel = 1;

// libpng's simplified interface, which frees itself and never jumps into our frames.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view where) : where_(where) {
    if (!is_png(bytes)) {
      codec::broken(where, ImageFormat::kPng, "the signature is missing");
    }
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image_, bytes.data(), bytes.size()) == 0) {
      codec::broken(where, ImageFormat::kPng, image_.message);
    }
    // Sixteen bits without a word on colour are as sRGB as eight are.
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  }

  ~Reader() { png_image_free(&image_); }

  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  codec::Size size() const { return {.width = image_.width, .height = image_.height}; }

  bool has_alpha() const { return (image_.format & PNG_FORMAT_FLAG_ALPHA) != 0; }

  // All pixels in `format`.
  std::vector<uint8_t> read(png_uint_32 format) {
    image_.format = format;
    std::vector<uint8_t> raw(PNG_IMAGE_SIZE(image_));
    if (png_image_finish_read(&image_, nullptr, raw.data(), 0, nullptr) == 0) {
      codec::broken(where_, ImageFormat::kPng, image_.message);
    }
    return raw;
  }

 private:
  const std::string_view where_;
  png_image image_{};
};

}  // namespace

bool is_png(std::string_view bytes) {
  return bytes.size() >= kSignatureBytes &&
         png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kSignatureBytes) == 0;
}

Tensor decode_png(std::string_view bytes, std::string_view name, const ImageLimits& limits) {
  return codec::decode_png(bytes, name, limits);
}

codec::Size codec::png_size(std::string_view bytes, std::string_view where) {
  return Reader(bytes, where).size();
}

Tensor codec::decode_png(std::string_view bytes,
                         std::string_view where,
                         const ImageLimits& limits) {
  Reader reader(bytes, where);
  const Size size = reader.size();
  check_size(size, where, limits);
  if (reader.has_alpha()) {
    return over_white(reader.read(PNG_FORMAT_RGBA).data(), size.height, size.width);
  }
  const std::vector<uint8_t> raw = reader.read(PNG_FORMAT_RGB);
  Tensor pixels = Tensor::empty({size.height, size.width, 3}, DType::kU8);
  std::copy(raw.begin(), raw.end(), pixels.data<uint8_t>());
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

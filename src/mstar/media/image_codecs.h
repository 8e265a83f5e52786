// The decoders behind image.h, one source each. Only for this folder.
#pragma once

#include <string>
#include <string_view>

#include "mstar/media/image.h"

namespace mstar::codec {

// Stored sizes, from the header alone.
struct Size {
  int64_t width = 0;
  int64_t height = 0;
};

// Each pair: bytes of its format; without EXIF's turn. Throw as decode_image() does.
Size png_size(std::string_view bytes, std::string_view where);
Tensor decode_png(std::string_view bytes, std::string_view where, const ImageLimits& limits);
Size jpeg_size(std::string_view bytes, std::string_view where);
Tensor decode_jpeg(std::string_view bytes, std::string_view where, const ImageLimits& limits);
Size webp_size(std::string_view bytes, std::string_view where);
Tensor decode_webp(std::string_view bytes, std::string_view where, const ImageLimits& limits);
Size bmp_size(std::string_view bytes, std::string_view where);
Tensor decode_bmp(std::string_view bytes, std::string_view where, const ImageLimits& limits);
Size gif_size(std::string_view bytes, std::string_view where);
Tensor decode_gif(std::string_view bytes, std::string_view where, const ImageLimits& limits);

// EXIF's orientation in a PNG, JPEG or WebP; 1 where there is none or it makes no sense.
int exif_orientation(std::string_view bytes, ImageFormat format);

[[noreturn]] void broken(std::string_view where, ImageFormat format, const std::string& why);

void check_size(Size size, std::string_view where, const ImageLimits& limits);

// RGBA [height, width, 4] over white -> [height, width, 3].
Tensor over_white(const uint8_t* rgba, int64_t height, int64_t width);

// Integers at an offset; the caller has checked that they are inside.
uint32_t little16(std::string_view bytes, size_t offset);
uint32_t little32(std::string_view bytes, size_t offset);
uint32_t big16(std::string_view bytes, size_t offset);
uint32_t big32(std::string_view bytes, size_t offset);

}  // namespace mstar::codec

// Pictures: bytes to pixels and back. Pure functions: any thread, several at once. Bytes are
// hostile until read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mstar/tensor/tensor.h"

namespace mstar {

enum class ImageFormat : uint8_t { kPng, kJpeg, kWebp, kBmp, kGif };

const char* to_string(ImageFormat format);

// What a picture may be at most; checked on the header, before pixels are read.
struct ImageLimits {
  int64_t max_side = 16384;                // pixels
  int64_t max_pixels = int64_t{64} << 20;  // of the whole picture
};

// By the first bytes; nothing when they are none of these.
std::optional<ImageFormat> image_format(std::string_view bytes);

// What a file says about itself, before pixels are read.
struct ImageInfo {
  ImageFormat format = ImageFormat::kPng;
  int64_t width = 0;  // pixels as they are shown: turned as the EXIF orientation says
  int64_t height = 0;
  int orientation = 1;  // EXIF: 1 to 8
};

// Throws Error(kUnsupportedMedia) for bytes that are no such picture; `where` starts messages.
ImageInfo read_image_info(std::string_view bytes, std::string_view where = "image");

// The picture as it is meant to be seen, [height, width, 3] u8 sRGB: turned as EXIF says, palettes,
// grey and CMYK as RGB, 16 bits as 8, transparent parts over white, of an animation the first
// frame. Colour profiles are not applied. Throws Error(kUnsupportedMedia) for other, broken or
// truncated bytes and Error(kTooLarge) over the limits.
Tensor decode_image(std::string_view bytes,
                    std::string_view where = "image",
                    const ImageLimits& limits = {});

// pixels [height, width, 3] u8, contiguous. Without further compression than PNG's own filters at
// level 1: pictures come out in milliseconds.
std::string encode_png(const Tensor& pixels);

// The same as a baseline JPEG, 4:2:0. `quality` 1 to 100.
std::string encode_jpeg(const Tensor& pixels, int quality = 90);

// Pixels [height, width, 3] u8 as EXIF's orientation (1 to 8) shows them.
Tensor orient(const Tensor& pixels, int orientation);

}  // namespace mstar

// PNG pictures: bytes to pixels and back. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mstar/tensor/tensor.h"

namespace mstar {

// What a picture may be at most; checked on the header, before pixels are read.
struct ImageLimits {
  int64_t max_side = 16384;                // pixels
  int64_t max_pixels = int64_t{64} << 20;  // of the whole picture
};

bool is_png(std::string_view bytes);

// [height, width, 3] u8: palettes and grey become RGB, 16 bits become 8, transparent parts are
// shown on white. Throws Error(kUnsupportedMedia) for other or broken bytes and Error(kTooLarge)
// beyond the limits; `name` starts the message.
Tensor decode_png(std::string_view bytes, std::string_view name, const ImageLimits& limits = {});

// pixels [height, width, 3] u8, contiguous. Without further compression than PNG's own filters at
// level 1: pictures come out in milliseconds.
std::string encode_png(const Tensor& pixels);

}  // namespace mstar

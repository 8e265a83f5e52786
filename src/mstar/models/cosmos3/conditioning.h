// Pictures of any size to the pixels an encoder conditions on. Pure functions.
#pragma once

#include <cstdint>

#include "mstar/tensor/stream.h"

namespace mstar::cosmos3 {

enum class ConditioningResize : uint8_t {
  kStretch,     // both sides to the target, without antialiasing and rounding
  kAspectCrop,  // cover the target, cut the middle out, round to grey levels
};

// frames [n, h, w, 3] u8 -> [n, height, width, 3] f32 in [-1, 1].
Tensor condition_pixels(Stream& stream,
                        const Tensor& frames,
                        int64_t height,
                        int64_t width,
                        ConditioningResize mode);

}  // namespace mstar::cosmos3

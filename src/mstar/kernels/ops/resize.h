#pragma once

#include "mstar/tensor/stream.h"

namespace mstar {

enum class ResizeFilter : uint8_t { kNearest, kBilinear, kBicubic };

namespace ops {

// torch.nn.functional.interpolate with align_corners=False (nearest: "nearest-exact").
//   x [n, h, w, c], out [n, h', w', c]; f32 or bf16, or u8 in and out (torchvision's native u8
//   kernel: fixed-point weights, rounding per pass, width first)
// antialias widens the filter when shrinking (PIL's rule). Bicubic uses a = -0.5 with antialias
// (PIL, torch) and -0.75 without (torch).
void resize(Stream& stream, const Tensor& x, ResizeFilter filter, bool antialias, Tensor& out);

// nearest ×2 in h and w: x [n, h, w, c] -> out [n, 2h, 2w, c].
void upsample_nearest_2x(Stream& stream, const Tensor& x, Tensor& out);

}  // namespace ops
}  // namespace mstar

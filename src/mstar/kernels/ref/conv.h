#pragma once

#include "mstar/kernels/ops/conv.h"

// Slow, obvious twins of ops/conv: every output element is one double sum over the taps that fall
// inside the input. Tests hold the fast kernels to them. They allocate; not for use inside a step.
namespace mstar::ref {

//   x [t, h, w, in], history undefined or [n, h, w, in], weight [out, in, kt, kh, kw] as torch
//   stores it, bias [out] or undefined, out [t', h', w', out]
void conv3d(const Tensor& x,
            const Tensor& history,
            const Tensor& weight,
            const Tensor& bias,
            const ConvOptions& options,
            Tensor& out);

//   x [n, h, w, in], weight [out, in, kh, kw], out [n, h', w', out]
void conv2d(const Tensor& x,
            const Tensor& weight,
            const Tensor& bias,
            const ConvOptions& options,
            Tensor& out);

//   x [n, l, in], weight [out, in, k], out [n, l', out]
void conv1d(const Tensor& x,
            const Tensor& weight,
            const Tensor& bias,
            const ConvOptions& options,
            Tensor& out);

//   x [n, l, in], weight [in, out, k], out [n, l', out]: every input sample adds its k taps.
void conv_transpose1d(const Tensor& x,
                      const Tensor& weight,
                      const Tensor& bias,
                      int32_t stride,
                      int32_t pad,
                      Tensor& out);

}  // namespace mstar::ref

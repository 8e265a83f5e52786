#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "mstar/base/thread_pool.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/tensor/stream.h"

namespace mstar {

// A convolution's filter packed once. All convolutions here are channels last:
// conv3d [t, h, w, c], conv2d [h, w, c], conv1d [l, c]; one sample (batches loop outside).
class PackedConv {
 public:
  PackedConv() = default;

  // weight as torch stores it: [out, in, kt, kh, kw], [out, in, kh, kw] or [out, in, k];
  // f32, bf16 or f16; stored as bf16 when it comes so, else f32. bias [out] or undefined.
  static PackedConv pack(const Tensor& weight, const Tensor& bias, ThreadPool& pool);

  // weight of ConvTranspose1d: [in, out, k].
  static PackedConv pack_transposed(const Tensor& weight, const Tensor& bias, ThreadPool& pool);

  bool defined() const { return data_ != nullptr; }

  struct Data;  // kernels/cpu/packed_conv.h

  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

// Sizes per axis are (t, h, w); lower-dimensional convolutions use the trailing ones.
struct ConvOptions {
  std::array<int32_t, 3> stride{1, 1, 1};
  std::array<int32_t, 3> dilation{1, 1, 1};
  std::array<int32_t, 3> pad_before{0, 0, 0};  // zeros
  std::array<int32_t, 3> pad_after{0, 0, 0};
  Activation activation = Activation::kNone;
  Tensor residual;  // same shape as out, added after the activation; may be undefined
};

namespace ops {

// out spatial size = (in + before + after - dilation * (k - 1) - 1) / stride + 1.
//   x [t, h, w, in], history undefined or [n, h, w, in]: frames that stand before x in time
//   (a causal cache; they count like pad_before of t that is not zero), out [t', h', w', out]
void conv3d(Stream& stream,
            const Tensor& x,
            const Tensor& history,
            const PackedConv& conv,
            const ConvOptions& options,
            Tensor& out);

//   x [n, h, w, in] (n independent pictures), out [n, h', w', out]
void conv2d(Stream& stream,
            const Tensor& x,
            const PackedConv& conv,
            const ConvOptions& options,
            Tensor& out);

//   x [n, l, in], out [n, l', out]
void conv1d(Stream& stream,
            const Tensor& x,
            const PackedConv& conv,
            const ConvOptions& options,
            Tensor& out);

// l' = (l - 1) * stride - 2 * pad + (k - 1) + output_padding + 1; x [n, l, in], out [n, l', out].
void conv_transpose1d(Stream& stream,
                      const Tensor& x,
                      const PackedConv& conv,
                      int32_t stride,
                      int32_t pad,
                      int32_t output_padding,
                      Tensor& out);

}  // namespace ops
}  // namespace mstar

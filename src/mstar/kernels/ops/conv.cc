#include "mstar/kernels/ops/conv.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/kernels/cpu/packed_conv.h"
#include "mstar/kernels/ref/bridge.h"
#include "mstar/kernels/ref/conv.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

namespace {

using ref::PlainTensor;

struct BridgeParams {
  PlainTensor x, history, weight, bias, residual, out;
  std::array<int32_t, 3> stride, dilation, pad_before, pad_after;
  Activation activation;
};

void enqueue_conv(CpuStream& stream,
                  const Tensor& x,
                  const Tensor& history,
                  const PackedConv::Data& data,
                  const ConvOptions& options,
                  const Tensor& out) {
  const BridgeParams params{PlainTensor(x),
                            PlainTensor(history),
                            PlainTensor(data.weight),
                            PlainTensor(data.bias),
                            PlainTensor(options.residual),
                            PlainTensor(out),
                            options.stride,
                            options.dilation,
                            options.pad_before,
                            options.pad_after,
                            options.activation};
  stream.enqueue("conv", 1, params, [](const BridgeParams& p, int) {
    const ConvOptions o{
        p.stride, p.dilation, p.pad_before, p.pad_after, p.activation, p.residual.tensor()};
    Tensor to = p.out.tensor();
    Tensor weight = p.weight.tensor();
    if (weight.num_dims() == 5) {
      ref::conv3d(p.x.tensor(), p.history.tensor(), weight, p.bias.tensor(), o, to);
    } else if (weight.num_dims() == 4) {
      ref::conv2d(p.x.tensor(), weight, p.bias.tensor(), o, to);
    } else {
      ref::conv1d(p.x.tensor(), weight, p.bias.tensor(), o, to);
    }
  });
}

}  // namespace

PackedConv PackedConv::pack(const Tensor& weight, const Tensor& bias, ThreadPool&) {
  PackedConv conv;
  conv.data_ = std::make_shared<const Data>(
      Data{weight.to(DType::kF32), bias.defined() ? bias.to(DType::kF32) : Tensor{}, false});
  return conv;
}

PackedConv PackedConv::pack_transposed(const Tensor& weight, const Tensor& bias, ThreadPool&) {
  PackedConv conv;
  conv.data_ = std::make_shared<const Data>(
      Data{weight.to(DType::kF32), bias.defined() ? bias.to(DType::kF32) : Tensor{}, true});
  return conv;
}

namespace ops {

void conv3d(Stream& stream,
            const Tensor& x,
            const Tensor& history,
            const PackedConv& conv,
            const ConvOptions& options,
            Tensor& out) {
  enqueue_conv(as_cpu(stream), x, history, conv.data(), options, out);
}

void conv2d(Stream& stream,
            const Tensor& x,
            const PackedConv& conv,
            const ConvOptions& options,
            Tensor& out) {
  enqueue_conv(as_cpu(stream), x, {}, conv.data(), options, out);
}

void conv1d(Stream& stream,
            const Tensor& x,
            const PackedConv& conv,
            const ConvOptions& options,
            Tensor& out) {
  enqueue_conv(as_cpu(stream), x, {}, conv.data(), options, out);
}

void conv_transpose1d(Stream& stream,
                      const Tensor& x,
                      const PackedConv& conv,
                      int32_t stride,
                      int32_t pad,
                      int32_t output_padding,
                      Tensor& out) {
  const PackedConv::Data& data = conv.data();
  MSTAR_CHECK(data.transposed, "packed for a plain convolution");
  MSTAR_CHECK(
      out.dim(1) == (x.dim(1) - 1) * stride - 2 * pad + data.weight.dim(2) - 1 + output_padding + 1,
      out.to_string());

  struct Params {
    PlainTensor x, weight, bias, out;
    int32_t stride, pad;
  };

  const Params params{PlainTensor(x),
                      PlainTensor(data.weight),
                      PlainTensor(data.bias),
                      PlainTensor(out),
                      stride,
                      pad};
  as_cpu(stream).enqueue("conv_transpose1d", 1, params, [](const Params& p, int) {
    Tensor to = p.out.tensor();
    ref::conv_transpose1d(p.x.tensor(), p.weight.tensor(), p.bias.tensor(), p.stride, p.pad, to);
  });
}

}  // namespace ops
}  // namespace mstar

#include "mstar/kernels/ops/conv.h"

#include <memory>

#include "mstar/base/str_cat.h"

#include "bench/kernels/families.h"
#include "bench/onednn_peer.h"

namespace mstar::bench {

namespace {

struct Conv {
  PackedConv filter;
  Tensor history;
  Tensor x;
  Tensor out;
  ConvOptions options;
};

Case conv_case(const char* name, const ConvSizes& s, DType x_type, DType filter_type) {
  Case result;
  result.name = str_cat(name,
                        "/",
                        to_string(x_type),
                        "x",
                        to_string(filter_type),
                        "/t",
                        s.frames,
                        "/",
                        s.height,
                        "x",
                        s.width,
                        "/",
                        s.in_channels,
                        "-",
                        s.out_channels);
  result.flops = 2.0 * static_cast<double>(s.frames * s.height * s.width) *
                 static_cast<double>(s.in_channels * s.out_channels) *
                 static_cast<double>(s.kernel_t * s.kernel * s.kernel);
  const bool is_bf16 = x_type == DType::kBF16 && filter_type == DType::kBF16;
  result.peak = is_bf16 ? Peak::kBF16 : Peak::kF32;
  result.prepare = [=](CpuStream& stream) {
    auto state = std::make_shared<Conv>();
    state->filter = PackedConv::pack(
        random_tensor(
            {s.out_channels, s.in_channels, s.kernel_t, s.kernel, s.kernel}, filter_type, 1, 0.02F),
        random_tensor({s.out_channels}, DType::kF32, 2),
        stream.pool());
    const Shape frame{0, s.height, s.width, s.in_channels};
    Shape shape = frame;
    shape[0] = s.frames;
    state->x = random_tensor(shape, x_type, 3);
    if (s.kernel_t > 1) {
      shape[0] = s.kernel_t - 1;
      state->history = random_tensor(shape, x_type, 4);
    }
    state->out = Tensor::empty({s.frames, s.height, s.width, s.out_channels}, x_type);
    const auto pad = static_cast<int32_t>(s.kernel / 2);
    state->options.pad_before = state->options.pad_after = {0, pad, pad};
    Case::Runs runs;
    runs.ours = [state, &stream] {
      ops::conv3d(stream, state->x, state->history, state->filter, state->options, state->out);
    };
    if (x_type == filter_type) {
      runs.peer = onednn_conv3d(s, x_type, stream.num_threads());
    }
    return runs;
  };
  return result;
}

}  // namespace

// The causal video decoder's layers for a picture of 416 x 240 (the two last cut to a part of
// the picture), its narrow ends and a pointwise one.
void add_conv_cases(Cases& cases) {
  constexpr ConvSizes kCausal[] = {{1, 15, 26, 1024, 1024, 3, 3},
                                   {4, 15, 26, 1024, 1024, 3, 3},
                                   {4, 30, 52, 512, 512, 3, 3},
                                   {4, 40, 52, 256, 256, 3, 3},
                                   {4, 60, 52, 160, 160, 3, 3}};
  for (const ConvSizes& sizes : kCausal) {
    cases.push_back(conv_case("conv3d", sizes, DType::kF32, DType::kF32));
    cases.push_back(conv_case("conv3d", sizes, DType::kF32, DType::kBF16));
    cases.push_back(conv_case("conv3d", sizes, DType::kBF16, DType::kBF16));
  }
  constexpr ConvSizes kFirst{1, 120, 208, 12, 160, 3, 3};
  constexpr ConvSizes kLast{1, 120, 208, 256, 12, 3, 3};
  constexpr ConvSizes kPicture{1, 60, 104, 512, 512, 1, 3};
  constexpr ConvSizes kPoint{4, 60, 104, 512, 256, 1, 1};
  cases.push_back(conv_case("conv3d", kFirst, DType::kF32, DType::kF32));
  cases.push_back(conv_case("conv3d", kLast, DType::kF32, DType::kF32));
  cases.push_back(conv_case("conv2d", kPicture, DType::kF32, DType::kF32));
  cases.push_back(conv_case("pointwise", kPoint, DType::kF32, DType::kF32));
}

}  // namespace mstar::bench

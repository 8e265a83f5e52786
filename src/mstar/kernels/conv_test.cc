#include "mstar/kernels/ops/conv.h"

#include <gtest/gtest.h>

#include <array>

#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

// Worked by hand: three samples of two channels, taps (1, 2, 3) on channel 0 and 10 on channel 1.
TEST(Conv, HandWorkedConv1d) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const Tensor x = Tensor::from(std::array{1.0F, 0.5F, 2.0F, 0.0F, 4.0F, -1.0F}, {1, 3, 2});
  const Tensor weight = Tensor::from(std::array{1.0F, 2.0F, 3.0F, 0.0F, 10.0F, 0.0F}, {1, 2, 3});
  const PackedConv conv = PackedConv::pack(weight, Tensor::from(std::array{100.0F}, {1}), pool);
  ConvOptions options;
  options.pad_before[2] = 1;
  options.pad_after[2] = 1;
  Tensor out = Tensor::empty({1, 3, 1}, DType::kF32);
  ops::conv1d(stream, x, conv, options, out);
  EXPECT_EQ(out.to_floats(), (std::vector<float>{113, 117, 100}));
}

// Stride 2, three taps: sample i adds (1, 2, 3) * x[i] at 2 i - 1.
TEST(Conv, HandWorkedConvTranspose1d) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const Tensor x = Tensor::from(std::array{1.0F, 10.0F}, {1, 2, 1});
  const Tensor weight = Tensor::from(std::array{1.0F, 2.0F, 3.0F}, {1, 1, 3});
  const PackedConv conv = PackedConv::pack_transposed(weight, {}, pool);
  Tensor out = Tensor::empty({1, 4, 1}, DType::kF32);
  ops::conv_transpose1d(stream, x, conv, 2, 1, 1, out);
  EXPECT_EQ(out.to_floats(), (std::vector<float>{2, 13, 20, 30}));
}

}  // namespace
}  // namespace mstar

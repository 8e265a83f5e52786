#include "mstar/kernels/ops/conv.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "mstar/kernels/isa_test_util.h"
#include "mstar/kernels/ref/conv.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

Tensor random_tensor(const Shape& shape, DType dtype, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Tensor values = Tensor::empty(shape, DType::kF32);
  for (int64_t index = 0; index < values.num_elements(); ++index) {
    values.data<float>()[index] = normal(random);
  }
  return values.to(dtype);
}

// Sums of `depth` random products stay within this of the double sum; a bf16 result may also
// round the other way.
Tolerance tolerance_of(int64_t depth, DType out) {
  return {1e-6 * std::sqrt(static_cast<double>(depth)) * 3.0, out == DType::kBF16 ? 8e-3 : 1e-5};
}

struct Case {
  const char* name;
  int in, out;
  std::array<int32_t, 3> size;  // of x: t, h, w
  std::array<int32_t, 3> kernel;
  int history = 0;
  ConvOptions options = {};
  bool residual = false;
  bool bias = true;
};

ConvOptions same_padding(std::array<int32_t, 3> before, std::array<int32_t, 3> after) {
  ConvOptions options;
  options.pad_before = before;
  options.pad_after = after;
  return options;
}

ConvOptions with_stride(ConvOptions options, std::array<int32_t, 3> stride) {
  options.stride = stride;
  return options;
}

ConvOptions with_dilation(ConvOptions options, std::array<int32_t, 3> dilation) {
  options.dilation = dilation;
  return options;
}

ConvOptions with_activation(ConvOptions options, Activation activation) {
  options.activation = activation;
  return options;
}

std::vector<Case> cases() {
  const ConvOptions causal = same_padding({2, 1, 1}, {0, 1, 1});
  const ConvOptions cached = same_padding({0, 1, 1}, {0, 1, 1});
  return {
      {"first chunk", 20, 24, {1, 5, 7}, {3, 3, 3}, 0, causal},
      {"cached chunk", 20, 24, {3, 5, 7}, {3, 3, 3}, 2, cached},
      {"half a history", 8, 16, {2, 3, 4}, {3, 3, 3}, 1, same_padding({1, 1, 1}, {0, 1, 1})},
      {"odd channels", 7, 13, {2, 4, 5}, {3, 3, 3}, 0, causal},
      {"three output channels", 40, 3, {1, 9, 6}, {3, 3, 3}, 2, cached},
      {"one input channel", 1, 33, {1, 6, 5}, {1, 3, 3}, 0, same_padding({0, 1, 1}, {0, 1, 1})},
      {"more channels than a segment", 1100, 18, {1, 3, 3}, {1, 3, 3}, 0, cached},
      {"wide enough for several panels", 16, 130, {1, 4, 33}, {3, 1, 1}, 2, {}},
      {"point", 64, 48, {2, 3, 50}, {1, 1, 1}, 0, {}, true},
      {"downsample",
       12,
       20,
       {3, 9, 8},
       {1, 3, 3},
       0,
       with_stride(same_padding({0, 0, 0}, {0, 1, 1}), {1, 2, 2})},
      {"time stride", 12, 20, {4, 3, 3}, {3, 1, 1}, 1, with_stride({}, {2, 1, 1})},
      {"dilated",
       10,
       9,
       {2, 9, 11},
       {2, 3, 3},
       0,
       with_dilation(same_padding({3, 2, 6}, {0, 2, 6}), {3, 2, 6})},
      {"activation and residual",
       24,
       40,
       {2, 4, 5},
       {3, 3, 3},
       0,
       with_activation(causal, Activation::kSilu),
       true},
      {"no bias", 9, 16, {1, 4, 4}, {3, 3, 3}, 0, causal, false, false},
      {"one position", 30, 50, {1, 1, 1}, {3, 3, 3}, 0, causal},
      // Multiples of 32 input channels, which go through tile registers where there are some.
      {"whole steps", 64, 70, {3, 7, 9}, {3, 3, 3}, 2, cached, true},
      {"whole steps, many positions", 32, 150, {2, 17, 19}, {3, 3, 3}, 0, causal},
      {"whole steps, downsample",
       96,
       33,
       {3, 9, 8},
       {3, 3, 3},
       1,
       with_stride(same_padding({1, 0, 0}, {0, 1, 1}), {2, 2, 2})},
      {"whole steps, dilated",
       32,
       9,
       {2, 9, 11},
       {2, 3, 3},
       0,
       with_dilation(same_padding({3, 2, 6}, {0, 2, 6}), {3, 2, 6})},
      {"all padding", 4, 6, {1, 1, 1}, {1, 3, 3}, 0, same_padding({0, 5, 5}, {0, 5, 5})},
  };
}

Shape out_shape(const Case& c) {
  Shape shape{0, 0, 0, c.out};
  for (size_t axis = 0; axis < 3; ++axis) {
    const int32_t in = c.size[axis] + (axis == 0 ? c.history : 0);
    shape[static_cast<int>(axis)] = (in + c.options.pad_before[axis] + c.options.pad_after[axis] -
                                     c.options.dilation[axis] * (c.kernel[axis] - 1) - 1) /
                                        c.options.stride[axis] +
                                    1;
  }
  return shape;
}

void check_case(const Case& c, DType x_type, DType filter_type, DType out_type) {
  SCOPED_TRACE(c.name);
  SCOPED_TRACE(to_string(x_type));
  SCOPED_TRACE(to_string(filter_type));
  std::mt19937 random(7);
  ThreadPool pool(2);
  CpuStream stream(pool);
  const Tensor x = random_tensor({c.size[0], c.size[1], c.size[2], c.in}, x_type, random);
  const Tensor history =
      c.history > 0 ? random_tensor({c.history, c.size[1], c.size[2], c.in}, x_type, random)
                    : Tensor{};
  const Tensor weight =
      random_tensor({c.out, c.in, c.kernel[0], c.kernel[1], c.kernel[2]}, filter_type, random);
  const Tensor bias = c.bias ? random_tensor({c.out}, DType::kF32, random) : Tensor{};
  const Shape shape = out_shape(c);
  ConvOptions options = c.options;
  if (c.residual) {
    options.residual = random_tensor(shape, out_type, random);
  }
  Tensor want = Tensor::empty(shape, DType::kF32);
  ref::conv3d(x, history, weight, bias, options, want);
  for_each_isa([&] {
    const PackedConv conv = PackedConv::pack(weight, bias, pool);
    Tensor out = Tensor::empty(shape, out_type);
    ops::conv3d(stream, x, history, conv, options, out);
    const Tolerance tolerance =
        tolerance_of(int64_t{c.in} * c.kernel[0] * c.kernel[1] * c.kernel[2], out_type);
    const Comparison result = compare(out, want, tolerance);
    EXPECT_TRUE(result.passed) << result.to_string();
  });
}

TEST(Conv, EqualsItsTwinOnEveryShapeAndInstructionSet) {
  for (const Case& c : cases()) {
    check_case(c, DType::kF32, DType::kF32, DType::kF32);
    check_case(c, DType::kF32, DType::kBF16, DType::kF32);
    check_case(c, DType::kBF16, DType::kBF16, DType::kBF16);
    check_case(c, DType::kBF16, DType::kF32, DType::kF32);
  }
}

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

TEST(Conv, PicturesAndSignals) {
  std::mt19937 random(3);
  ThreadPool pool(2);
  CpuStream stream(pool);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor pictures = random_tensor({3, 6, 7, 10}, dtype, random);
    const Tensor filter2 = random_tensor({18, 10, 3, 3}, dtype, random);
    const Tensor signals = random_tensor({2, 40, 10}, dtype, random);
    const Tensor filter1 = random_tensor({18, 10, 7}, dtype, random);
    const Tensor bias = random_tensor({18}, dtype, random);
    ConvOptions options2;
    options2.pad_before = {0, 1, 1};
    options2.pad_after = {0, 1, 1};
    ConvOptions options1;
    options1.dilation[2] = 3;
    options1.pad_before[2] = options1.pad_after[2] = 9;
    options1.residual = random_tensor({2, 40, 18}, DType::kF32, random);
    Tensor want2 = Tensor::empty({3, 6, 7, 18}, DType::kF32);
    ref::conv2d(pictures, filter2, bias, options2, want2);
    Tensor want1 = Tensor::empty({2, 40, 18}, DType::kF32);
    ref::conv1d(signals, filter1, bias, options1, want1);
    for_each_isa([&] {
      Tensor out2 = Tensor::empty({3, 6, 7, 18}, DType::kF32);
      ops::conv2d(stream, pictures, PackedConv::pack(filter2, bias, pool), options2, out2);
      EXPECT_TRUE(compare(out2, want2, tolerance_of(90, DType::kF32)).passed);
      Tensor out1 = Tensor::empty({2, 40, 18}, DType::kF32);
      ops::conv1d(stream, signals, PackedConv::pack(filter1, bias, pool), options1, out1);
      EXPECT_TRUE(compare(out1, want1, tolerance_of(70, DType::kF32)).passed);
    });
  }
}

TEST(Conv, Transposed) {
  struct Sizes {
    int in, out, taps, stride, pad, extra;
  };

  std::mt19937 random(5);
  ThreadPool pool(2);
  CpuStream stream(pool);
  // The sound decoder's: taps 2 s, pad ceil(s / 2), one more when s is odd. Then taps fewer than
  // the stride, so that some outputs are bias alone, and no stride.
  for (const Sizes& s : {Sizes{24, 12, 16, 8, 4, 0},
                         Sizes{13, 20, 10, 5, 3, 1},
                         Sizes{6, 5, 2, 3, 0, 1},
                         Sizes{6, 5, 4, 1, 1, 0}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(s.stride);
      const Tensor x = random_tensor({2, 9, s.in}, dtype, random);
      const Tensor weight = random_tensor({s.in, s.out, s.taps}, dtype, random);
      const Tensor bias = random_tensor({s.out}, DType::kF32, random);
      const Shape shape{2, 8 * s.stride - 2 * s.pad + s.taps + s.extra, s.out};
      Tensor want = Tensor::empty(shape, DType::kF32);
      ref::conv_transpose1d(x, weight, bias, s.stride, s.pad, want);
      for_each_isa([&] {
        const PackedConv conv = PackedConv::pack_transposed(weight, bias, pool);
        Tensor out = Tensor::empty(shape, DType::kF32);
        ops::conv_transpose1d(stream, x, conv, s.stride, s.pad, s.extra, out);
        const Comparison result = compare(out, want, tolerance_of(s.in * 2, DType::kF32));
        EXPECT_TRUE(result.passed) << result.to_string();
      });
    }
  }
}

// A causal convolution over frames in one go equals chunks that hand on their last two frames.
TEST(Conv, ChunksWithHistoryEqualOneGo) {
  for (const auto& [channels, dtype] : {std::pair{12, DType::kF32}, std::pair{32, DType::kBF16}}) {
    std::mt19937 random(11);
    ThreadPool pool(2);
    CpuStream stream(pool);
    const Tensor x = random_tensor({7, 5, 6, channels}, dtype, random);
    const PackedConv conv =
        PackedConv::pack(random_tensor({20, channels, 3, 3, 3}, dtype, random), {}, pool);
    ConvOptions options = same_padding({2, 1, 1}, {0, 1, 1});
    Tensor whole = Tensor::empty({7, 5, 6, 20}, DType::kF32);
    ops::conv3d(stream, x, {}, conv, options, whole);

    Tensor chunked = Tensor::empty({7, 5, 6, 20}, DType::kF32);
    Tensor first = chunked.slice(0, 0, 2);
    ops::conv3d(stream, x.slice(0, 0, 2), {}, conv, options, first);
    options.pad_before[0] = 0;
    Tensor rest = chunked.slice(0, 2, 7);
    ops::conv3d(stream, x.slice(0, 2, 7), x.slice(0, 0, 2), conv, options, rest);
    EXPECT_TRUE(compare(chunked, whole, {.exact = true}).passed) << to_string(dtype);
  }
}

// Neither the cut into tasks nor the other pictures of a batch change a bit.
TEST(Conv, IndependentOfThreadsAndBatch) {
  for (const auto& [channels, dtype] : {std::pair{40, DType::kF32}, std::pair{64, DType::kBF16}}) {
    std::mt19937 random(13);
    ThreadPool one(1);
    ThreadPool many(5);
    CpuStream alone(one);
    CpuStream shared(many);
    const Tensor x = random_tensor({4, 13, 11, channels}, dtype, random);
    const PackedConv conv =
        PackedConv::pack(random_tensor({90, channels, 3, 3}, DType::kBF16, random), {}, one);
    const ConvOptions options = same_padding({0, 1, 1}, {0, 1, 1});
    Tensor batch = Tensor::empty({4, 13, 11, 90}, DType::kF32);
    Tensor same = Tensor::empty({4, 13, 11, 90}, DType::kF32);
    ops::conv2d(alone, x, conv, options, batch);
    ops::conv2d(shared, x, conv, options, same);
    EXPECT_TRUE(compare(same, batch, {.exact = true}).passed) << to_string(dtype);
    for (int64_t index = 0; index < 4; ++index) {
      Tensor single = Tensor::empty({1, 13, 11, 90}, DType::kF32);
      ops::conv2d(shared, x.slice(0, index, index + 1), conv, options, single);
      EXPECT_TRUE(compare(single, batch.slice(0, index, index + 1), {.exact = true}).passed);
    }
  }
}

// Channel slices in, every second frame out: the views that the video decoder uses.
TEST(Conv, ReadsAndWritesViews) {
  std::mt19937 random(17);
  ThreadPool pool(2);
  CpuStream stream(pool);
  const Tensor wide = random_tensor({3, 4, 5, 30}, DType::kBF16, random);
  const Tensor x = wide.slice(3, 7, 18);
  const PackedConv conv =
      PackedConv::pack(random_tensor({10, 11, 3, 1, 1}, DType::kBF16, random), {}, pool);
  const ConvOptions options = same_padding({2, 0, 0}, {0, 0, 0});
  Tensor want = Tensor::empty({3, 4, 5, 10}, DType::kF32);
  ops::conv3d(stream, x.copy(), {}, conv, options, want);
  const Tensor frames = Tensor::zeros({3, 2, 4, 5, 10}, DType::kF32);
  Tensor second = frames.select(1, 1);
  ops::conv3d(stream, x, {}, conv, options, second);
  EXPECT_TRUE(compare(second, want, {.exact = true}).passed);
  for (const float value : frames.select(1, 0).copy().to_floats()) {
    ASSERT_EQ(value, 0.0F);
  }
}

TEST(Conv, ExtremeValues) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const float infinity = std::numeric_limits<float>::infinity();
  for_each_isa([&] {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      // Three channels: the odd one must not read the next pixel's infinity.
      const Tensor x =
          Tensor::from(std::array{1.0F, 2.0F, 3.0F, infinity, 0.0F, 0.0F, 1e38F, 1e38F, 1e38F},
                       {1, 3, 3})
              .to(dtype);
      const Tensor weight = Tensor::from(std::array{1.0F, 1.0F, 2.0F}, {1, 3, 1}).to(dtype);
      Tensor out = Tensor::empty({1, 3, 1}, DType::kF32);
      ops::conv1d(stream, x, PackedConv::pack(weight, {}, pool), {}, out);
      EXPECT_EQ(out.to_floats(), (std::vector<float>{9.0F, infinity, infinity}));
    }
  });
}

TEST(Conv, ReplayEqualsEager) {
  std::mt19937 random(19);
  ThreadPool pool(2);
  CpuStream stream(pool);
  Tensor x = random_tensor({2, 6, 6, 16}, DType::kF32, random);
  const PackedConv conv =
      PackedConv::pack(random_tensor({24, 16, 3, 3, 3}, DType::kF32, random), {}, pool);
  const ConvOptions options = same_padding({2, 1, 1}, {0, 1, 1});
  Tensor out = Tensor::empty({2, 6, 6, 24}, DType::kF32);
  stream.begin_capture();
  ops::conv3d(stream, x, {}, conv, options, out);
  const auto graph = stream.end_capture();
  for (float& value : std::span(x.data<float>(), static_cast<size_t>(x.num_elements()))) {
    value = 1.0F - value;
  }
  Tensor eager = Tensor::empty({2, 6, 6, 24}, DType::kF32);
  ops::conv3d(stream, x, {}, conv, options, eager);
  graph->replay();
  EXPECT_TRUE(compare(out, eager, {.exact = true}).passed);
}

}  // namespace
}  // namespace mstar

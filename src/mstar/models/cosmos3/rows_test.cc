// The family's own row loops against plain ones, on every instruction set and in both types.
#include <gtest/gtest.h>

#include <cmath>

#include "mstar/base/thread_pool.h"
#include "mstar/kernels/isa_test_util.h"
#include "mstar/kernels/ops/norm.h"
#include "mstar/kernels/ops/rope.h"
#include "mstar/models/cosmos3/elementwise.h"
#include "mstar/models/cosmos3/vae_ops.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::cosmos3 {
namespace {

// Values that bf16 holds exactly, or not.
Tensor values(const Shape& shape, DType dtype, uint32_t seed) {
  Tensor out = Tensor::empty(shape, DType::kF32);
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    seed = seed * 1664525U + 1013904223U;
    out.data<float>()[i] = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
  }
  return out.to(dtype);
}

template <typename Body>
void for_each_type(Body&& body) {
  for_each_isa([&] {
    ThreadPool pool(2);
    CpuStream stream(pool);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(dtype == DType::kF32 ? "f32" : "bf16");
      body(stream, dtype);
    }
  });
}

struct Fold {
  int64_t in;
  int64_t out;
  int64_t time;
  int64_t space;
};

TEST(Cosmos3Rows, AveragedDown) {
  for_each_type([](CpuStream& stream, DType dtype) {
    for (const Fold fold : {Fold{5, 5, 1, 2},
                            Fold{40, 40, 1, 2},
                            Fold{24, 48, 2, 2},
                            Fold{19, 76, 2, 2},
                            Fold{12, 12, 1, 1},
                            Fold{8, 4, 2, 2}}) {
      const int64_t frames = 3;  // no multiple of two: a zero frame stands in front
      const int64_t out_frames = (frames + fold.time - 1) / fold.time;
      const Tensor x = values({frames, 4, 6, fold.in}, dtype, 1);
      const Shape shape{out_frames, 4 / fold.space, 6 / fold.space, fold.out};
      Tensor out = values(shape, dtype, 2);
      const std::vector<float> before = out.to_floats();
      const std::vector<float> from = x.to_floats();
      Tensor want = Tensor::empty(shape, DType::kF32);
      const int64_t cells = fold.time * fold.space * fold.space;
      const int64_t group = fold.in * cells / fold.out;
      const int64_t padding = out_frames * fold.time - frames;
      for (int64_t i = 0; i < want.num_elements(); ++i) {
        const int64_t channel = i % fold.out;
        const int64_t column = i / fold.out % shape[2];
        const int64_t line = i / fold.out / shape[2] % shape[1];
        const int64_t frame = i / fold.out / shape[2] / shape[1];
        double sum = 0.0;
        for (int64_t e = channel * group; e < (channel + 1) * group; ++e) {
          const int64_t cell = e % cells;
          const int64_t t = frame * fold.time + cell / (fold.space * fold.space) - padding;
          const int64_t y = line * fold.space + cell / fold.space % fold.space;
          const int64_t z = column * fold.space + cell % fold.space;
          if (t >= 0) {
            sum += from[static_cast<size_t>(((t * 4 + y) * 6 + z) * fold.in + e / cells)];
          }
        }
        want.data<float>()[i] =
            static_cast<float>(before[static_cast<size_t>(i)] + sum / static_cast<double>(group));
      }
      add_averaged_down(stream, x, fold.time, fold.space, out);
      const double bound = dtype == DType::kF32 ? 1e-6 : 0.01;
      EXPECT_TRUE(compare(out, want, {.atol = bound}).passed) << fold.in << " " << fold.out;
    }
  });
}

TEST(Cosmos3Rows, DuplicatedUp) {
  for_each_type([](CpuStream& stream, DType dtype) {
    for (const Fold fold : {Fold{40, 40, 2, 2},
                            Fold{5, 5, 2, 2},
                            Fold{48, 24, 1, 2},
                            Fold{38, 19, 2, 2},
                            Fold{8, 16, 2, 2}}) {
      for (const int64_t dropped : {int64_t{0}, fold.time - 1}) {
        const Tensor x = values({2, 3, 2, fold.in}, dtype, 3);
        const Shape shape{2 * fold.time - dropped, 3 * fold.space, 2 * fold.space, fold.out};
        Tensor out = values(shape, dtype, 4);
        const std::vector<float> before = out.to_floats();
        const std::vector<float> from = x.to_floats();
        Tensor want = Tensor::empty(shape, DType::kF32);
        const int64_t cells = fold.time * fold.space * fold.space;
        const int64_t repeats = fold.out * cells / fold.in;
        for (int64_t i = 0; i < want.num_elements(); ++i) {
          const int64_t channel = i % fold.out;
          const int64_t column = i / fold.out % shape[2];
          const int64_t line = i / fold.out / shape[2] % shape[1];
          const int64_t frame = i / fold.out / shape[2] / shape[1] + dropped;
          const int64_t cell = (frame % fold.time * fold.space + line % fold.space) * fold.space +
                               column % fold.space;
          const int64_t pixel =
              (frame / fold.time * 3 + line / fold.space) * 2 + column / fold.space;
          want.data<float>()[i] =
              before[static_cast<size_t>(i)] +
              from[static_cast<size_t>(pixel * fold.in + (channel * cells + cell) / repeats)];
        }
        add_duplicated_up(stream, x, fold.time, fold.space, dropped, out);
        const double bound = dtype == DType::kF32 ? 1e-6 : 0.01;
        EXPECT_TRUE(compare(out, want, {.atol = bound}).passed) << fold.in << " " << fold.out;
      }
    }
  });
}

TEST(Cosmos3Rows, Snake) {
  for_each_type([](CpuStream& stream, DType dtype) {
    constexpr int64_t kDim = 37;
    const Tensor x = values({1, 40, kDim}, dtype, 5);
    Tensor freq = Tensor::empty({kDim}, DType::kF32);
    Tensor inverse = Tensor::empty({kDim}, DType::kF32);
    for (int64_t c = 0; c < kDim; ++c) {
      freq.data<float>()[c] = std::exp(0.2F * static_cast<float>(c));  // up to 1300 radians
      inverse.data<float>()[c] = 1.0F / (1.0F + static_cast<float>(c));
    }
    Tensor want = Tensor::empty(x.shape(), DType::kF32);
    const std::vector<float> from = x.to_floats();
    for (int64_t i = 0; i < want.num_elements(); ++i) {
      const double value = from[static_cast<size_t>(i)];
      const double angle =
          static_cast<double>(freq.data<float>()[i % kDim] * from[static_cast<size_t>(i)]);
      const double wave = std::sin(angle);
      want.data<float>()[i] =
          static_cast<float>(value + inverse.data<float>()[i % kDim] * wave * wave);
    }
    Tensor out = Tensor::empty(x.shape(), dtype);
    snake(stream, x, freq, inverse, out);
    const Comparison found = compare(out, want, {.atol = dtype == DType::kF32 ? 2e-6 : 0.006});
    EXPECT_TRUE(found.passed) << found.to_string();
  });
}

// The pass that does both at once gives the bits of the two that it stands for.
TEST(Cosmos3Rows, NormAndRotationAtOnce) {
  for_each_type([](CpuStream& stream, DType dtype) {
    for (const int64_t dim : {int64_t{16}, int64_t{32}, int64_t{128}}) {
      for (const auto rounding : {RmsNormRounding::kOnce, RmsNormRounding::kBeforeWeight}) {
        for (const DType weight_type : {DType::kF32, DType::kBF16}) {
          const Tensor x = values({7, 3, dim}, dtype, 6);
          const Tensor weight = values({dim}, weight_type, 7);
          const Tensor cos = values({7, dim / 2}, DType::kF32, 8);
          const Tensor sin = values({7, dim / 2}, DType::kF32, 9);
          const RopeConfig rope{.head_dim = dim};
          const RmsNormOptions norm{.eps = 1e-6F, .rounding = rounding};
          Tensor want = x.copy();
          ops::rms_norm(stream, want, weight, norm, want);
          ops::apply_rope(stream, cos, sin, rope, true, want);
          Tensor got = x.copy();
          norm_rope(stream, weight, norm, cos, sin, rope, got);
          EXPECT_TRUE(compare(got, want, {.exact = true}).passed) << dim;
        }
      }
    }
  });
}

}  // namespace
}  // namespace mstar::cosmos3

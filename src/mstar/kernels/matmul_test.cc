#include "mstar/kernels/ops/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/ref/dequantize.h"
#include "mstar/kernels/ref/matmul.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

constexpr DType kWeightTypes[] = {DType::kF32,
                                  DType::kBF16,
                                  DType::kF16,
                                  DType::kQ8_0,
                                  DType::kQ4_0,
                                  DType::kQ4_1,
                                  DType::kQ5_0,
                                  DType::kQ5_1,
                                  DType::kQ4_K,
                                  DType::kQ5_K,
                                  DType::kQ6_K};

std::vector<Isa> offered_sets() {
  std::vector<Isa> sets;
  for (int isa = 0; isa <= static_cast<int>(best_isa()); ++isa) {
    sets.push_back(static_cast<Isa>(isa));
  }
  return sets;
}

Tensor random_tensor(const Shape& shape, DType dtype, uint32_t seed, float spread = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  Tensor values = Tensor::empty(shape, DType::kF32);
  for (int64_t index = 0; index < values.num_elements(); ++index) {
    values.data<float>()[index] = normal(random);
  }
  return dtype == DType::kF32 ? values : values.to(dtype);
}

// Random codes; the f16 scales (at the places the formats keep them) are kept small and finite.
Tensor random_weight(const Shape& shape, DType dtype, uint32_t seed) {
  if (!is_quantized(dtype)) {
    return random_tensor(shape, dtype, seed);
  }
  std::mt19937 random(seed);
  Tensor weight = Tensor::empty(shape, dtype);
  const int block = info(dtype).block_bytes;
  for (int64_t begin = 0; begin < weight.size_bytes(); begin += block) {
    std::byte* bytes = weight.bytes() + begin;
    for (int index = 0; index < block; ++index) {
      bytes[index] = static_cast<std::byte>(random() & 255U);
    }
    const auto scale = [&](int at, float spread) {
      const float value = spread * (static_cast<float>(random() % 2001) / 1000.0F - 1.0F);
      const float16 half = to_float16(value);
      std::memcpy(bytes + at, &half, 2);
    };
    if (dtype == DType::kQ6_K) {
      scale(208, 0.001F);
      continue;
    }
    const bool super = dtype == DType::kQ4_K || dtype == DType::kQ5_K;
    scale(0, super ? 0.001F : 0.1F);
    if (super || dtype == DType::kQ4_1 || dtype == DType::kQ5_1) {
      scale(2, super ? 0.001F : 0.1F);
    }
  }
  return weight;
}

Tensor dequantized(const Tensor& weight) {
  Tensor values = Tensor::empty(weight.shape(), DType::kF32);
  dequantize(weight.dtype(), weight.bytes(), weight.num_elements(), values.data<float>());
  return values;
}

// Rounding errors of a sum of k products, each relative to the norms of its factors (a sum of
// fused multiply-adds in f32), plus one rounding to the output's type.
Tolerance sum_tolerance(const Tensor& x, const Tensor& weight, DType out) {
  const auto norm = [](const Tensor& values) {
    double largest = 0.0;
    const std::vector<float> flat = values.to_floats();
    const auto width = static_cast<size_t>(values.dim(-1));
    for (size_t begin = 0; begin < flat.size(); begin += width) {
      double squares = 0.0;
      for (size_t index = begin; index < begin + width; ++index) {
        squares += static_cast<double>(flat[index]) * static_cast<double>(flat[index]);
      }
      largest = std::max(largest, std::sqrt(squares));
    }
    return largest;
  };
  const double epsilon = 0x1p-24;
  // Random signs: the error grows with the root of k, not with k; 8 is the safety factor.
  const double steps = std::sqrt(static_cast<double>(x.dim(-1))) + 4.0;
  return {.atol = 8.0 * epsilon * steps * norm(x) * norm(weight) /
                      std::sqrt(static_cast<double>(x.dim(-1))) +
                  8.0 * epsilon * norm(x) * norm(weight),
          .rtol = out == DType::kBF16 ? 0x1p-8 : 0x1p-22};
}

class MatmulTest : public ::testing::TestWithParam<Isa> {
 protected:
  MatmulTest() : before_(active_isa()) { set_active_isa(GetParam()); }

  ~MatmulTest() override { set_active_isa(before_); }

  Tensor linear(const Tensor& x,
                const PackedWeight& weight,
                const Epilogue& epilogue = {},
                DType dtype = DType::kF32) {
    Tensor out = Tensor::empty({x.dim(0), weight.out_features()}, dtype);
    ops::linear(stream_, x, weight, epilogue, out);
    return out;
  }

  ThreadPool pool_{3};
  CpuStream stream_{pool_};

 private:
  Isa before_;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.bytes(), b.bytes(), static_cast<size_t>(a.size_bytes())) == 0;
}

TEST_P(MatmulTest, UnpackGivesWhatWasPacked) {
  for (const DType dtype : kWeightTypes) {
    const Tensor weight = random_weight({37, 512}, dtype, 1);
    const PackedWeight packed = PackedWeight::pack(weight, pool_);
    EXPECT_EQ(packed.out_features(), 37);
    EXPECT_EQ(packed.in_features(), 512);
    EXPECT_EQ(packed.dtype(), dtype);
    const Comparison result = compare(packed.unpack(), dequantized(weight), {.rtol = 0x1p-22});
    EXPECT_TRUE(result.passed) << to_string(dtype) << ' ' << result.to_string();
  }
}

TEST_P(MatmulTest, PartsArePackedAsOneMatrix) {
  for (const DType dtype : kWeightTypes) {
    const Tensor whole = random_weight({53, 512}, dtype, 1);
    const std::vector<Tensor> parts{
        whole.slice(0, 0, 21), whole.slice(0, 21, 22), whole.slice(0, 22, 53)};
    const PackedWeight packed = PackedWeight::pack(parts, pool_);
    EXPECT_TRUE(same_bits(packed.unpack(), PackedWeight::pack(whole, pool_).unpack()))
        << to_string(dtype);
  }
}

TEST_P(MatmulTest, AgreesWithTheReference) {
  for (const DType dtype : kWeightTypes) {
    const int64_t k = is_quantized(dtype) ? 2 * info(dtype).block_size : 75;
    for (const int64_t n : {1, 17, 100}) {
      const Tensor weight = random_weight({n, k}, dtype, 2);
      const Tensor values = dequantized(weight);
      const PackedWeight packed = PackedWeight::pack(weight, pool_);
      for (const int64_t m : {1, 2, 5, 9, 33}) {
        for (const DType type : {DType::kF32, DType::kBF16}) {
          const Tensor x = random_tensor({m, k}, type, 3);
          Tensor want = Tensor::empty({m, n}, DType::kF32);
          ref::linear(x, values, {}, want);
          const Comparison result =
              compare(linear(x, packed, {}, type), want, sum_tolerance(x, values, type));
          EXPECT_TRUE(result.passed) << to_string(dtype) << " x " << to_string(type) << ' ' << m
                                     << 'x' << n << ": " << result.to_string();
        }
      }
    }
  }
}

TEST_P(MatmulTest, ABatchEqualsItsSinglesBitForBit) {
  for (const DType dtype : kWeightTypes) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const Tensor x = random_tensor({70, 512}, type, 4);
      const PackedWeight packed = PackedWeight::pack(random_weight({101, 512}, dtype, 5), pool_);
      const Tensor all = linear(x, packed);
      Tensor singles = Tensor::empty({70, 101}, DType::kF32);
      for (int64_t row = 0; row < 70; ++row) {
        Tensor out = singles.slice(0, row, row + 1);
        ops::linear(stream_, x.slice(0, row, row + 1), packed, {}, out);
      }
      ASSERT_TRUE(same_bits(all, singles)) << to_string(dtype);
      for (int64_t m = 2; m < 70; ++m) {
        ASSERT_TRUE(same_bits(linear(x.slice(0, 70 - m, 70), packed), singles.slice(0, 70 - m, 70)))
            << to_string(dtype) << " x " << to_string(type) << " m=" << m;
      }
    }
  }
}

// Whether subnormals count must not depend on the number of rows: products and sums around the
// least normal number, and factors below it.
TEST_P(MatmulTest, TinyValuesInABatchToo) {
  std::mt19937 random(25);
  const auto with_exponents = [&](const Shape& shape, uint32_t least, uint32_t count) {
    Tensor values = Tensor::empty(shape, DType::kBF16);
    auto* bits = reinterpret_cast<uint16_t*>(values.bytes());
    for (int64_t index = 0; index < values.num_elements(); ++index) {
      const uint32_t exponent = least + random() % count;
      bits[index] = static_cast<uint16_t>((random() & 0x807fU) | exponent << 7);
    }
    return values;
  };
  const std::pair<Tensor, Tensor> cases[] = {
      {with_exponents({20, 192}, 58, 10), with_exponents({170, 192}, 58, 10)},
      {with_exponents({20, 192}, 0, 2), with_exponents({170, 192}, 200, 4)},
      {with_exponents({20, 192}, 200, 4), with_exponents({170, 192}, 0, 2)}};
  for (const auto& [x, weight] : cases) {
    const PackedWeight packed = PackedWeight::pack(weight, pool_);
    const Tensor all = linear(x, packed);
    for (int64_t rows = 1; rows < 20; ++rows) {
      EXPECT_TRUE(same_bits(linear(x.slice(0, 0, rows), packed), all.slice(0, 0, rows))) << rows;
    }
  }
}

TEST_P(MatmulTest, RoundedActivationsCostLittleAndBatchToo) {
  for (const DType dtype : kWeightTypes) {
    if (!is_quantized(dtype)) {
      continue;
    }
    const int64_t depth = info(dtype).block_size == 256 ? 512 : 480;
    const Tensor weight = random_weight({61, depth}, dtype, 5);
    const Tensor values = dequantized(weight);
    const PackedWeight packed =
        PackedWeight::pack(weight, pool_, WeightFormat::kKeep, Activations::kInt8);
    EXPECT_TRUE(packed.rounds_activations());
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const Tensor x = random_tensor({70, depth}, type, 4);
      // What the kernel rounds the activations to, multiplied exactly.
      Tensor rounded = x.to(DType::kF32);
      for (int64_t begin = 0; begin < rounded.num_elements(); begin += 32) {
        float* block = rounded.data<float>() + begin;
        float largest = 0.0F;
        for (int64_t k = 0; k < 32; ++k) {
          largest = std::max(largest, std::abs(block[k]));
        }
        for (int64_t k = 0; k < 32; ++k) {
          block[k] = largest / 127.0F * std::nearbyint(block[k] * (127.0F / largest));
        }
      }
      Tensor want = Tensor::empty({70, 61}, DType::kF32);
      ref::linear(rounded, values, {}, want);
      const Tensor all = linear(x, packed);
      const Comparison result = compare(all, want, sum_tolerance(x, values, DType::kF32));
      EXPECT_TRUE(result.passed) << to_string(dtype) << ' ' << result.to_string();
      for (int64_t m = 1; m < 70; ++m) {
        ASSERT_TRUE(same_bits(linear(x.slice(0, 70 - m, 70), packed), all.slice(0, 70 - m, 70)))
            << to_string(dtype) << " x " << to_string(type) << " m=" << m;
      }
    }
    Tensor bad = random_tensor({2, depth}, DType::kF32, 6);
    bad.data<float>()[100] = std::numeric_limits<float>::infinity();
    const Tensor out = linear(bad, packed);
    EXPECT_TRUE(std::isnan(out.to_floats()[0]));
    EXPECT_TRUE(std::isfinite(out.to_floats()[61]));
  }
}

TEST_P(MatmulTest, LongAndTallProblemsToo) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_0}) {
    const Tensor weight = random_weight({203, 1056}, dtype, 6);
    const PackedWeight packed = PackedWeight::pack(weight, pool_);
    const Tensor x = random_tensor({391, 1056}, DType::kF32, 7);
    const Tensor all = linear(x, packed);
    for (const int64_t row : {0, 190, 191, 192, 390}) {
      EXPECT_TRUE(same_bits(linear(x.slice(0, row, row + 1), packed), all.slice(0, row, row + 1)))
          << to_string(dtype) << " row " << row;
    }
  }
}

// Rounded activations over several stretches of k, the last one short, and in several tasks.
TEST_P(MatmulTest, LongAndTallRoundedToo) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_1, DType::kQ4_K, DType::kQ6_K}) {
    const int64_t depth = info(dtype).block_size == 256 ? 2304 : 2336;
    const PackedWeight packed = PackedWeight::pack(
        random_weight({75, depth}, dtype, 6), pool_, WeightFormat::kKeep, Activations::kInt8);
    const Tensor x = random_tensor({391, depth}, DType::kBF16, 7);
    const Epilogue epilogue{.bias = random_tensor({75}, DType::kF32, 10),
                            .activation = Activation::kSilu,
                            .residual = random_tensor({391, 75}, DType::kBF16, 11)};
    const Tensor all = linear(x, packed, epilogue, DType::kBF16);
    for (const int64_t row : {0, 15, 16, 191, 192, 207, 384, 390}) {
      Epilogue own = epilogue;
      own.residual = epilogue.residual.slice(0, row, row + 1);
      EXPECT_TRUE(same_bits(linear(x.slice(0, row, row + 1), packed, own, DType::kBF16),
                            all.slice(0, row, row + 1)))
          << to_string(dtype) << " row " << row;
    }
  }
}

// So many panels that tasks would outgrow the sums they keep, were they not cut by them.
TEST_P(MatmulTest, ManyRowsOfManyFeatures) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const PackedWeight packed = PackedWeight::pack(random_weight({20000, 32}, dtype, 8), pool_);
    const Tensor x = random_tensor({391, 32}, dtype, 9);
    const Tensor all = linear(x, packed);
    for (const int64_t row : {0, 191, 390}) {
      EXPECT_TRUE(same_bits(linear(x.slice(0, row, row + 1), packed), all.slice(0, row, row + 1)))
          << to_string(dtype) << " row " << row;
    }
  }
}

// Activations beyond what a core's cache holds: k is taken in parts, rows in groups and what is
// left.
TEST_P(MatmulTest, MuchOfEverything) {
  const PackedWeight packed = PackedWeight::pack(random_weight({75, 4100}, DType::kBF16, 8), pool_);
  const Tensor x = random_tensor({343, 4100}, DType::kBF16, 9);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Epilogue epilogue{
        .bias = random_tensor({75}, type, 10), .activation = Activation::kSilu, .alpha = 0.75F};
    const Tensor all = linear(x, packed, epilogue, type);
    for (const int64_t row : {0, 15, 16, 127, 128, 335, 336, 342}) {
      EXPECT_TRUE(same_bits(linear(x.slice(0, row, row + 1), packed, epilogue, type),
                            all.slice(0, row, row + 1)))
          << to_string(type) << " row " << row;
    }
  }
}

// Outputs that go past the caches, over their residual.
TEST_P(MatmulTest, OutputsOfManyBytes) {
  const PackedWeight packed = PackedWeight::pack(random_weight({992, 64}, DType::kBF16, 8), pool_);
  const Tensor x = random_tensor({1100, 64}, DType::kBF16, 9);
  const Tensor residual = random_tensor({1100, 992}, DType::kBF16, 10);
  Tensor all = residual.copy();
  ops::linear(stream_, x, packed, {.residual = all}, all);
  for (const int64_t row : {0, 383, 384, 1087, 1099}) {
    Tensor one = residual.slice(0, row, row + 1).copy();
    ops::linear(stream_, x.slice(0, row, row + 1), packed, {.residual = one}, one);
    EXPECT_TRUE(same_bits(one, all.slice(0, row, row + 1))) << "row " << row;
  }
}

TEST_P(MatmulTest, TheEpilogueIsAppliedInOrder) {
  const Tensor x = random_tensor({9, 64}, DType::kF32, 8);
  const Tensor weight = random_tensor({45, 64}, DType::kF32, 9, 0.3F);
  const PackedWeight packed = PackedWeight::pack(weight, pool_);
  for (const Activation activation : {Activation::kNone,
                                      Activation::kSilu,
                                      Activation::kGelu,
                                      Activation::kGeluTanh,
                                      Activation::kRelu,
                                      Activation::kRelu2}) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const Epilogue epilogue{
          random_tensor({45}, type, 10), activation, random_tensor({9, 45}, type, 11), 0.75F};
      Tensor want = Tensor::empty({9, 45}, DType::kF32);
      ref::linear(x, weight, epilogue, want);
      const Comparison result =
          compare(linear(x, packed, epilogue), want, {.atol = 2e-5, .rtol = 2e-6});
      EXPECT_TRUE(result.passed) << static_cast<int>(activation) << ' ' << result.to_string();
    }
  }
}

TEST_P(MatmulTest, TheResidualMayBeTheOutput) {
  const Tensor x = random_tensor({20, 40}, DType::kF32, 12);
  const PackedWeight packed = PackedWeight::pack(random_tensor({33, 40}, DType::kBF16, 13), pool_);
  const Tensor residual = random_tensor({20, 33}, DType::kF32, 14);
  const Tensor want = linear(x, packed, {.residual = residual});
  Tensor out = residual.copy();
  ops::linear(stream_, x, packed, {.residual = out}, out);
  EXPECT_TRUE(same_bits(out, want));
}

TEST_P(MatmulTest, RowsMayBeStridedAndMisaligned) {
  const Tensor wide = random_tensor({11, 71}, DType::kF32, 15);
  const Tensor x = wide.slice(1, 1, 66);  // 4 bytes off, rows 284 bytes apart
  const PackedWeight packed = PackedWeight::pack(random_tensor({19, 65}, DType::kF32, 16), pool_);
  Tensor room = Tensor::zeros({11, 23}, DType::kF32);
  Tensor out = room.slice(1, 3, 22);
  ops::linear(stream_, x, packed, {}, out);
  EXPECT_TRUE(same_bits(out.copy(), linear(x.copy(), packed)));
  EXPECT_EQ(room.to_floats()[2], 0.0F);  // nothing outside is touched
  EXPECT_EQ(room.to_floats()[22], 0.0F);
}

TEST_P(MatmulTest, ExtremeValuesStayWhatTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {infinity, 1e38F, 1e-40F, 0.0F, -2.0F, 3.0F};
  const Tensor x = Tensor::from(std::span<const float>(values), {6, 1});
  const Tensor weight = Tensor::from(std::vector<float>{1.0F, -4.0F}, {2, 1});
  const std::vector<float> out = linear(x, PackedWeight::pack(weight, pool_)).to_floats();
  EXPECT_EQ(out,
            (std::vector<float>{infinity,
                                -infinity,
                                1e38F,
                                -infinity,
                                1e-40F,
                                -4.0F * 1e-40F,
                                0.0F,
                                0.0F,
                                -2.0F,
                                8.0F,
                                3.0F,
                                -12.0F}));
  const Tensor nan = Tensor::from(std::vector<float>{std::nanf(""), 1.0F}, {2, 1});
  const std::vector<float> two = linear(nan, PackedWeight::pack(weight, pool_)).to_floats();
  EXPECT_TRUE(std::isnan(two[0]) && std::isnan(two[1]));
  EXPECT_EQ(two[2], 1.0F);  // the other row does not notice
}

TEST_P(MatmulTest, WeightsCanBeStoredInAnotherFormat) {
  const Tensor weight = random_tensor({50, 96}, DType::kF32, 17);
  const Tensor x = random_tensor({7, 96}, DType::kF32, 18);
  const PackedWeight half = PackedWeight::pack(weight, pool_, WeightFormat::kBF16);
  EXPECT_TRUE(compare(half.unpack(), weight.to(DType::kBF16), {.exact = true}).passed);
  const PackedWeight bytes = PackedWeight::pack(weight, pool_, WeightFormat::kInt8);
  EXPECT_EQ(bytes.dtype(), DType::kI8);
  const Tensor rounded = bytes.unpack();
  Tensor want = Tensor::empty({7, 50}, DType::kF32);
  ref::linear(x, rounded, {}, want);
  const Comparison result = compare(linear(x, bytes), want, sum_tolerance(x, rounded, DType::kF32));
  EXPECT_TRUE(result.passed) << result.to_string();
  // Half a step of the largest value in a row of normal values, about 3 / 127 / 2.
  EXPECT_TRUE(compare(rounded, weight, {.atol = 0.02}).passed);
}

TEST_P(MatmulTest, Int8WeightsTakeBf16RowsInAnyNumber) {
  const Tensor weight = random_tensor({101, 2616}, DType::kF32, 21);  // k in several parts
  const PackedWeight packed = PackedWeight::pack(weight, pool_, WeightFormat::kInt8);
  const Tensor rounded = packed.unpack();
  const Tensor x = random_tensor({70, 2616}, DType::kBF16, 22);
  const Tensor all = linear(x, packed);
  Tensor want = Tensor::empty({70, 101}, DType::kF32);
  ref::linear(x, rounded, {}, want);
  const Comparison result = compare(all, want, sum_tolerance(x, rounded, DType::kF32));
  EXPECT_TRUE(result.passed) << result.to_string();
  for (const int64_t rows : {1, 2, 3, 4, 5, 16, 17, 33, 64}) {
    EXPECT_TRUE(same_bits(linear(x.slice(0, 3, 3 + rows), packed), all.slice(0, 3, 3 + rows)))
        << rows;
  }
}

TEST_P(MatmulTest, GroupedRowsMeetTheirExpert) {
  const Tensor x = random_tensor({30, 72}, DType::kBF16, 19);
  std::vector<PackedWeight> experts;
  for (uint32_t expert = 0; expert < 5; ++expert) {
    experts.push_back(
        PackedWeight::pack(random_tensor({40, 72}, DType::kBF16, 20 + expert), pool_));
  }
  const Tensor indptr = Tensor::from(std::vector<int32_t>{0, 1, 1, 14, 16, 29}, {6});
  Tensor out = Tensor::zeros({30, 40}, DType::kF32);
  ops::grouped_linear(stream_, x, experts, indptr, {}, out);
  const int bounds[] = {0, 1, 1, 14, 16, 29};
  for (size_t expert = 0; expert < 5; ++expert) {
    const int begin = bounds[expert];
    const int end = bounds[expert + 1];
    if (begin < end) {
      EXPECT_TRUE(
          same_bits(linear(x.slice(0, begin, end), experts[expert]), out.slice(0, begin, end)))
          << expert;
    }
  }
  EXPECT_EQ(out.to_floats()[29 * 40], 0.0F);  // beyond the last expert: untouched
}

TEST_P(MatmulTest, OperandsThatChangeEveryStep) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Tensor a = random_tensor({3, 21, 37}, type, 30);
    const Tensor b = random_tensor({3, 18, 37}, type, 31);
    Tensor out = Tensor::empty({3, 21, 18}, DType::kF32);
    ops::matmul_nt(stream_, a, b, 0.5F, out);
    for (int batch = 0; batch < 3; ++batch) {
      Tensor want = Tensor::empty({21, 18}, DType::kF32);
      ref::linear(a.select(0, batch), b.select(0, batch), {.alpha = 0.5F}, want);
      const Comparison result =
          compare(out.select(0, batch),
                  want,
                  sum_tolerance(a.select(0, batch), b.select(0, batch), DType::kF32));
      EXPECT_TRUE(result.passed) << result.to_string();
    }
    Tensor one = Tensor::empty({21, 18}, DType::kF32);
    ops::matmul_nt(stream_, a.select(0, 1), b.select(0, 1), 0.5F, one);
    EXPECT_TRUE(same_bits(one, out.select(0, 1)));
  }
}

// Packed rows of such lengths lie further apart than they are long (packed_row_bytes).
TEST_P(MatmulTest, RowsAPowerOfTwoLong) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Tensor x = random_tensor({41, 2048}, type, 32);
    const Tensor weight = random_tensor({50, 2048}, type, 33);
    const PackedWeight packed = PackedWeight::pack(weight, pool_);
    const Tensor all = linear(x, packed);
    Tensor want = Tensor::empty({41, 50}, DType::kF32);
    ref::linear(x, weight, {}, want);
    const Tolerance tolerance = sum_tolerance(x, weight, DType::kF32);
    const Comparison result = compare(all, want, tolerance);
    EXPECT_TRUE(result.passed) << to_string(type) << ' ' << result.to_string();
    for (const int64_t row : {0, 1, 7, 40}) {
      EXPECT_TRUE(same_bits(linear(x.slice(0, row, row + 1), packed), all.slice(0, row, row + 1)))
          << to_string(type) << " row " << row;
    }
    const Tensor indptr = Tensor::from(std::vector<int32_t>{0, 13, 41}, {3});
    Tensor grouped = Tensor::empty({41, 50}, DType::kF32);
    ops::grouped_linear(stream_, x, {packed, packed}, indptr, {}, grouped);
    EXPECT_TRUE(same_bits(grouped, all)) << to_string(type);
    const Tensor halves = x.slice(0, 0, 40).view({2, 20, 2048});
    const Tensor weights = weight.view({2, 25, 2048});
    Tensor products = Tensor::empty({2, 20, 25}, DType::kF32);
    ops::matmul_nt(stream_, halves, weights, 1.0F, products);
    for (int batch = 0; batch < 2; ++batch) {
      Tensor part = Tensor::empty({20, 25}, DType::kF32);
      ref::linear(halves.select(0, batch), weights.select(0, batch), {}, part);
      const Comparison each = compare(products.select(0, batch), part, tolerance);
      EXPECT_TRUE(each.passed) << to_string(type) << ' ' << each.to_string();
    }
  }
}

TEST_P(MatmulTest, ReplayFollowsTheData) {
  const PackedWeight packed = PackedWeight::pack(random_tensor({64, 80}, DType::kBF16, 40), pool_);
  std::vector<PackedWeight> experts = {packed, packed};
  Tensor x = random_tensor({30, 80}, DType::kBF16, 41);
  Tensor indptr = Tensor::from(std::vector<int32_t>{0, 10, 30}, {3});
  Tensor out = Tensor::empty({30, 64}, DType::kF32);
  Tensor grouped = Tensor::empty({30, 64}, DType::kF32);
  stream_.begin_capture();
  ops::linear(stream_, x, packed, {}, out);
  ops::grouped_linear(stream_, x, experts, indptr, {}, grouped);
  experts.clear();
  const auto graph = stream_.end_capture();
  const Tensor fresh = random_tensor({30, 80}, DType::kBF16, 42);
  std::memcpy(x.bytes(), fresh.bytes(), static_cast<size_t>(fresh.size_bytes()));
  indptr.data<int32_t>()[1] = 3;
  graph->replay();
  EXPECT_TRUE(same_bits(out, linear(fresh, packed)));
  EXPECT_TRUE(same_bits(grouped, out));
}

TEST_P(MatmulTest, SteadyStateAllocatesNothing) {
  const PackedWeight packed = PackedWeight::pack(random_tensor({64, 80}, DType::kBF16, 43), pool_);
  const Tensor x = random_tensor({30, 80}, DType::kBF16, 44);
  Tensor out = Tensor::empty({30, 64}, DType::kF32);
  ops::linear(stream_, x, packed, {}, out);
  const int64_t warm = stream_.memory_stats().num_upstream_allocations;
  for (int step = 0; step < 3; ++step) {
    ops::linear(stream_, x, packed, {}, out);
  }
  EXPECT_EQ(stream_.memory_stats().num_upstream_allocations, warm);
}

TEST_P(MatmulTest, EmptySizesAreLegal) {
  const PackedWeight packed = PackedWeight::pack(random_tensor({8, 16}, DType::kF32, 45), pool_);
  EXPECT_EQ(linear(Tensor::empty({0, 16}, DType::kF32), packed).num_elements(), 0);
  const PackedWeight flat = PackedWeight::pack(Tensor::empty({8, 0}, DType::kF32), pool_);
  for (const int64_t m : {1, 40}) {
    EXPECT_EQ(linear(Tensor::empty({m, 0}, DType::kF32), flat).to_floats(),
              std::vector<float>(static_cast<size_t>(m * 8), 0.0F));
  }
}

INSTANTIATE_TEST_SUITE_P(Sets,
                         MatmulTest,
                         ::testing::ValuesIn(offered_sets()),
                         [](const auto& name) { return std::string(to_string(name.param)); });

}  // namespace
}  // namespace mstar

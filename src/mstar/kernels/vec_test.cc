#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "mstar/kernels/cpu/vec_probe.h"
#include "mstar/kernels/isa_test_util.h"

namespace mstar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Bit patterns spread over all of f32: every exponent, both signs, infinities and NaNs.
std::vector<float> spread() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits <= 0xffffffffU; bits += 65521 * 3) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  return values;
}

struct Bound {
  VecFunction f;
  double (*exact)(double);
  float low;
  float high;
  double relative;  // fused sets
  double relative_portable;
};

TEST(Vec, FunctionsAreAccurate) {
  const std::array bounds = {
      Bound{VecFunction::kExp, std::exp, -87.0F, 88.7F, 1.3e-7, 2.2e-7},
      Bound{VecFunction::kExpNotPositive, std::exp, -87.2F, 0.0F, 1.3e-7, 2.2e-7},
      Bound{VecFunction::kExpForSoftmax, std::exp, -80.0F, 0.0F, 4e-7, 6e-6},
      Bound{VecFunction::kTanh, std::tanh, -20.0F, 20.0F, 2.2e-7, 3e-7},
      Bound{VecFunction::kErf, std::erf, -6.0F, 6.0F, 2.5e-7, 3e-7},
      Bound{VecFunction::kErfc, std::erfc, -6.0F, 9.0F, 5e-7, 1.2e-5},
  };
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    for (const Bound& bound : bounds) {
      constexpr int kCount = 200003;
      std::vector<float> x(kCount);
      for (int i = 0; i < kCount; ++i) {
        x[i] = bound.low + (bound.high - bound.low) * static_cast<float>(i) / (kCount - 1);
      }
      std::vector<float> y(kCount);
      MSTAR_BY_ISA(vec_map)(bound.f, x.data(), y.data(), kCount);
      double worst = 0.0;
      for (int i = 0; i < kCount; ++i) {
        const double want = bound.exact(x[i]);
        if (want != 0.0) {
          worst = std::max(worst, std::abs(y[i] - want) / std::abs(want));
        }
      }
      EXPECT_LE(worst, isa == Isa::kPortable ? bound.relative_portable : bound.relative)
          << to_string(isa) << " function " << static_cast<int>(bound.f);
    }
  }
}

TEST(Vec, FunctionsAtTheEdges) {
  const std::array x = {-kInf, -200.0F, -95.0F, -0.0F, 1e-40F, 1e-10F, 89.0F, kInf, kNan};
  std::array<float, x.size()> y{};
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    const auto map = MSTAR_BY_ISA(vec_map);
    map(VecFunction::kExp, x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], 0.0F);
    EXPECT_EQ(y[1], 0.0F);
    EXPECT_NEAR(y[2], std::exp(-95.0), 3e-45);  // a subnormal
    EXPECT_GT(y[2], 0.0F);
    EXPECT_EQ(y[3], 1.0F);
    EXPECT_EQ(y[5], 1.0F);
    EXPECT_EQ(y[6], kInf);
    EXPECT_EQ(y[7], kInf);
    EXPECT_TRUE(std::isnan(y[8]));
    map(VecFunction::kExpNotPositive, x.data(), y.data(), 4);
    EXPECT_EQ(y[0], 0.0F);
    EXPECT_EQ(y[2], 0.0F);
    EXPECT_EQ(y[3], 1.0F);
    map(VecFunction::kExpForSoftmax, x.data(), y.data(), x.size());
    EXPECT_LT(y[0], 3e-38F);
    EXPECT_LT(y[1], 3e-38F);
    EXPECT_EQ(y[3], 1.0F);
    EXPECT_TRUE(std::isnan(y[8]));
    map(VecFunction::kTanh, x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], -1.0F);
    EXPECT_EQ(y[4], x[4]);
    EXPECT_EQ(y[7], 1.0F);
    EXPECT_TRUE(std::isnan(y[8]));
    map(VecFunction::kErf, x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], -1.0F);
    EXPECT_EQ(y[7], 1.0F);
    EXPECT_TRUE(std::isnan(y[8]));
    map(VecFunction::kErfc, x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], 2.0F);
    EXPECT_NEAR(y[7], 0.0F, 1e-38F);
    EXPECT_TRUE(std::isnan(y[8]));
    const std::array ties = {0.5F, 1.5F, -2.5F, -0.2F};
    map(VecFunction::kRound, ties.data(), y.data(), ties.size());
    EXPECT_EQ((std::vector<float>(y.begin(), y.begin() + 4)), (std::vector<float>{0, 2, -2, 0}));
    map(VecFunction::kFloor, ties.data(), y.data(), ties.size());
    EXPECT_EQ((std::vector<float>(y.begin(), y.begin() + 4)), (std::vector<float>{0, 1, -3, -1}));
  }
}

TEST(Vec, SixteenBitTypesConvertBitForBit) {
  const std::vector<float> x = spread();
  const auto n = static_cast<int64_t>(x.size());
  std::vector<bfloat16> brain(x.size());
  std::vector<float16> half(x.size());
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    MSTAR_BY_ISA(vec_to_bf16)(x.data(), brain.data(), n);
    MSTAR_BY_ISA(vec_to_f16)(x.data(), half.data(), n);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(brain[i].bits, to_bfloat16(x[i]).bits) << to_string(isa) << " " << x[i];
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(to_float(half[i])));
      } else {
        ASSERT_EQ(half[i].bits, to_float16(x[i]).bits) << to_string(isa) << " " << x[i];
      }
    }
    std::vector<bfloat16> all_brains(0x10000);
    std::vector<float16> all_halves(0x10000);
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      all_brains[bits].bits = all_halves[bits].bits = static_cast<uint16_t>(bits);
    }
    std::vector<float> back(0x10000);
    MSTAR_BY_ISA(vec_from_f16)(all_halves.data(), back.data(), 0x10000);
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float want = to_float(all_halves[bits]);
      ASSERT_TRUE(std::isnan(want)
                      ? std::isnan(back[bits])
                      : std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(back[bits]));
    }
    MSTAR_BY_ISA(vec_from_bf16)(all_brains.data(), back.data(), 0x10000);
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      ASSERT_EQ(std::bit_cast<uint32_t>(back[bits]), bits << 16);
    }
  }
}

TEST(Vec, PartialStoresTouchNothingElse) {
  const std::vector<float> x(40, 3.0F);
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    for (int n = 0; n < 34; ++n) {
      std::vector<bfloat16> brain(40);
      std::vector<float16> half(40);
      std::vector<float> plain(40);
      MSTAR_BY_ISA(vec_to_bf16)(x.data(), brain.data() + 1, n);
      MSTAR_BY_ISA(vec_to_f16)(x.data(), half.data() + 1, n);
      MSTAR_BY_ISA(vec_map)(VecFunction::kRound, x.data(), plain.data() + 1, n);
      for (int i = 0; i < 40; ++i) {
        const float want = i >= 1 && i < 1 + n ? 3.0F : 0.0F;
        ASSERT_EQ(to_float(brain[i]), want);
        ASSERT_EQ(to_float(half[i]), want);
        ASSERT_EQ(plain[i], want);
      }
    }
  }
}

TEST(Vec, TransposeAndRowSums) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    const int lanes = MSTAR_BY_ISA(vec_lanes)();
    std::vector<float> x(static_cast<size_t>(lanes * lanes));
    for (float& value : x) {
      value = uniform(random);
    }
    std::vector<float> y(x.size());
    MSTAR_BY_ISA(vec_transpose)(x.data(), y.data());
    std::vector<float> one(lanes);
    std::vector<float> all(lanes);
    MSTAR_BY_ISA(vec_row_sums)(x.data(), one.data(), all.data());
    for (int row = 0; row < lanes; ++row) {
      double sum = 0.0;
      for (int column = 0; column < lanes; ++column) {
        ASSERT_EQ(y[column * lanes + row], x[row * lanes + column]);
        sum += x[row * lanes + column];
      }
      EXPECT_NEAR(one[row], sum, lanes * 6e-8);
      EXPECT_NEAR(all[row], sum, lanes * 6e-8);
    }
  }
}

}  // namespace
}  // namespace mstar

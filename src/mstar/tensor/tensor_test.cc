#include "mstar/tensor/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "mstar/tensor/compare.h"

namespace mstar {
namespace {

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (size_t index = 0; index < values.size(); ++index) {
    values[index] = static_cast<float>(index);
  }
  return Tensor::from(values, shape);
}

TEST(DType, NamesReadBack) {
  for (int index = 0; index < kNumDTypes; ++index) {
    const auto dtype = static_cast<DType>(index);
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("bfloat16"), DType::kBF16);
  EXPECT_EQ(parse_dtype("F32"), DType::kF32);
  EXPECT_FALSE(parse_dtype("f8").has_value());
}

TEST(Float16, EveryValueSurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float16 half{static_cast<uint16_t>(bits)};
    const float value = to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_float16(value))));
    } else {
      ASSERT_EQ(to_float16(value).bits, bits);
    }
    const bfloat16 brain{static_cast<uint16_t>(bits)};
    if (!std::isnan(to_float(brain))) {
      ASSERT_EQ(to_bfloat16(to_float(brain)).bits, bits);
    }
  }
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_float16(2049.0F)), 2048.0F);
  EXPECT_EQ(to_float(to_float16(2051.0F)), 2052.0F);
  EXPECT_EQ(to_float16(65519.9F).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(to_float16(0x1p-25F).bits, 0);  // a tie: to even, zero
  EXPECT_EQ(to_float16(std::nextafterf(0x1p-25F, 1)).bits, 1);
  EXPECT_EQ(to_bfloat16(1.00390625F).bits, 0x3f80);  // a tie: to even
  EXPECT_EQ(to_bfloat16(1.01171875F).bits, 0x3f82);
  EXPECT_TRUE(std::isinf(to_float(to_bfloat16(std::numeric_limits<float>::max()))));
}

TEST(Tensor, ViewsShareBytes) {
  const Tensor x = counting({2, 3, 4});
  const Tensor row = x.select(1, 2);
  EXPECT_EQ(row.shape(), Shape({2, 4}));
  EXPECT_EQ(row.to_floats(), (std::vector<float>{8, 9, 10, 11, 20, 21, 22, 23}));
  row.data<float>()[0] = -1;
  EXPECT_EQ(x.data<float>()[8], -1);
  EXPECT_FALSE(row.is_contiguous());
  EXPECT_TRUE(row.copy().is_contiguous());
  EXPECT_EQ(row.copy().to_floats(), row.to_floats());
}

TEST(Tensor, TransposeAndPermute) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(x.transpose(0, 1).to_floats(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  const std::array<int, 3> order = {2, 0, 1};
  EXPECT_EQ(counting({2, 3, 4}).permute(order).shape(), Shape({4, 2, 3}));
}

TEST(Tensor, RowsOfStridedViews) {
  const Tensor x = counting({2, 3, 8});
  const Tensor half = x.slice(2, 4, 8);
  const Tensor rows = half.as_rows();
  EXPECT_EQ(rows.shape(), Shape({6, 4}));
  EXPECT_EQ(rows.stride(0), 8);
  EXPECT_EQ(rows.to_floats(), half.to_floats());
}

TEST(Tensor, ConvertsTypes) {
  const Tensor x = Tensor::from(std::array{1.5F, -2.0F, 1.00390625F}, {3});
  EXPECT_EQ(x.to(DType::kBF16).to_floats(), (std::vector<float>{1.5F, -2.0F, 1.0F}));
  EXPECT_EQ(x.to(DType::kI64).to_ints(), (std::vector<int64_t>{1, -2, 1}));
  const Tensor big = Tensor::from(std::array<int64_t, 1>{(int64_t{1} << 53) + 1}, {1});
  EXPECT_EQ(big.to_ints()[0], (int64_t{1} << 53) + 1);
}

TEST(Tensor, QuantizedRowsAreCutAtBlocks) {
  const Tensor q = Tensor::zeros({4, 64}, DType::kQ8_0);
  EXPECT_EQ(q.size_bytes(), 4 * 2 * 34);
  EXPECT_EQ(q.slice(0, 1, 3).bytes() - q.bytes(), 2 * 34);
  EXPECT_DEATH(Tensor::zeros({4, 33}, DType::kQ8_0), "check failed");
}

TEST(Tensor, EmptyTensorsAreDefined) {
  EXPECT_FALSE(Tensor().defined());
  EXPECT_TRUE(Tensor::empty({0, 4}, DType::kF32).defined());
  EXPECT_EQ(Tensor::empty({0, 4}, DType::kF32).to_floats().size(), 0U);
}

TEST(Compare, FindsTheFirstWrongElement) {
  const Tensor want = Tensor::from(std::array{1.0F, 2.0F, 3.0F}, {3});
  const Tensor got = Tensor::from(std::array{1.0F, 2.1F, 3.0F}, {3});
  const Comparison result = compare(got, want, {.atol = 0.01, .rtol = 0.01});
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.first_wrong, 1);
  EXPECT_EQ(result.num_wrong, 1);
  EXPECT_TRUE(compare(got, want, {.atol = 0.11}).passed);
  EXPECT_FALSE(compare(got, want, {.exact = true}).passed);
  EXPECT_FALSE(compare(got.view({1, 3}), want, {.atol = 1}).passed);
}

TEST(Compare, NaNNeverPassesUnlessBothAre) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = Tensor::from(std::array{nan}, {1});
  const Tensor b = Tensor::from(std::array{1.0F}, {1});
  EXPECT_FALSE(compare(a, b, {.atol = 1e9}).passed);
  EXPECT_FALSE(compare(b, a, {.atol = 1e9}).passed);
  EXPECT_TRUE(compare(a, a, {.exact = true}).passed);
}

}  // namespace
}  // namespace mstar

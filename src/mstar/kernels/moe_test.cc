#include "mstar/kernels/ops/moe.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "mstar/kernels/isa_test_util.h"
#include "mstar/kernels/ref/moe.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

Tensor normal_tensor(const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor x = Tensor::empty(shape, DType::kF32);
  for (int64_t index = 0; index < x.num_elements(); ++index) {
    x.data<float>()[index] = normal(random);
  }
  return x;
}

void check_route(CpuStream& stream, const Tensor& logits, int64_t k, bool norm) {
  const int64_t tokens = logits.dim(0);
  Tensor weights = Tensor::empty({tokens, k}, DType::kF32);
  Tensor ids = Tensor::empty({tokens, k}, DType::kI32);
  Tensor want_weights = Tensor::empty({tokens, k}, DType::kF32);
  Tensor want_ids = Tensor::empty({tokens, k}, DType::kI32);
  ops::route_top_k(stream, logits, norm, weights, ids);
  ref::route_top_k(logits, norm, want_weights, want_ids);
  EXPECT_TRUE(compare(ids, want_ids, {.exact = true}).passed);
  const Comparison result = compare(weights, want_weights, {.atol = 1e-7, .rtol = 3e-6});
  EXPECT_TRUE(result.passed) << result.to_string();
}

TEST(Moe, RoutesLikeItsTwin) {
  ThreadPool pool(3);
  CpuStream stream(pool);
  Tensor ties = normal_tensor({9, 60}, 3);
  for (int64_t index = 0; index < ties.num_elements(); ++index) {
    ties.data<float>()[index] = std::round(2.0F * ties.data<float>()[index]);
  }
  ties.data<float>()[0] = std::numeric_limits<float>::infinity() * -1.0F;
  ties.data<float>()[61] = 300.0F;
  const Tensor wide = normal_tensor({1000, 129}, 4);
  for_each_isa([&] {
    for (const bool norm : {false, true}) {
      check_route(stream, normal_tensor({5, 8}, 1), 2, norm);
      check_route(stream, normal_tensor({5, 8}, 2), 8, norm);
      check_route(stream, ties, 6, norm);
      check_route(stream, ties.to(DType::kBF16), 1, norm);
      check_route(stream, wide, 8, norm);
    }
  });
}

TEST(Moe, SortsStably) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  std::mt19937 random(7);
  for (const int64_t tokens : {0, 1, 33}) {
    Tensor ids = Tensor::empty({tokens, 3}, DType::kI32);
    for (int64_t index = 0; index < ids.num_elements(); ++index) {
      ids.data<int32_t>()[index] = static_cast<int32_t>(random() % 5) * 2;  // odd ones stay empty
    }
    Tensor indptr = Tensor::empty({11}, DType::kI32);
    Tensor rows = Tensor::empty({tokens * 3}, DType::kI32);
    Tensor slots = Tensor::empty({tokens * 3}, DType::kI32);
    Tensor want_indptr = indptr.copy();
    Tensor want_rows = rows.copy();
    Tensor want_slots = slots.copy();
    ops::sort_by_expert(stream, ids, indptr, rows, slots);
    ref::sort_by_expert(ids, want_indptr, want_rows, want_slots);
    EXPECT_TRUE(compare(indptr, want_indptr, {.exact = true}).passed);
    EXPECT_TRUE(compare(rows, want_rows, {.exact = true}).passed);
    EXPECT_TRUE(compare(slots, want_slots, {.exact = true}).passed);
  }
}

TEST(Moe, CombinesLikeItsTwin) {
  ThreadPool pool(3);
  CpuStream stream(pool);
  const std::array<int32_t, 6> places{5, 0, 2, 2, 1, 4};
  const Tensor slots = Tensor::from(std::span<const int32_t>(places), {6});
  const Tensor weights = normal_tensor({3, 2}, 8);
  for (const int64_t dim : {1, 19, 4096}) {
    for (const DType x_type : {DType::kF32, DType::kBF16}) {
      for (const DType out_type : {DType::kF32, DType::kBF16}) {
        const Tensor x = normal_tensor({6, dim}, 9).to(x_type);
        Tensor want = Tensor::empty({3, dim}, DType::kF32);
        ref::combine_experts(x, slots, weights, want);
        for_each_isa([&] {
          Tensor out = Tensor::empty({3, dim}, out_type);
          ops::combine_experts(stream, x, slots, weights, out);
          const double rtol = out_type == DType::kF32 ? 1e-5 : 4e-3;
          const Comparison result = compare(out, want, {.atol = 1e-6, .rtol = rtol});
          EXPECT_TRUE(result.passed) << result.to_string();
        });
      }
    }
  }
}

TEST(Moe, ReplayEqualsEager) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  Tensor logits = normal_tensor({50, 16}, 10);
  Tensor weights = Tensor::empty({50, 4}, DType::kF32);
  Tensor ids = Tensor::empty({50, 4}, DType::kI32);
  Tensor indptr = Tensor::empty({17}, DType::kI32);
  Tensor rows = Tensor::empty({200}, DType::kI32);
  Tensor slots = Tensor::empty({200}, DType::kI32);
  stream.begin_capture();
  ops::route_top_k(stream, logits, true, weights, ids);
  ops::sort_by_expert(stream, ids, indptr, rows, slots);
  const auto graph = stream.end_capture();
  const Tensor other = normal_tensor({50, 16}, 11);
  std::copy_n(other.data<float>(), 800, logits.data<float>());
  graph->replay();
  Tensor eager_ids = Tensor::empty({50, 4}, DType::kI32);
  Tensor eager_weights = Tensor::empty({50, 4}, DType::kF32);
  ops::route_top_k(stream, logits, true, eager_weights, eager_ids);
  EXPECT_TRUE(compare(ids, eager_ids, {.exact = true}).passed);
  EXPECT_TRUE(compare(weights, eager_weights, {.exact = true}).passed);
  EXPECT_EQ(indptr.data<int32_t>()[16], 200);
}

}  // namespace
}  // namespace mstar

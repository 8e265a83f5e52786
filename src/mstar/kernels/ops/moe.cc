#include "mstar/kernels/ops/moe.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/kernels/cpu/moe_kernels.h"
#include "mstar/kernels/cpu/sampling_kernels.h"
#include "mstar/kernels/ops/choose.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::ops {

namespace {

constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxChoices = 64;

struct RouteParams {
  const SamplingKernels* kernels;
  Rows logits;
  float* weights;
  int32_t* ids;
  int64_t num_tokens;
  int64_t num_experts;
  int64_t k;
  bool norm_topk_prob;
  int num_tasks;
};

float logit_at(const SamplingInput& row, int64_t expert) {
  return row.is_bf16 ? to_float(static_cast<const bfloat16*>(row.data)[expert])
                     : static_cast<const float*>(row.data)[expert];
}

// The k largest, largest first, ties by the smaller id: k is small, so by insertion.
void choose_experts(const SamplingInput& row, int64_t k, float* chosen, int32_t* ids) {
  int64_t size = 0;
  for (int64_t expert = 0; expert < row.n; ++expert) {
    const float logit = logit_at(row, expert);
    if (size == k && !(logit > chosen[k - 1])) {
      continue;
    }
    int64_t rank = size < k ? size++ : k - 1;
    for (; rank > 0 && chosen[rank - 1] < logit; --rank) {
      chosen[rank] = chosen[rank - 1];
      ids[rank] = ids[rank - 1];
    }
    chosen[rank] = logit;
    ids[rank] = static_cast<int32_t>(expert);
  }
}

void route(const RouteParams& p, int task) {
  const int64_t begin = p.num_tokens * task / p.num_tasks;
  const int64_t end = p.num_tokens * (task + 1) / p.num_tasks;
  const bool is_bf16 = p.logits.dtype == DType::kBF16;
  for (int64_t token = begin; token < end; ++token) {
    const SamplingInput row{
        static_cast<const std::byte*>(p.logits.data) + token * p.logits.stride * (is_bf16 ? 2 : 4),
        is_bf16,
        p.num_experts};
    float chosen[kMaxChoices];
    float weights[kMaxChoices];
    float pieces[kMaxExperts / kSamplingPiece];
    choose_experts(row, p.k, chosen, p.ids + token * p.k);
    p.kernels->exponentials({chosen, false, p.k}, chosen[0], 1.0F, weights);
    double total = 0.0;
    if (p.norm_topk_prob) {
      for (int64_t choice = 0; choice < p.k; ++choice) {
        total += static_cast<double>(weights[choice]);
      }
    } else {
      total = p.kernels->exponential_sums(row, chosen[0], 1.0F, pieces);
    }
    for (int64_t choice = 0; choice < p.k; ++choice) {
      p.weights[token * p.k + choice] =
          static_cast<float>(static_cast<double>(weights[choice]) / total);
    }
  }
}

struct SortParams {
  const int32_t* ids;
  int32_t* indptr;
  int32_t* rows;
  int32_t* slots;
  int64_t num_pairs;
  int64_t num_experts;
  int64_t k;
};

// Counting sort; indptr[e] first is where expert e's next row goes, in the end where its first is.
void sort_pairs(const SortParams& p, int /*task*/) {
  std::fill_n(p.indptr, p.num_experts + 1, 0);
  for (int64_t pair = 0; pair < p.num_pairs; ++pair) {
    ++p.indptr[p.ids[pair] + 1];
  }
  for (int64_t expert = 0; expert < p.num_experts; ++expert) {
    p.indptr[expert + 1] += p.indptr[expert];
  }
  for (int64_t pair = 0; pair < p.num_pairs; ++pair) {
    const int32_t row = p.indptr[p.ids[pair]]++;
    p.rows[row] = static_cast<int32_t>(pair / p.k);
    p.slots[pair] = row;
  }
  std::copy_backward(p.indptr, p.indptr + p.num_experts, p.indptr + p.num_experts + 1);
  p.indptr[0] = 0;
}

template <typename T>
T* dense(const Tensor& x, const Shape& shape) {
  MSTAR_CHECK(x.shape() == shape && x.is_contiguous(),
              "found ",
              x.to_string(),
              ", expected contiguous ",
              to_string(shape));
  return x.data<T>();
}

}  // namespace

void route_top_k(Stream& stream,
                 const Tensor& logits,
                 bool norm_topk_prob,
                 Tensor& weights,
                 Tensor& ids) {
  CpuStream& cpu = as_cpu(stream);
  const int64_t tokens = logits.dim(0);
  const int64_t experts = logits.dim(1);
  const int64_t k = ids.dim(1);
  MSTAR_CHECK(k > 0 && k <= std::min(experts, kMaxChoices) && experts <= kMaxExperts,
              "k=",
              k,
              " of ",
              logits.to_string());
  MSTAR_CHECK(logits.dtype() == DType::kF32 || logits.dtype() == DType::kBF16, logits.to_string());
  const int num_tasks = row_tasks(cpu, tokens, experts);
  const RouteParams params{MSTAR_BY_ISA(sampling_kernels),
                           rows_of(logits),
                           dense<float>(weights, {tokens, k}),
                           dense<int32_t>(ids, {tokens, k}),
                           tokens,
                           experts,
                           k,
                           norm_topk_prob,
                           num_tasks};
  cpu.enqueue("route_top_k", num_tasks, params, &route);
}

void sort_by_expert(Stream& stream,
                    const Tensor& ids,
                    Tensor& indptr,
                    Tensor& rows,
                    Tensor& slots) {
  const int64_t tokens = ids.dim(0);
  const int64_t k = ids.dim(1);
  const int64_t experts = indptr.dim(0) - 1;
  MSTAR_CHECK(experts >= 0, indptr.to_string());
  const SortParams params{
      dense<int32_t>(ids, {tokens, k}),
      dense<int32_t>(indptr, {experts + 1}),
      dense<int32_t>(rows, {tokens * k}),
      dense<int32_t>(slots, slots.num_dims() == 2 ? Shape{tokens, k} : Shape{tokens * k}),
      tokens * k,
      experts,
      k};
  as_cpu(stream).enqueue("sort_by_expert", 1, params, &sort_pairs);
}

void combine_experts(Stream& stream,
                     const Tensor& x,
                     const Tensor& slots,
                     const Tensor& weights,
                     Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  const int64_t tokens = out.dim(0);
  const int64_t dim = out.dim(1);
  const int64_t k = weights.dim(1);
  MSTAR_CHECK(x.dim(0) == tokens * k && x.dim(1) == dim, "x ", x.to_string());
  for (const Tensor* tensor : {&x, static_cast<const Tensor*>(&out)}) {
    MSTAR_CHECK(tensor->dtype() == DType::kF32 || tensor->dtype() == DType::kBF16,
                tensor->to_string());
  }
  MSTAR_CHECK(slots.num_elements() == tokens * k && slots.is_contiguous(), slots.to_string());
  if (out.num_elements() == 0) {
    return;
  }
  const int num_tasks = row_tasks(cpu, tokens, dim * k);
  const CombineParams params{rows_of(x),
                             rows_of(out),
                             slots.data<int32_t>(),
                             dense<float>(weights, {tokens, k}),
                             tokens,
                             dim,
                             k,
                             num_tasks};
  cpu.enqueue("combine_experts", num_tasks, params, MSTAR_BY_ISA(combine_task));
}

}  // namespace mstar::ops

#pragma once

#include "mstar/tensor/tensor.h"

// Slow, obvious twins of ops/moe. They allocate; not for use inside a step.
namespace mstar::ref {

void route_top_k(const Tensor& logits, bool norm_topk_prob, Tensor& weights, Tensor& ids);

void sort_by_expert(const Tensor& ids, Tensor& indptr, Tensor& rows, Tensor& slots);

void combine_experts(const Tensor& x, const Tensor& slots, const Tensor& weights, Tensor& out);

}  // namespace mstar::ref

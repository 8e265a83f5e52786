#pragma once

#include "mstar/tensor/stream.h"

namespace mstar::ops {

// Softmax in f32 over all experts, then the top k, renormalised when asked.
//   logits [tokens, experts] f32 or bf16, weights [tokens, k] f32, ids [tokens, k] i32
void route_top_k(Stream& stream,
                 const Tensor& logits,
                 bool norm_topk_prob,
                 Tensor& weights,
                 Tensor& ids);

// Sorts (token, choice) pairs by expert, stable in token order.
//   ids     [tokens, k] i32
//   indptr  [experts + 1] i32: rows of expert e are [indptr[e], indptr[e + 1])
//   rows    [tokens * k] i32: the token of each sorted row
//   slots   [tokens * k] i32: the sorted row of (token, choice)
void sort_by_expert(Stream& stream, const Tensor& ids, Tensor& indptr, Tensor& rows, Tensor& slots);

// out[t] = sum over choices j of weights[t, j] * x[slots[t * k + j]], in the order of j.
//   x [tokens * k, dim], weights [tokens, k] f32, out [tokens, dim]
void combine_experts(Stream& stream,
                     const Tensor& x,
                     const Tensor& slots,
                     const Tensor& weights,
                     Tensor& out);

}  // namespace mstar::ops

#pragma once

#include <cstdint>

#include "mstar/tensor/stream.h"

// Small glue ops of mixture-of-experts and sharded layers.
namespace mstar::ops {

// out[t] = x[t] + sigmoid(gate[t]) * y[t]: a shared expert behind its gate.
//   x, y, out  [tokens, dim] f32 or bf16, dense rows; out may be x
//   gate       [tokens, 1] f32 or bf16 logits
void add_sigmoid_gated(Stream& stream,
                       const Tensor& x,
                       const Tensor& gate,
                       const Tensor& y,
                       Tensor& out);

// out[i] = ids[i] - first: ids as rows of a shard that begins at row `first`.
//   ids [n] i32 or i64, out [n] of the same type
void shift_ids(Stream& stream, const Tensor& ids, int64_t first, Tensor& out);

}  // namespace mstar::ops

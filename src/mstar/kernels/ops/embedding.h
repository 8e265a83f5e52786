#pragma once

#include "mstar/tensor/stream.h"

namespace mstar::ops {

// out[i] = table[ids[i]] * scale
//   table [rows, dim] f32, bf16, f16 or a GGUF block type;  ids [n] i32 or i64;  out [n, dim]
// Ids outside the table give zero rows (a vocabulary shard masks foreign ids this way).
void embedding(Stream& stream, const Tensor& table, const Tensor& ids, float scale, Tensor& out);

// The row moves: a gathered row outside x is zero, a scattered row outside out is dropped.
// out[i] = x[rows[i]] for any plain type;  x [n, dim], rows [m] i32, out [m, dim]
void gather_rows(Stream& stream, const Tensor& x, const Tensor& rows, Tensor& out);

// out[rows[i]] = x[i]; rows must not repeat.
void scatter_rows(Stream& stream, const Tensor& x, const Tensor& rows, Tensor& out);

// out[rows[i]] += weights[i] * x[i], in the order of i for each target row (deterministic).
//   x [m, dim], weights [m] f32, rows [m] i32, out [n, dim] f32 or bf16
void scatter_add_rows(Stream& stream,
                      const Tensor& x,
                      const Tensor& weights,
                      const Tensor& rows,
                      Tensor& out);

}  // namespace mstar::ops

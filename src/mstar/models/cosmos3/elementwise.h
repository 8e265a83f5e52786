// The few passes over memory that only this family needs. All enqueue on the stream; f32 unless
// said otherwise.
#pragma once

#include <initializer_list>
#include <vector>

#include "mstar/kernels/ops/norm.h"
#include "mstar/kernels/ops/rope.h"
#include "mstar/tensor/stream.h"

namespace mstar::cosmos3 {

struct Term {
  float factor;
  Tensor x;
};

// out = sum of factor * x, one to four terms of out's shape, contiguous f32. out may be one of
// them.
void combine(Stream& stream, std::initializer_list<Term> terms, Tensor& out);

// x[i] += row for the rows with mask[i] != 0.  x [n, dim] f32 or bf16, row [dim] f32 (rounded to
// x's type first), mask [n] u8.
void add_row_where(Stream& stream, const Tensor& row, const Tensor& mask, Tensor& x);

// Latent pictures to tokens and back. latents [c, t, h, w]; tokens [t * gh * gw, p * p * c] with
// gh = ceil(h / p); features in the order (row in patch, column in patch, channel). What lies
// outside the picture is zero, and is dropped on the way back. Tokens f32 or bf16.
void patchify(Stream& stream, const Tensor& latents, int64_t patch, Tensor& tokens);
void unpatchify(Stream& stream, const Tensor& tokens, int64_t patch, Tensor& latents);

// RMSNorm over the last dim of x [tokens, heads, head_dim], then the rotation by halves, in place:
// ops::rms_norm and ops::apply_rope (with round_table) one after the other, bit for bit, and in one
// pass where the sizes allow.  cos, sin [tokens, head_dim / 2] f32.
void norm_rope(Stream& stream,
               const Tensor& weight,
               const RmsNormOptions& norm,
               const Tensor& cos,
               const Tensor& sin,
               const RopeConfig& rope,
               Tensor& x);

// x + sin(exp(alpha) x)^2 / (exp(beta) + 1e-9); x, out [n, l, c] f32 or bf16, alpha and beta
// already exponentiated: freq [c], inv_amplitude [c] f32.
void snake(Stream& stream,
           const Tensor& x,
           const Tensor& freq,
           const Tensor& inv_amplitude,
           Tensor& out);

}  // namespace mstar::cosmos3

#pragma once

#include "mstar/tensor/stream.h"

namespace mstar {

// Where RMSNorm rounds; they differ only for bf16 outputs.
enum class RmsNormRounding : uint8_t {
  kOnce,          // f32 inside, one rounding at the end (FlashInfer, Nemotron)
  kBeforeWeight,  // the normalized value is rounded to the output type, then multiplied (HF Llama,
                  // Qwen, diffusers): two roundings
};

struct RmsNormOptions {
  float eps = 1e-6F;
  bool gemma_mode = false;  // multiply by (1 + weight)
  RmsNormRounding rounding = RmsNormRounding::kOnce;
};

namespace ops {

// All: x and out f32 or bf16 with dense rows over the last dim, any leading dims; out may be x;
// weights f32 or bf16 [dim]; statistics in f32.

// out = x * rsqrt(mean(x^2) + eps) * weight. An undefined weight is all ones.
void rms_norm(Stream& stream,
              const Tensor& x,
              const Tensor& weight,
              const RmsNormOptions& options,
              Tensor& out);

// sum = x + residual (stored in `residual`, rounded to its type first), then out = rms_norm(sum).
void add_rms_norm(Stream& stream,
                  const Tensor& x,
                  Tensor& residual,
                  const Tensor& weight,
                  const RmsNormOptions& options,
                  Tensor& out);

// The adaRMS norm: out = rms_norm(x) * (1 + scale) + shift, without a weight.
//   x            [cond_rows * k, dim]; condition row i serves k consecutive rows
//   scale, shift [cond_rows, dim], dense rows (views of one [cond_rows, 3 dim] are fine)
void ada_rms_norm(Stream& stream,
                  const Tensor& x,
                  const Tensor& scale,
                  const Tensor& shift,
                  float eps,
                  Tensor& out);

// (x - mean) * rsqrt(var + eps) * weight + bias; weight and bias may be undefined.
void layer_norm(Stream& stream,
                const Tensor& x,
                const Tensor& weight,
                const Tensor& bias,
                float eps,
                Tensor& out);

// Wan VAE's norm over channels (last dim, channels last): x / max(||x||, 1e-12) * sqrt(dim) *
// gamma, then silu when asked; gamma [dim].
void l2_norm_scaled(Stream& stream, const Tensor& x, const Tensor& gamma, bool silu, Tensor& out);

}  // namespace ops
}  // namespace mstar

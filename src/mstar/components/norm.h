#pragma once

#include <cstdint>
#include <string>

#include "mstar/components/linear.h"
#include "mstar/kernels/ops/norm.h"

namespace mstar {

// A normalization over the last dim: what decoder layers take.
class Norm : public Module {
 public:
  // x [..., hidden_size] f32 or bf16 -> the same shape and type; statistics in f32.
  virtual Tensor forward(Stream& stream, const Tensor& x) const = 0;
};

// x * rsqrt(mean(x^2) + eps) * weight, or * (1 + weight) in gemma mode, where checkpoints store
// weights around zero. Checkpoint name: weight [hidden_size]; ones (zeros) when none is loaded.
class RMSNorm : public Norm {
 public:
  explicit RMSNorm(int64_t hidden_size,
                   float eps = 1e-6F,
                   bool gemma_mode = false,
                   RmsNormRounding rounding = RmsNormRounding::kOnce);

  Tensor forward(Stream& stream, const Tensor& x) const override;

  // In place, dense rows.
  void forward_inplace(Stream& stream, Tensor& x) const;

  // Sums x into `residual` [..., hidden_size], then normalizes the sum.
  Tensor forward_add(Stream& stream, const Tensor& x, Tensor& residual) const;

  // "64, eps=1e-06, gemma_mode=true": for printed models.
  std::string extra_repr() const;

  const Tensor& weight() const { return weight_; }

  const RmsNormOptions& options() const { return options_; }

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  int64_t hidden_size_;
  RmsNormOptions options_;
  Parameter* parameter_;
  Tensor weight_;  // [hidden_size]
};

// (x - mean) * rsqrt(var + eps) * weight + bias. Checkpoint names: weight, bias [hidden_size].
class LayerNorm : public Norm {
 public:
  explicit LayerNorm(int64_t hidden_size,
                     float eps = 1e-5F,
                     bool elementwise_affine = true,
                     bool bias = true);

  Tensor forward(Stream& stream, const Tensor& x) const override;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  float eps_;
  Parameter* weight_parameter_ = nullptr;
  Parameter* bias_parameter_ = nullptr;
  Tensor weight_;  // [hidden_size] or undefined
  Tensor bias_;    // likewise
};

// RMSNorm whose scale and shift come from a condition: dense(cond) is scale, shift and gate, in
// that order; the result is rmsnorm(x) * (1 + scale) + shift, and the gate is for the residual.
// Checkpoint names: dense.weight [3 hidden_size, cond_dim], dense.bias; zero when not loaded, so
// that the norm starts as the plain one with gate 0.
class AdaRMSNorm : public Module {
 public:
  AdaRMSNorm(int64_t hidden_size, int64_t cond_dim, float eps = 1e-6F);

  struct Output {
    Tensor normed;  // [rows, hidden_size]
    Tensor gate;    // [cond_rows, hidden_size], dense rows
  };

  // x [rows, hidden_size], cond [cond_rows, cond_dim]: condition row i serves the i-th run of
  // rows / cond_rows consecutive rows.
  Output forward(Stream& stream, const Tensor& x, const Tensor& cond) const;

 private:
  // dense, which may stay unloaded.
  class ZeroInitLinear : public Linear {
   public:
    using Linear::Linear;

   protected:
    void pack(const FinalizeOptions& options) override;
  };

  int64_t hidden_size_;
  float eps_;
  ZeroInitLinear dense_;
};

}  // namespace mstar

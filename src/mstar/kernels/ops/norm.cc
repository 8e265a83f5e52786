#include "mstar/kernels/ops/norm.h"

#include "mstar/kernels/cpu/norm.h"
#include "mstar/kernels/ops/choose.h"
#include "mstar/kernels/ref/norm.h"

namespace mstar::ops {

namespace {

NormParams params_of(const CpuStream& stream, const Tensor& x, const Tensor& out) {
  MSTAR_CHECK(x.shape() == out.shape(), x.to_string(), " -> ", out.to_string());
  NormParams p;
  p.x = rows_of(x);
  p.out = rows_of(out);
  p.dim = x.dim(-1);
  p.rows = p.dim == 0 ? 0 : x.num_elements() / p.dim;
  p.num_tasks = row_tasks(stream, p.rows, p.dim);
  return p;
}

void run(CpuStream& stream,
         const char* name,
         const NormParams& p,
         void (*kernel)(const NormParams&, int)) {
  if (p.rows > 0) {
    stream.enqueue(name, p.num_tasks, p, kernel);
  }
}

}  // namespace

void rms_norm(Stream& stream,
              const Tensor& x,
              const Tensor& weight,
              const RmsNormOptions& options,
              Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  NormParams p = params_of(cpu, x, out);
  p.weight = vector_of(weight, p.dim);
  p.eps = options.eps;
  p.gemma_mode = options.gemma_mode;
  p.round_before_weight = options.rounding == RmsNormRounding::kBeforeWeight;
  run(cpu, "rms_norm", p, MSTAR_KERNEL(rms_norm));
}

void add_rms_norm(Stream& stream,
                  const Tensor& x,
                  Tensor& residual,
                  const Tensor& weight,
                  const RmsNormOptions& options,
                  Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  NormParams p = params_of(cpu, x, out);
  MSTAR_CHECK(residual.shape() == x.shape(), residual.to_string(), " beside ", x.to_string());
  p.residual = rows_of(residual);
  p.weight = vector_of(weight, p.dim);
  p.eps = options.eps;
  p.gemma_mode = options.gemma_mode;
  p.round_before_weight = options.rounding == RmsNormRounding::kBeforeWeight;
  run(cpu, "add_rms_norm", p, MSTAR_KERNEL(add_rms_norm));
}

void ada_rms_norm(Stream& stream,
                  const Tensor& x,
                  const Tensor& scale,
                  const Tensor& shift,
                  float eps,
                  Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  NormParams p = params_of(cpu, x, out);
  p.eps = eps;
  if (p.rows == 0) {
    return;
  }
  MSTAR_CHECK(scale.num_dims() == 2 && scale.shape() == shift.shape() && scale.dim(1) == p.dim,
              "scale ",
              scale.to_string(),
              ", shift ",
              shift.to_string(),
              " for dim ",
              p.dim);
  MSTAR_CHECK(scale.dim(0) > 0 && p.rows % scale.dim(0) == 0,
              p.rows,
              " rows under ",
              scale.dim(0),
              " conditions");
  p.scale = rows_of(scale);
  p.shift = rows_of(shift);
  p.rows_per_cond = p.rows / scale.dim(0);
  run(cpu, "ada_rms_norm", p, MSTAR_KERNEL(ada_rms_norm));
}

void layer_norm(Stream& stream,
                const Tensor& x,
                const Tensor& weight,
                const Tensor& bias,
                float eps,
                Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  NormParams p = params_of(cpu, x, out);
  p.weight = vector_of(weight, p.dim);
  p.bias = vector_of(bias, p.dim);
  p.eps = eps;
  run(cpu, "layer_norm", p, MSTAR_KERNEL(layer_norm));
}

void l2_norm_scaled(Stream& stream, const Tensor& x, const Tensor& gamma, bool silu, Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  NormParams p = params_of(cpu, x, out);
  MSTAR_CHECK(gamma.defined());
  p.weight = vector_of(gamma, p.dim);
  p.silu = silu;
  run(cpu, "l2_norm_scaled", p, MSTAR_KERNEL(l2_norm_scaled));
}

}  // namespace mstar::ops

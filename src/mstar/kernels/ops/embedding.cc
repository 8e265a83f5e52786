#include "mstar/kernels/ops/embedding.h"

#include "mstar/kernels/cpu/embedding.h"
#include "mstar/kernels/ops/choose.h"
#include "mstar/kernels/ref/embedding.h"

namespace mstar::ops {

namespace {

void check_ids(const Tensor& ids) {
  MSTAR_CHECK(ids.num_dims() == 1 && ids.is_contiguous() &&
                  (ids.dtype() == DType::kI32 || ids.dtype() == DType::kI64),
              "ids ",
              ids.to_string());
}

RowMoveParams params_of(const Tensor& x, const Tensor& ids, const Tensor& out) {
  MSTAR_CHECK(x.num_dims() == 2 && out.num_dims() == 2 && x.dim(1) == out.dim(1),
              x.to_string(),
              " -> ",
              out.to_string());
  check_ids(ids);
  RowMoveParams p;
  p.x = rows_of(x);
  p.out = rows_of(out);
  p.ids = ids.bytes();
  p.ids_dtype = ids.dtype();
  p.num_ids = ids.dim(0);
  p.x_rows = x.dim(0);
  p.out_rows = out.dim(0);
  p.dim = x.dim(1);
  p.element_bytes = is_quantized(x.dtype()) ? 0 : element_bytes(x.dtype());
  return p;
}

void run(Stream& stream,
         const char* name,
         RowMoveParams& p,
         void (*kernel)(const RowMoveParams&, int)) {
  CpuStream& cpu = as_cpu(stream);
  if (p.num_ids > 0 && p.dim > 0) {
    p.num_tasks = row_tasks(cpu, p.num_ids, p.dim);
    cpu.enqueue(name, p.num_tasks, p, kernel);
  }
}

}  // namespace

void embedding(Stream& stream, const Tensor& table, const Tensor& ids, float scale, Tensor& out) {
  RowMoveParams p = params_of(table, ids, out);
  const bool quantized = is_quantized(table.dtype());
  MSTAR_CHECK(quantized || is_floating(table.dtype()), "table ", table.to_string());
  MSTAR_CHECK(out.dim(0) == ids.dim(0), ids.dim(0), " ids, out ", out.to_string());
  p.scale = scale;
  run(stream, "embedding", p, quantized ? &ref::quantized_embedding : MSTAR_KERNEL(embedding));
}

void gather_rows(Stream& stream, const Tensor& x, const Tensor& rows, Tensor& out) {
  RowMoveParams p = params_of(x, rows, out);
  MSTAR_CHECK(x.dtype() == out.dtype() && out.dim(0) == rows.dim(0),
              x.to_string(),
              " -> ",
              out.to_string());
  run(stream, "gather_rows", p, MSTAR_KERNEL(gather_rows));
}

void scatter_rows(Stream& stream, const Tensor& x, const Tensor& rows, Tensor& out) {
  RowMoveParams p = params_of(x, rows, out);
  MSTAR_CHECK(
      x.dtype() == out.dtype() && x.dim(0) == rows.dim(0), x.to_string(), " -> ", out.to_string());
  run(stream, "scatter_rows", p, MSTAR_KERNEL(scatter_rows));
}

void scatter_add_rows(Stream& stream,
                      const Tensor& x,
                      const Tensor& weights,
                      const Tensor& rows,
                      Tensor& out) {
  RowMoveParams p = params_of(x, rows, out);
  MSTAR_CHECK(x.dim(0) == rows.dim(0) && weights.num_dims() == 1 && weights.dim(0) == rows.dim(0) &&
                  weights.is_contiguous(),
              x.to_string(),
              " with weights ",
              weights.to_string());
  p.weights = weights.data<float>();
  run(stream, "scatter_add_rows", p, MSTAR_KERNEL(scatter_add_rows));
}

}  // namespace mstar::ops

#include "mstar/kernels/ops/gating.h"

#include <cmath>

#include "mstar/kernels/ops/choose.h"
#include "mstar/tensor/dispatch.h"

namespace mstar::ops {

namespace {

struct GateParams {
  Rows x;
  Rows gate;
  Rows y;
  Rows out;
  int64_t num_rows;
  int64_t dim;
  int num_tasks;
};

template <typename T>
const T* row_of(const Rows& rows, int64_t row) {
  return static_cast<const T*>(rows.data) + row * rows.stride;
}

float gate_value(const Rows& gate, int64_t row) {
  const float logit = gate.dtype == DType::kF32 ? *row_of<float>(gate, row)
                                                : to_float(*row_of<bfloat16>(gate, row));
  return 1.0F / (1.0F + std::exp(-logit));
}

template <typename T>
void gate_rows(const GateParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float gate = gate_value(p.gate, row);
    const T* x = row_of<T>(p.x, row);
    const T* y = row_of<T>(p.y, row);
    T* out = static_cast<T*>(p.out.data) + row * p.out.stride;
    for (int64_t column = 0; column < p.dim; ++column) {
      out[column] = from_float<T>(to_float(x[column]) + gate * to_float(y[column]));
    }
  }
}

struct ShiftParams {
  const void* ids;
  void* out;
  int64_t count;
  int64_t first;
};

template <typename T>
void shift(const ShiftParams& p, int) {
  for (int64_t index = 0; index < p.count; ++index) {
    static_cast<T*>(p.out)[index] =
        static_cast<T>(static_cast<const T*>(p.ids)[index] - static_cast<T>(p.first));
  }
}

}  // namespace

void add_sigmoid_gated(Stream& stream,
                       const Tensor& x,
                       const Tensor& gate,
                       const Tensor& y,
                       Tensor& out) {
  MSTAR_CHECK(x.num_dims() == 2 && x.shape() == y.shape() && x.shape() == out.shape() &&
                  x.dtype() == y.dtype() && x.dtype() == out.dtype() &&
                  gate.shape() == (Shape{x.dim(0), 1}),
              x.to_string(),
              " + gate ",
              gate.to_string(),
              " * ",
              y.to_string());
  CpuStream& cpu = as_cpu(stream);
  GateParams p{rows_of(x), rows_of(gate), rows_of(y), rows_of(out), x.dim(0), x.dim(1), 1};
  if (p.num_rows == 0) {
    return;
  }
  p.num_tasks = row_tasks(cpu, p.num_rows, p.dim);
  cpu.enqueue("add_sigmoid_gated", p.num_tasks, p, [](const GateParams& params, int task) {
    const int64_t begin = params.num_rows * task / params.num_tasks;
    const int64_t end = params.num_rows * (task + 1) / params.num_tasks;
    dispatch_activation(params.out.dtype, [&]<typename T>() { gate_rows<T>(params, begin, end); });
  });
}

void shift_ids(Stream& stream, const Tensor& ids, int64_t first, Tensor& out) {
  MSTAR_CHECK(ids.is_contiguous() && out.is_contiguous() && ids.dtype() == out.dtype() &&
                  ids.num_elements() == out.num_elements() &&
                  (ids.dtype() == DType::kI32 || ids.dtype() == DType::kI64),
              ids.to_string(),
              " to ",
              out.to_string());
  const ShiftParams p{ids.bytes(), out.bytes(), ids.num_elements(), first};
  void (*kernel)(const ShiftParams&, int) =
      ids.dtype() == DType::kI32 ? &shift<int32_t> : &shift<int64_t>;
  as_cpu(stream).enqueue("shift_ids", 1, p, kernel);
}

}  // namespace mstar::ops

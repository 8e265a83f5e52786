#pragma once

#include <algorithm>
#include <cstdint>

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/cpu/rows.h"
#include "mstar/kernels/ref/reference.h"
#include "mstar/tensor/cpu_stream.h"

// The kernel of that name to enqueue: the slow twin when asked for, else the active set's.
#define MSTAR_KERNEL(name) (::mstar::reference_kernels() ? &::mstar::ref::name : MSTAR_BY_ISA(name))

// What the ops' .cc files share: from tensors to plain parameters, and how many tasks.
namespace mstar::ops {

// Dense rows of x, all leading dims as one (check).
inline Rows rows_of(const Tensor& x) {
  if (!x.defined()) {
    return {};
  }
  const Tensor rows = x.as_rows();
  MSTAR_CHECK(rows.has_dense_rows(), "rows are not dense: ", x.to_string());
  return {x.bytes(), rows.stride(0), x.dtype()};
}

// One row, shared by all rows of an op: weights and biases [dim].
inline Rows vector_of(const Tensor& x, int64_t dim) {
  if (!x.defined()) {
    return {};
  }
  MSTAR_CHECK(x.num_dims() == 1 && x.dim(0) == dim && x.has_dense_rows(),
              "found ",
              x.to_string(),
              ", expected a dense vector of ",
              dim);
  return rows_of(x);
}

// Tasks for an op over `rows` independent rows of `row_elements` each. Small ops stay on the
// calling thread: handing tasks out costs more than a few thousand elements.
inline int row_tasks(const CpuStream& stream, int64_t rows, int64_t row_elements) {
  constexpr int64_t kElementsPerTask = 16 << 10;
  const int64_t by_size = rows * row_elements / kElementsPerTask;
  const int64_t most = stream.num_threads() == 1 ? 1 : 4 * stream.num_threads();
  return static_cast<int>(std::clamp<int64_t>(std::min(by_size, rows), 1, most));
}

}  // namespace mstar::ops

#pragma once

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/cpu/rows.h"

namespace mstar {

// Row moves. Meanings: ops/embedding.h.
struct RowMoveParams {
  Rows x;  // table, or source
  Rows out;
  const void* ids = nullptr;  // i32 or i64
  DType ids_dtype = DType::kI32;
  const float* weights = nullptr;  // scatter_add_rows
  int64_t num_ids = 0;
  int64_t x_rows = 0;
  int64_t out_rows = 0;
  int64_t dim = 0;
  int64_t element_bytes = 0;  // of x, where rows move as they are
  float scale = 1.0F;         // embedding
  int num_tasks = 1;
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(void embedding(const RowMoveParams& p, int task);
                      void gather_rows(const RowMoveParams& p, int task);
                      void scatter_rows(const RowMoveParams& p, int task);
                      void scatter_add_rows(const RowMoveParams& p, int task);)

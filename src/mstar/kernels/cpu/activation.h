#pragma once

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/cpu/rows.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar {

// Elementwise kernels over [rows, dim]. One row: the tasks share its elements; several: the rows.
// Meanings: ops/activation.h.
struct ElementwiseParams {
  Rows a;  // x, gate or the first operand
  Rows b;  // up, or the second operand
  Rows c;  // add_gated: the gate, one row for rows_per_gate rows
  Rows out;
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t rows_per_gate = 1;
  float scale = 1.0F;
  float shift = 0.0F;
  Activation activation = Activation::kNone;
  int num_tasks = 1;
};

// Strided copy with conversion. Sizes and strides outermost first, in elements; `dims` >= 1.
struct CopyParams {
  static constexpr int kMaxCopyDims = 8;

  const void* x = nullptr;  // null: every element becomes `value`
  void* out = nullptr;
  float value = 0.0F;
  uint64_t value_bits = 0;  // as out_dtype stores it
  DType x_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  int64_t element_bytes = 0;  // of x
  int dims = 1;
  int64_t size[kMaxCopyDims] = {};
  int64_t x_stride[kMaxCopyDims] = {};
  int64_t out_stride[kMaxCopyDims] = {};
  int num_tasks = 1;
};

struct CheckFiniteParams {
  Rows x;
  int64_t rows = 0;
  int64_t dim = 0;
  uint8_t* flag = nullptr;
  int num_tasks = 1;
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(void activate(const ElementwiseParams& p, int task);
                      void gated_activation(const ElementwiseParams& p, int task);
                      void add(const ElementwiseParams& p, int task);
                      void mul(const ElementwiseParams& p, int task);
                      void affine(const ElementwiseParams& p, int task);
                      void add_gated(const ElementwiseParams& p, int task);
                      void copy(const CopyParams& p, int task);
                      void fill(const CopyParams& p, int task);
                      void check_finite(const CheckFiniteParams& p, int task);)

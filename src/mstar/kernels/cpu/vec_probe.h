#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"
#include "mstar/tensor/float16.h"

// Test-only windows on vec.h, one per instruction set.
namespace mstar {

enum class VecFunction : uint8_t {
  kExp,
  kExpNotPositive,
  kExpForSoftmax,
  kTanh,
  kErf,
  kErfc,
  kRound,
  kFloor
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(int vec_lanes();
                      // y[i] = f(x[i]) over n elements, the rest through load_n and store_n.
                      void vec_map(VecFunction f, const float* x, float* y, int64_t n);
                      void vec_to_bf16(const float* x, bfloat16* y, int64_t n);
                      void vec_to_f16(const float* x, float16* y, int64_t n);
                      void vec_from_bf16(const bfloat16* x, float* y, int64_t n);
                      void vec_from_f16(const float16* x, float* y, int64_t n);
                      // x [vec_lanes(), vec_lanes()]
                      void vec_transpose(const float* x, float* y);
                      // y[i] = sum of row i, twice: by reduce_add and by reduce_add_each
                      void vec_row_sums(const float* x, float* one_by_one, float* together);)

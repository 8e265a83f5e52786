#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/cpu/rows.h"

// Gathering experts' outputs; compiled once per instruction set.
namespace mstar {

struct CombineParams {
  Rows x;                          // [tokens * k, dim]
  Rows out;                        // [tokens, dim]
  const int32_t* slots = nullptr;  // [tokens, k]
  const float* weights = nullptr;  // [tokens, k]
  int64_t num_tokens = 0;
  int64_t dim = 0;
  int64_t k = 0;
  int num_tasks = 1;
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(void combine_task(const CombineParams& params, int task);)

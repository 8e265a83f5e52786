#pragma once

#include "bench/bench.h"

// The kernel families that `mstar_bench kernels` times, in the order it prints them.
namespace mstar::bench {

void add_matmul_cases(Cases& cases);
void add_conv_cases(Cases& cases);
void add_sampling_cases(Cases& cases);
void add_attention_cases(Cases& cases);
void add_row_cases(Cases& cases);

inline Cases all_kernel_cases() {
  Cases cases;
  add_matmul_cases(cases);
  add_conv_cases(cases);
  add_sampling_cases(cases);
  add_attention_cases(cases);
  add_row_cases(cases);
  return cases;
}

}  // namespace mstar::bench

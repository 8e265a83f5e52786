#pragma once

#include "bench/bench.h"

// Parts of models that `mstar_bench models` times, in the order it prints them.
namespace mstar::bench {

void add_cosmos3_cases(Cases& cases);

inline Cases all_model_cases() {
  Cases cases;
  add_cosmos3_cases(cases);
  return cases;
}

}  // namespace mstar::bench

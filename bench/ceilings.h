#pragma once

#include "mstar/base/thread_pool.h"

#include "bench/bench.h"

namespace mstar::bench {

// What this machine can do at most, on the threads of a pool, with the active instruction set.
struct Ceilings {
  double bandwidth = 0.0;   // bytes/s read from memory, huge pages
  double f32_flops = 0.0;   // multiply-adds counted as two
  double bf16_flops = 0.0;  // equal to f32 where there is no bf16 dot product
  double int8_ops = 0.0;
};

// Takes about a tenth of a second.
Ceilings measure_ceilings(ThreadPool& pool);

// One of them and the bandwidth, in a few milliseconds each: for measuring around every round,
// because a shared machine changes its speed from one second to the next. 0 for what is not asked
// for.
Ceilings glance_at_ceilings(ThreadPool& pool, Peak peak);

}  // namespace mstar::bench

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mstar/tensor/cpu_stream.h"

namespace mstar::bench {

// Which of the machine's ceilings a kernel is held against.
enum class Peak : uint8_t { kF32, kBF16, kInt8 };

// One kernel at one size. To add a family: write bench/kernels/FAMILY.cc with a function that
// appends cases, and name it in bench/kernels/families.h.
struct Case {
  std::string name;    // "linear/bf16/m1/n4096/k4096"
  double flops = 0.0;  // of one run; 0 when only bytes count
  double bytes = 0.0;  // that one run must read and write in memory; 0 when they fit a cache
  Peak peak = Peak::kF32;

  // What to time. `ours` runs the op once on the stream; let inputs rotate over more than the
  // caches hold when a model's would. `peer` is oneDNN's plain call, or empty. Both keep alive
  // what they need.
  struct Runs {
    std::function<void()> ours;
    std::function<void()> peer = {};
  };

  std::function<Runs(CpuStream& stream)> prepare;
};

using Cases = std::vector<Case>;

// Values that no kernel finds special: uniform around zero, fixed seed.
Tensor random_tensor(const Shape& shape, DType dtype, uint32_t seed, float spread = 1.0F);

}  // namespace mstar::bench

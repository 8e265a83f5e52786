#pragma once

#include <cstdint>

#include "mstar/tensor/dtype.h"

namespace mstar {

// A matrix as the row kernels see it: dense rows, `stride` elements from one to the next. Plain
// data, so that a captured op can keep it; the number of rows and their length stand beside it.
struct Rows {
  void* data = nullptr;  // null: absent
  int64_t stride = 0;
  DType dtype = DType::kF32;
};

}  // namespace mstar

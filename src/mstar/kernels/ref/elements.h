#pragma once

#include <vector>

#include "mstar/tensor/dispatch.h"
#include "mstar/tensor/tensor.h"

namespace mstar::ref {

// Writes row-major values into a plain tensor of any strides, rounding each once.
inline void assign(Tensor& out, const std::vector<double>& values) {
  const int num_dims = out.num_dims();
  std::vector<int64_t> index(static_cast<size_t>(num_dims), 0);
  dispatch(out.dtype(), [&]<typename T>() {
    for (const double value : values) {
      int64_t offset = 0;
      for (int dim = 0; dim < num_dims; ++dim) {
        offset += index[static_cast<size_t>(dim)] * out.stride(dim);
      }
      if constexpr (std::is_arithmetic_v<T>) {
        out.data<T>()[offset] = static_cast<T>(value);
      } else {
        out.data<T>()[offset] = from_float<T>(static_cast<float>(value));
      }
      for (int dim = num_dims - 1; dim >= 0; --dim) {
        if (++index[static_cast<size_t>(dim)] < out.dim(dim)) {
          break;
        }
        index[static_cast<size_t>(dim)] = 0;
      }
    }
  });
}

}  // namespace mstar::ref

#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/rows.h"
#include "mstar/tensor/dispatch.h"

// Element access of the slow twins: any plain type, one element at a time.
namespace mstar::ref {

inline double load(const void* data, DType dtype, int64_t index) {
  return dispatch(dtype, [&]<typename T>() -> double {
    const T value = static_cast<const T*>(data)[index];
    if constexpr (requires { value.bits; }) {
      return static_cast<double>(to_float(value));
    } else {
      return static_cast<double>(value);
    }
  });
}

inline float load_float(const void* data, DType dtype, int64_t index) {
  return static_cast<float>(load(data, dtype, index));
}

// Rounds once, from double to f32 and on to the stored type.
inline void store(void* data, DType dtype, int64_t index, double value) {
  dispatch(dtype, [&]<typename T>() {
    T& element = static_cast<T*>(data)[index];
    if constexpr (requires { element.bits; }) {
      element = from_float<T>(static_cast<float>(value));
    } else {
      element = static_cast<T>(value);
    }
  });
}

inline double load(const Rows& rows, int64_t row, int64_t column) {
  return load(rows.data, rows.dtype, row * rows.stride + column);
}

inline void store(const Rows& rows, int64_t row, int64_t column, double value) {
  store(rows.data, rows.dtype, row * rows.stride + column, value);
}

// What `value` becomes when stored as `dtype` and read back.
inline double rounded(double value, DType dtype) {
  if (dtype == DType::kBF16) {
    return static_cast<double>(to_float(to_bfloat16(static_cast<float>(value))));
  }
  return static_cast<double>(static_cast<float>(value));
}

struct Range {
  int64_t begin;
  int64_t end;
};

// The part of [0, size) that task `task` of `num_tasks` does.
inline Range share(int64_t size, int task, int num_tasks) {
  return {size * task / num_tasks, size * (task + 1) / num_tasks};
}

}  // namespace mstar::ref

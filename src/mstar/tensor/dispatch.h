#pragma once

#include <cstdint>

#include "mstar/base/check.h"
#include "mstar/tensor/dtype.h"
#include "mstar/tensor/float16.h"

namespace mstar {

// Calls function.template operator()<T>() with the C++ type of a plain dtype:
//   dispatch(x.dtype(), [&]<typename T>() { fill(x.data<T>(), n); });
// Quantized types have no element type: a check.
template <typename Function>
decltype(auto) dispatch(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF32: return function.template operator()<float>();
    case DType::kBF16: return function.template operator()<bfloat16>();
    case DType::kF16: return function.template operator()<float16>();
    case DType::kI8: return function.template operator()<int8_t>();
    case DType::kU8: return function.template operator()<uint8_t>();
    case DType::kI16: return function.template operator()<int16_t>();
    case DType::kI32: return function.template operator()<int32_t>();
    case DType::kI64: return function.template operator()<int64_t>();
    case DType::kBool: return function.template operator()<bool>();
    default: break;
  }
  MSTAR_CHECK(false, "no element type for dtype ", to_string(dtype));
  __builtin_unreachable();
}

// Only f32 and bf16, what activations are made of.
template <typename Function>
decltype(auto) dispatch_activation(DType dtype, Function&& function) {
  if (dtype == DType::kF32) {
    return function.template operator()<float>();
  }
  MSTAR_CHECK(dtype == DType::kBF16, "activations are f32 or bf16, not ", to_string(dtype));
  return function.template operator()<bfloat16>();
}

}  // namespace mstar

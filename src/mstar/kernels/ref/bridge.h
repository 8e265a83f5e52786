#pragma once

#include <array>

#include "mstar/base/check.h"
#include "mstar/tensor/tensor.h"

namespace mstar::ref {

// A contiguous tensor as plain data, so that a slow twin can stand in for a kernel on a stream.
struct PlainTensor {
  std::byte* data = nullptr;
  std::array<int64_t, kMaxDims> shape{};
  int num_dims = 0;
  DType dtype = DType::kF32;

  PlainTensor() = default;

  explicit PlainTensor(const Tensor& tensor)
      : data(tensor.bytes()), num_dims(tensor.num_dims()), dtype(tensor.dtype()) {
    MSTAR_CHECK(!tensor.defined() || tensor.is_contiguous(), tensor.to_string());
    for (int dim = 0; dim < num_dims; ++dim) {
      shape[static_cast<size_t>(dim)] = tensor.dim(dim);
    }
  }

  Tensor tensor() const {
    if (num_dims == 0) {
      return {};
    }
    return Tensor::borrow(
        data, Shape(std::span(shape.data(), static_cast<size_t>(num_dims))), dtype);
  }
};

}  // namespace mstar::ref

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mstar/tensor/allocator.h"
#include "mstar/tensor/device.h"
#include "mstar/tensor/dtype.h"
#include "mstar/tensor/float16.h"
#include "mstar/tensor/shape.h"

namespace mstar {

// A handle on an n-dimensional array: shared bytes, or a view of bytes that somebody else keeps.
// Copying the handle copies no data; copy() does. No arithmetic and no laziness: ops live in
// kernels/ops. A default Tensor is undefined (absent).
//
// Strides are in elements. Quantized tensors are contiguous and are cut only along dimensions
// whose rows are whole blocks. Thread-compatible.
class Tensor {
 public:
  Tensor() = default;

  // New, uninitialized, contiguous.
  static Tensor empty(const Shape& shape, DType dtype, Allocator& allocator = system_allocator());
  static Tensor zeros(const Shape& shape, DType dtype, Allocator& allocator = system_allocator());

  // Values in row-major order, for tests and small tables. `values` must fill the shape.
  static Tensor from(std::span<const float> values, const Shape& shape);
  static Tensor from(std::span<const int32_t> values, const Shape& shape);
  static Tensor from(std::span<const int64_t> values, const Shape& shape);

  // Looks at bytes that must outlive every handle on them.
  static Tensor borrow(void* data, const Shape& shape, DType dtype, Device device = {});

  // Looks at bytes inside `storage` and keeps it alive.
  static Tensor wrap(StoragePtr storage,
                     std::byte* data,
                     const Shape& shape,
                     DType dtype,
                     Device device = {});

  bool defined() const { return data_ != nullptr || num_dims() > 0 || storage_; }

  explicit operator bool() const { return defined(); }

  DType dtype() const { return dtype_; }

  Device device() const { return device_; }

  const Shape& shape() const { return shape_; }

  const Shape& strides() const { return strides_; }

  int num_dims() const { return shape_.size(); }

  int64_t dim(int index) const { return shape_[index]; }

  int64_t stride(int index) const { return strides_[index]; }

  int64_t num_elements() const { return shape_.num_elements(); }

  // Bytes of the elements; for a contiguous tensor, of its memory.
  int64_t size_bytes() const;

  bool is_contiguous() const;

  // Rows of the innermost dimension are dense (stride 1): what most kernels ask for.
  bool has_dense_rows() const { return num_dims() == 0 || stride(-1) == 1 || dim(-1) <= 1; }

  std::byte* bytes() const { return data_; }

  // The first element as T, which must be the dtype's C++ type (check).
  template <typename T>
  T* data() const {
    check_type(dtype_of<T>());
    return reinterpret_cast<T*>(data_);
  }

  const StoragePtr& storage() const { return storage_; }

  // Views: they share the bytes. Sizes and ranges are the caller's to keep right (checks).
  Tensor view(const Shape& shape) const;  // same elements, contiguous only; one dim may be -1
  Tensor slice(int dim, int64_t begin, int64_t end) const;  // [begin, end) along dim
  Tensor select(int dim, int64_t index) const;              // one index, the dim goes
  Tensor transpose(int dim0, int dim1) const;
  Tensor permute(std::span<const int> order) const;
  Tensor unsqueeze(int dim) const;
  Tensor squeeze(int dim) const;

  // [rows, dim(-1)]: all leading dims as one. Contiguous, or dense rows at one common distance.
  Tensor as_rows() const;

  // New contiguous tensor with the same elements. Host memory only; inside a step use the
  // stream's copy.
  Tensor copy(Allocator& allocator = system_allocator()) const;
  Tensor to(DType dtype, Allocator& allocator = system_allocator()) const;  // plain types

  // All elements in row-major order as f32 (plain types): for tests and messages.
  std::vector<float> to_floats() const;
  std::vector<int64_t> to_ints() const;  // integer and bool types

  // "bf16[2, 3]"; with values when small.
  std::string to_string() const;

 private:
  template <typename T>
  static constexpr DType dtype_of();

  void check_type(DType wanted) const;

  StoragePtr storage_;
  std::byte* data_ = nullptr;
  Shape shape_;
  Shape strides_;  // in elements; for quantized tensors those of the contiguous shape
  DType dtype_ = DType::kF32;
  Device device_;
};

// Contiguous strides of `shape`, in elements.
Shape contiguous_strides(const Shape& shape);

template <typename T>
constexpr DType Tensor::dtype_of() {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, float>) {
    return DType::kF32;
  } else if constexpr (std::is_same_v<U, bfloat16>) {
    return DType::kBF16;
  } else if constexpr (std::is_same_v<U, float16>) {
    return DType::kF16;
  } else if constexpr (std::is_same_v<U, int8_t>) {
    return DType::kI8;
  } else if constexpr (std::is_same_v<U, uint8_t>) {
    return DType::kU8;
  } else if constexpr (std::is_same_v<U, int16_t>) {
    return DType::kI16;
  } else if constexpr (std::is_same_v<U, int32_t>) {
    return DType::kI32;
  } else if constexpr (std::is_same_v<U, int64_t>) {
    return DType::kI64;
  } else {
    static_assert(std::is_same_v<U, bool>, "no such element type");
    return DType::kBool;
  }
}

}  // namespace mstar

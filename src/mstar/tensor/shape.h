#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "mstar/base/check.h"

namespace mstar {

inline constexpr int kMaxDims = 8;

// Up to eight sizes (or strides), outermost first, without allocation. Zero sizes are legal.
class Shape {
 public:
  Shape() = default;

  Shape(std::initializer_list<int64_t> dims)
      : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

  explicit Shape(std::span<const int64_t> dims) : num_dims_(static_cast<int>(dims.size())) {
    MSTAR_CHECK(dims.size() <= kMaxDims, "dims=", dims.size());
    for (size_t index = 0; index < dims.size(); ++index) {
      dims_[index] = dims[index];
    }
  }

  int size() const { return num_dims_; }

  bool empty() const { return num_dims_ == 0; }

  // Negative counts from the back: shape[-1] is the innermost.
  int64_t operator[](int index) const { return dims_[checked(index)]; }

  int64_t& operator[](int index) { return dims_[checked(index)]; }

  const int64_t* begin() const { return dims_.data(); }

  const int64_t* end() const { return dims_.data() + num_dims_; }

  int64_t num_elements() const {
    int64_t product = 1;
    for (const int64_t dim : *this) {
      product *= dim;
    }
    return product;
  }

  void push_back(int64_t dim) {
    MSTAR_CHECK(num_dims_ < kMaxDims);
    dims_[static_cast<size_t>(num_dims_++)] = dim;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.num_dims_ != b.num_dims_) {
      return false;
    }
    for (int index = 0; index < a.num_dims_; ++index) {
      if (a[index] != b[index]) {
        return false;
      }
    }
    return true;
  }

 private:
  size_t checked(int index) const {
    if (index < 0) {
      index += num_dims_;
    }
    MSTAR_DCHECK(index >= 0 && index < num_dims_, "index=", index, " dims=", num_dims_);
    return static_cast<size_t>(index);
  }

  std::array<int64_t, kMaxDims> dims_{};
  int num_dims_ = 0;
};

// "[2, 3, 4]".
std::string to_string(const Shape& shape);

}  // namespace mstar

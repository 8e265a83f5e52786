#pragma once

#include <algorithm>
#include <cstdint>

#include "mstar/base/check.h"
#include "mstar/tensor/tensor.h"

namespace mstar {

// A numeric array that plans are written into. Free ones grow when a step is larger than any
// before; fixed ones have the address that a captured graph reads and never move. Entries behind
// the ones in use hold the padding value. One slot, hence one writer at a time.
template <typename T>
class StaticArray {
 public:
  // Room for `capacity` entries, at least; only before the first capture for fixed arrays. Entries
  // that were never in use read as the padding, unless `filled` is off (nobody looks at them).
  void reserve(int64_t capacity, T padding, bool fixed, bool filled = true) {
    if (capacity > this->capacity()) {
      tensor_ = Tensor::empty({capacity}, dtype());
      if (filled) {
        std::fill_n(data(), capacity, padding);
      }
      num_used_ = 0;
    }
    padding_ = padding;
    fixed_ = fixed_ || fixed;
  }

  // Room for `count` entries to be written; what stood there before is not kept when it grows.
  T* prepare(int64_t count) {
    if (count > capacity()) {
      MSTAR_CHECK(!fixed_, "a leased step has ", count, " entries, its buffers ", capacity());
      reserve(std::max<int64_t>(count + count / 2, 64), padding_, false, false);
    }
    if (num_used_ > count) {
      std::fill(data() + count, data() + num_used_, padding_);
    }
    num_used_ = count;
    return data();
  }

  // Entries from `begin` on, to the end of a fixed array, become `value`.
  void fill_rest(int64_t begin, T value) {
    if (fixed_) {
      std::fill(data() + begin, data() + capacity(), value);
      num_used_ = capacity();
    }
  }

  T* data() { return reinterpret_cast<T*>(tensor_.bytes()); }

  int64_t capacity() const { return tensor_.num_dims() == 0 ? 0 : tensor_.dim(0); }

  // The first `count` entries.
  Tensor view(int64_t count) const {
    return tensor_.num_dims() == 0 ? Tensor::empty({0}, dtype()) : tensor_.slice(0, 0, count);
  }

 private:
  static constexpr DType dtype() {
    if constexpr (std::is_same_v<T, float>) {
      return DType::kF32;
    } else {
      static_assert(std::is_same_v<T, int32_t>);
      return DType::kI32;
    }
  }

  Tensor tensor_;
  T padding_{};
  bool fixed_ = false;
  int64_t num_used_ = 0;
};

}  // namespace mstar

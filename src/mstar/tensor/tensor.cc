#include "mstar/tensor/tensor.h"

#include <cstring>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/tensor/dispatch.h"

namespace mstar {

namespace {

int64_t bytes_for(int64_t num_elements, DType dtype) {
  const DTypeInfo& type = info(dtype);
  return num_elements / type.block_size * type.block_bytes;
}

template <typename T>
float as_float(T value) {
  return static_cast<float>(value);
}

float as_float(bfloat16 value) {
  return to_float(value);
}

float as_float(float16 value) {
  return to_float(value);
}

template <typename T>
T cast_float(float value) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    return from_float<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// Calls function(element pointer) for every element in row-major order.
template <typename T, typename Function>
void for_each_element(const Tensor& tensor, Function&& function) {
  const T* base = tensor.data<T>();
  const int64_t count = tensor.num_elements();
  if (tensor.is_contiguous()) {
    for (int64_t index = 0; index < count; ++index) {
      function(base[index]);
    }
    return;
  }
  Shape position;
  for (int dim = 0; dim < tensor.num_dims(); ++dim) {
    position.push_back(0);
  }
  for (int64_t index = 0; index < count; ++index) {
    int64_t offset = 0;
    for (int dim = 0; dim < tensor.num_dims(); ++dim) {
      offset += position[dim] * tensor.stride(dim);
    }
    function(base[offset]);
    for (int dim = tensor.num_dims() - 1; dim >= 0; --dim) {
      if (++position[dim] < tensor.dim(dim)) {
        break;
      }
      position[dim] = 0;
    }
  }
}

template <typename T>
Tensor from_values(std::span<const T> values, const Shape& shape, DType dtype) {
  MSTAR_CHECK(static_cast<int64_t>(values.size()) == shape.num_elements(),
              "values=",
              values.size(),
              " shape=",
              to_string(shape));
  Tensor tensor = Tensor::empty(shape, dtype);
  if (!values.empty()) {
    std::memcpy(tensor.bytes(), values.data(), values.size_bytes());
  }
  return tensor;
}

}  // namespace

std::string to_string(const Shape& shape) {
  return str_cat("[", str_join(shape, ", "), "]");
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int dim = shape.size() - 1; dim >= 0; --dim) {
    strides[dim] = stride;
    stride *= shape[dim];
  }
  return strides;
}

Tensor Tensor::wrap(StoragePtr storage,
                    std::byte* data,
                    const Shape& shape,
                    DType dtype,
                    Device device) {
  MSTAR_CHECK(!is_quantized(dtype) || (!shape.empty() && shape[-1] % info(dtype).block_size == 0),
              "shape=",
              mstar::to_string(shape),
              " dtype=",
              mstar::to_string(dtype));
  Tensor tensor;
  tensor.storage_ = std::move(storage);
  tensor.data_ = data;
  tensor.shape_ = shape;
  tensor.strides_ = contiguous_strides(shape);
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  return tensor;
}

Tensor Tensor::borrow(void* data, const Shape& shape, DType dtype, Device device) {
  return wrap(StoragePtr(), static_cast<std::byte*>(data), shape, dtype, device);
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Allocator& allocator) {
  StoragePtr storage(
      allocator.allocate(static_cast<size_t>(bytes_for(shape.num_elements(), dtype))));
  std::byte* data = storage->data();
  return wrap(std::move(storage), data, shape, dtype);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Allocator& allocator) {
  Tensor tensor = empty(shape, dtype, allocator);
  std::memset(tensor.bytes(), 0, static_cast<size_t>(tensor.size_bytes()));
  return tensor;
}

Tensor Tensor::from(std::span<const float> values, const Shape& shape) {
  return from_values(values, shape, DType::kF32);
}

Tensor Tensor::from(std::span<const int32_t> values, const Shape& shape) {
  return from_values(values, shape, DType::kI32);
}

Tensor Tensor::from(std::span<const int64_t> values, const Shape& shape) {
  return from_values(values, shape, DType::kI64);
}

int64_t Tensor::size_bytes() const {
  return bytes_for(num_elements(), dtype_);
}

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  for (int dim = num_dims() - 1; dim >= 0; --dim) {
    if (shape_[dim] == 0) {
      return true;
    }
    if (shape_[dim] != 1 && strides_[dim] != expected) {
      return false;
    }
    expected *= shape_[dim];
  }
  return true;
}

void Tensor::check_type(DType wanted) const {
  MSTAR_CHECK(dtype_ == wanted,
              "tensor is ",
              mstar::to_string(dtype_),
              ", read as ",
              mstar::to_string(wanted));
}

Tensor Tensor::view(const Shape& shape) const {
  MSTAR_CHECK(is_contiguous(), "view of a strided tensor ", to_string());
  Shape wanted = shape;
  int64_t known = 1;
  int open = -1;
  for (int dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 0) {
      MSTAR_CHECK(open < 0, "two dims are -1");
      open = dim;
    } else {
      known *= shape[dim];
    }
  }
  if (open >= 0) {
    wanted[open] = known == 0 ? 0 : num_elements() / known;
  }
  MSTAR_CHECK(wanted.num_elements() == num_elements(),
              "view ",
              mstar::to_string(shape),
              " of ",
              mstar::to_string(shape_));
  return wrap(storage_, data_, wanted, dtype_, device_);
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t end) const {
  MSTAR_CHECK(0 <= begin && begin <= end && end <= shape_[dim],
              "slice [",
              begin,
              ", ",
              end,
              ") of dim ",
              dim,
              " of ",
              mstar::to_string(shape_));
  Tensor out = *this;
  const int64_t offset = begin * strides_[dim];
  const DTypeInfo& type = info(dtype_);
  MSTAR_CHECK(offset % type.block_size == 0 && (end - begin) * strides_[dim] % type.block_size == 0,
              "a slice may not cut a block");
  out.data_ += offset / type.block_size * type.block_bytes;
  out.shape_[dim] = end - begin;
  return out;
}

Tensor Tensor::select(int dim, int64_t index) const {
  if (dim < 0) {
    dim += num_dims();
  }
  const Tensor cut = slice(dim, index, index + 1);
  return cut.squeeze(dim);
}

Tensor Tensor::squeeze(int dim) const {
  if (dim < 0) {
    dim += num_dims();
  }
  MSTAR_CHECK(shape_[dim] == 1, "squeeze of dim ", dim, " of ", mstar::to_string(shape_));
  Tensor out = *this;
  out.shape_ = {};
  out.strides_ = {};
  for (int other = 0; other < num_dims(); ++other) {
    if (other != dim) {
      out.shape_.push_back(shape_[other]);
      out.strides_.push_back(strides_[other]);
    }
  }
  return out;
}

Tensor Tensor::unsqueeze(int dim) const {
  if (dim < 0) {
    dim += num_dims() + 1;
  }
  Tensor out = *this;
  out.shape_ = {};
  out.strides_ = {};
  for (int other = 0; other <= num_dims(); ++other) {
    if (other == dim) {
      out.shape_.push_back(1);
      out.strides_.push_back(other < num_dims() ? shape_[other] * strides_[other] : 1);
    }
    if (other < num_dims()) {
      out.shape_.push_back(shape_[other]);
      out.strides_.push_back(strides_[other]);
    }
  }
  return out;
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  MSTAR_CHECK(!is_quantized(dtype_), "blocks cannot be transposed");
  Tensor out = *this;
  std::swap(out.shape_[dim0], out.shape_[dim1]);
  std::swap(out.strides_[dim0], out.strides_[dim1]);
  return out;
}

Tensor Tensor::permute(std::span<const int> order) const {
  MSTAR_CHECK(static_cast<int>(order.size()) == num_dims() && !is_quantized(dtype_),
              "permute of ",
              mstar::to_string(shape_));
  Tensor out = *this;
  for (int dim = 0; dim < num_dims(); ++dim) {
    out.shape_[dim] = shape_[order[static_cast<size_t>(dim)]];
    out.strides_[dim] = strides_[order[static_cast<size_t>(dim)]];
  }
  return out;
}

Tensor Tensor::as_rows() const {
  MSTAR_CHECK(num_dims() >= 1, "a scalar has no rows");
  const int64_t width = dim(-1);
  if (num_dims() == 2) {
    return *this;
  }
  if (num_dims() == 1) {
    return unsqueeze(0);
  }
  int64_t rows = 1;
  for (int index = 0; index + 1 < num_dims(); ++index) {
    rows *= shape_[index];
  }
  // Leading dims must be one run of equally distant rows.
  int64_t expected = strides_[-2];
  for (int index = num_dims() - 2; index >= 0; --index) {
    MSTAR_CHECK(shape_[index] == 1 || strides_[index] == expected || rows == 0,
                "rows are not equally distant: ",
                to_string());
    expected *= shape_[index];
  }
  Tensor out = *this;
  out.shape_ = {rows, width};
  out.strides_ = {strides_[-2], strides_[-1]};
  return out;
}

Tensor Tensor::copy(Allocator& allocator) const {
  Tensor out = empty(shape_, dtype_, allocator);
  if (is_contiguous()) {
    if (size_bytes() > 0) {
      std::memcpy(out.data_, data_, static_cast<size_t>(size_bytes()));
    }
    return out;
  }
  dispatch(dtype_, [&]<typename T>() {
    T* target = out.data<T>();
    for_each_element<T>(*this, [&](const T& value) { *target++ = value; });
  });
  return out;
}

Tensor Tensor::to(DType dtype, Allocator& allocator) const {
  if (dtype == dtype_) {
    return copy(allocator);
  }
  Tensor out = empty(shape_, dtype, allocator);
  dispatch(dtype_, [&]<typename From>() {
    dispatch(dtype, [&]<typename To>() {
      To* target = out.data<To>();
      for_each_element<From>(*this, [&](const From& value) {
        if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
          *target++ = static_cast<To>(value);
        } else {
          *target++ = cast_float<To>(as_float(value));
        }
      });
    });
  });
  return out;
}

std::vector<float> Tensor::to_floats() const {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(num_elements()));
  dispatch(dtype_, [&]<typename T>() {
    for_each_element<T>(*this, [&](const T& value) { values.push_back(as_float(value)); });
  });
  return values;
}

std::vector<int64_t> Tensor::to_ints() const {
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(num_elements()));
  dispatch(dtype_, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      for_each_element<T>(*this,
                          [&](const T& value) { values.push_back(static_cast<int64_t>(value)); });
    } else {
      MSTAR_CHECK(false, "integers read from ", mstar::to_string(dtype_));
    }
  });
  return values;
}

std::string Tensor::to_string() const {
  std::string text = str_cat(mstar::to_string(dtype_), mstar::to_string(shape_));
  if (!is_contiguous()) {
    text += str_cat(" strides ", mstar::to_string(strides_));
  }
  if (defined() && num_elements() <= 16 && !is_quantized(dtype_) && device_.is_cpu()) {
    text += str_cat(" {", str_join(to_floats(), ", "), "}");
  }
  return text;
}

}  // namespace mstar

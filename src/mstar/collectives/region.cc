#include "mstar/collectives/region.h"

#include <cstring>

#include "mstar/base/check.h"
#include "mstar/tensor/dispatch.h"

namespace mstar {

namespace {

// Elements between neighbours along every dim.
std::array<int64_t, kMaxDims> strides_of(const Block& block) {
  std::array<int64_t, kMaxDims> strides{};
  int64_t stride = 1;
  for (int dim = block.num_dims - 1; dim >= 0; --dim) {
    strides[static_cast<size_t>(dim)] = stride;
    stride *= block.dims[static_cast<size_t>(dim)];
  }
  return strides;
}

int64_t extent(const Region& region, int dim) {
  return dim == region.dim ? region.size : region.block->dims[static_cast<size_t>(dim)];
}

}  // namespace

Block Block::of(const Tensor& tensor) {
  MSTAR_CHECK(tensor.is_contiguous() && !is_quantized(tensor.dtype()), tensor.to_string());
  Block block;
  block.data = tensor.bytes();
  block.dtype = tensor.dtype();
  block.element_bytes = static_cast<int32_t>(mstar::element_bytes(tensor.dtype()));
  block.num_dims = tensor.num_dims();
  for (int dim = 0; dim < tensor.num_dims(); ++dim) {
    block.dims[static_cast<size_t>(dim)] = tensor.dim(dim);
  }
  return block;
}

int64_t Block::num_elements() const {
  int64_t product = 1;
  for (int dim = 0; dim < num_dims; ++dim) {
    product *= dims[static_cast<size_t>(dim)];
  }
  return product;
}

void copy_region(const Region& from, const Region& to) {
  const int num_dims = from.block->num_dims;
  MSTAR_CHECK(
      num_dims == to.block->num_dims && num_dims > 0 && from.block->dtype == to.block->dtype,
      "regions of different kinds");
  int64_t rows = 1;
  for (int dim = 0; dim < num_dims; ++dim) {
    MSTAR_CHECK(extent(from, dim) == extent(to, dim),
                "dim ",
                dim,
                ": ",
                extent(from, dim),
                " onto ",
                extent(to, dim));
    rows *= dim + 1 < num_dims ? extent(from, dim) : 1;
  }
  const auto from_strides = strides_of(*from.block);
  const auto to_strides = strides_of(*to.block);
  const int64_t element = from.block->element_bytes;
  const auto row_bytes = static_cast<size_t>(extent(from, num_dims - 1) * element);
  if (row_bytes == 0) {
    return;
  }
  std::array<int64_t, kMaxDims> position{};
  for (int64_t row = 0; row < rows; ++row) {
    int64_t source = from.begin * from_strides[static_cast<size_t>(from.dim)];
    int64_t target = to.begin * to_strides[static_cast<size_t>(to.dim)];
    for (int dim = 0; dim + 1 < num_dims; ++dim) {
      const auto index = static_cast<size_t>(dim);
      source += position[index] * from_strides[index];
      target += position[index] * to_strides[index];
    }
    std::memcpy(to.block->data + target * element, from.block->data + source * element, row_bytes);
    for (int dim = num_dims - 2; dim >= 0; --dim) {
      if (++position[static_cast<size_t>(dim)] < extent(from, dim)) {
        break;
      }
      position[static_cast<size_t>(dim)] = 0;
    }
  }
}

void sum_elements(std::span<const std::byte* const> sources,
                  std::span<std::byte* const> outs,
                  DType dtype,
                  int64_t count) {
  dispatch_activation(dtype, [&]<typename T>() {
    for (int64_t index = 0; index < count; ++index) {
      float sum = 0.0F;
      for (const std::byte* source : sources) {
        sum += to_float(reinterpret_cast<const T*>(source)[index]);
      }
      for (std::byte* out : outs) {
        reinterpret_cast<T*>(out)[index] = from_float<T>(sum);
      }
    }
  });
}

}  // namespace mstar

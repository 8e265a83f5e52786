#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mstar/tensor/tensor.h"

namespace mstar {

// A contiguous tensor as plain data, for the parameters of enqueued ops.
struct Block {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int32_t element_bytes = 0;
  int32_t num_dims = 0;
  std::array<int64_t, kMaxDims> dims{};

  static Block of(const Tensor& tensor);  // contiguous and plain (checks)

  int64_t num_elements() const;
};

// A box of a block: all of it, except [begin, begin + size) along `dim`.
struct Region {
  const Block* block = nullptr;
  int dim = 0;
  int64_t begin = 0;
  int64_t size = 0;
};

// Copies one region onto another of the same shape. Allocates nothing.
void copy_region(const Region& from, const Region& to);

// `count` sums over the sources, in their order and in f32, written to every out. f32 or bf16.
// An out may be a source.
void sum_elements(std::span<const std::byte* const> sources,
                  std::span<std::byte* const> outs,
                  DType dtype,
                  int64_t count);

}  // namespace mstar

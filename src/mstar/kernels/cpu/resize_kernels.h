#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"

// One axis of a separable resize; compiled once per instruction set.
namespace mstar {

enum class PixelType : uint8_t { kU8, kF32, kBF16 };

// Which inputs an output takes, and how much of each. Filled when the op runs, so that a replayed
// step finds it whatever used the memory in between.
struct ResizeTable {
  int32_t* begin = nullptr;      // [out] first input
  int32_t* count = nullptr;      // [out] inputs, at most max_taps
  float* weights = nullptr;      // [out][max_taps], or
  int32_t* fixed = nullptr;      // [out][max_taps] in units of 2^-precision
  int32_t* precision = nullptr;  // one number, with `fixed`
  double* scratch = nullptr;     // [max_taps], with `fixed`
  int32_t max_taps = 0;
};

// out[line][to][column] = sum over the taps of `to` of weight * x[line][from][column], dense. The
// width pass has lines n * h and `columns` channels, the height pass lines n and w * c columns.
struct ResizePass {
  ResizeTable table;
  const void* x = nullptr;
  void* out = nullptr;
  PixelType x_type = PixelType::kF32;
  PixelType out_type = PixelType::kF32;
  int64_t in_size = 0;
  int64_t out_size = 0;
  int64_t columns = 0;
  int64_t num_outputs = 0;  // lines * out_size
  int64_t outputs_per_task = 0;
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(void resize_task(const ResizePass& pass, int task);)

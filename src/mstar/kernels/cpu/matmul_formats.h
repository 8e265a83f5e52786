#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"

// What matmul's driver needs of a weight type, compiled once per instruction set.
namespace mstar {

struct TileParams {
  const uint8_t* panel = nullptr;  // first block of the first panel
  int64_t panel_bytes = 0;         // to the next panel
  const float* x = nullptr;        // [k][rows]
  int64_t num_blocks = 0;
  float* sums = nullptr;  // [rows][sums_stride]; panel i's columns at i * panel_width
  int64_t sums_stride = 0;
  bool resume = false;  // add to `sums` instead of starting at zero
};

using TileFunction = void (*)(const TileParams&);

struct FormatKernels {
  int block = 0;              // values of k in a block of a panel
  int block_bytes = 0;        // of each column
  int direct_rows = 0;        // most rows that `tile` and `abreast` exist for, 0-based by rows - 1
  TileFunction tile[8] = {};  // one panel
  TileFunction abreast[8] = {};  // panels_abreast() panels side by side
  // blocks, their number, out f32 [k][panel_width]
  void (*decode)(const uint8_t*, int64_t, float*) = nullptr;
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(extern const FormatKernels format_f32; extern const FormatKernels format_bf16;
                      extern const FormatKernels format_f16;
                      extern const FormatKernels format_i8;
                      extern const FormatKernels format_q8_0;
                      extern const FormatKernels format_q4_0;
                      extern const FormatKernels format_q4_1;
                      extern const FormatKernels format_q5_0;
                      extern const FormatKernels format_q5_1;
                      extern const FormatKernels format_q4_k;
                      extern const FormatKernels format_q5_k;
                      extern const FormatKernels format_q6_k;)

#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"

// What matmul's driver needs of a weight type, compiled once per instruction set.
namespace mstar {

// Activations rounded to int8: 32 codes, their scale and their sums.
inline constexpr int kInt8BlockBytes = 40;

struct TileParams {
  const uint8_t* panel = nullptr;  // first block of the first panel
  int64_t panel_bytes = 0;         // to the next panel
  const void* x = nullptr;         // packed rows: [k][rows] f32, or what the format takes
  int64_t num_blocks = 0;
  float* sums = nullptr;  // [rows][sums_stride]; panel i's columns at i * panel_width
  int64_t sums_stride = 0;
  bool resume = false;         // add to `sums` instead of starting at zero
  int64_t prefetch_bytes = 0;  // how far ahead weights are asked for; 0: the processor knows best
};

using TileFunction = void (*)(const TileParams&);

struct FormatKernels {
  int block = 0;        // values of k in a block of a panel
  int block_bytes = 0;  // of each column
  // Tiles that read the weight as it is stored, 0-based by rows - 1: most rows they exist for,
  // and most tiles that a problem may have before decoding a panel once for all of them wins.
  int direct_rows = 0;
  int direct_tiles = 0;
  int width[8] = {};                    // panels that a tile takes at once
  TileFunction one[8] = {};             // one panel
  TileFunction abreast[8] = {};         // `width` panels
  TileFunction abreast_taller[8] = {};  // those of a tile one row taller: beside such a tile
  // blocks, their number, out f32 [k][panel_width]
  void (*decode)(const uint8_t*, int64_t, float*) = nullptr;
  // Up to so many tiles meet stretches of the weight as it is stored; more are worth decoding it.
  int in_place_tiles = 0;
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
                      extern const FormatKernels format_q6_k;
                      extern const FormatKernels format_bf16_dot;
                      extern const FormatKernels format_q8_0_int8;
                      extern const FormatKernels format_q4_0_int8;
                      extern const FormatKernels format_q4_1_int8;
                      extern const FormatKernels format_q5_0_int8;
                      extern const FormatKernels format_q5_1_int8;
                      extern const FormatKernels format_q4_k_int8;
                      extern const FormatKernels format_q5_k_int8;
                      extern const FormatKernels format_q6_k_int8;)

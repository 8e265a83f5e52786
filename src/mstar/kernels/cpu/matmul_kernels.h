#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/tensor/dtype.h"

// Matmul on packed panels: what is compiled once per instruction set. Plain data only; the
// functions never throw, allocate or log.
namespace mstar {

struct WeightPanels {
  const uint8_t* data = nullptr;
  const float* row_scales = nullptr;  // [n, padded to whole panels], or null
  int64_t n = 0;
  int64_t k_padded = 0;
  int64_t panel_bytes = 0;
  DType dtype = DType::kF32;
};

// Activations rearranged for the kernels: rows are cut into tiles of nearly equal height (tile t
// of T holds rows [t * m / T, (t + 1) * m / T)), each stored k-major. With h rows in a tile:
enum class PackedX : uint8_t {
  kF32,        // [k_padded][h] f32
  kBF16Pairs,  // [k_padded / 2][h][2] bf16
  kBF16Tiles,  // cpu/matmul_amx.cc; tiles have 16 rows, the last what is left; ranges begin at even
               // tiles
  kInt8,       // blocks of 32 k: [h] f32 scales, [h] sums of the first and of the last 16 codes
               // as i16 side by side, [8][h][4] i8 codes
  kInt8Nibbles,  // the same, each eight codes in the order 0, 2, 4, 6, 1, 3, 5, 7
  kInt8Tiles,    // tiles of 16 rows, the last filled up with zeros; blocks as in kInt8, but codes
                 // [16][32]
  kInt8NibbleTiles,  // the same in the order of kInt8Nibbles
};

inline bool is_int8_tiles(PackedX form) {
  return form == PackedX::kInt8Tiles || form == PackedX::kInt8NibbleTiles;
}

// Bytes of k values of a row.
inline int64_t packed_bytes(PackedX form, int64_t k) {
  switch (form) {
    case PackedX::kF32: return 4 * k;
    case PackedX::kBF16Pairs:
    case PackedX::kBF16Tiles: return 2 * k;
    case PackedX::kInt8:
    case PackedX::kInt8Nibbles:
    case PackedX::kInt8Tiles:
    case PackedX::kInt8NibbleTiles: break;
  }
  return k / 32 * 40;
}

// From a row to the next, and by as much times its first row a tile begins behind the first one. A
// power of two would bring a stretch of k of all tiles to the same few sets of the second-level
// cache.
inline int64_t packed_row_bytes(PackedX form, int64_t k_padded) {
  const int64_t bytes = packed_bytes(form, k_padded);
  const bool by_rows = form == PackedX::kF32 || form == PackedX::kBF16Pairs;
  return by_rows && bytes % 4096 == 0 ? bytes + 512 : bytes;
}

struct PackRowsParams {
  const void* x = nullptr;
  int64_t x_stride = 0;  // elements
  bool x_is_bf16 = false;
  PackedX form = PackedX::kF32;  // kBF16Pairs and kBF16Tiles take bf16 only
  int64_t m = 0;
  int64_t k = 0;
  int64_t k_padded = 0;
  void* out = nullptr;
};

// One out[m, n] = epilogue(x @ weight^T), or a part of it.
struct MatmulProblem {
  WeightPanels weight;
  const void* x = nullptr;  // packed
  PackedX x_form = PackedX::kF32;
  int64_t m = 0;

  void* out = nullptr;
  int64_t out_stride = 0;
  bool out_is_bf16 = false;

  float alpha = 1.0F;
  const void* bias = nullptr;
  bool bias_is_bf16 = false;
  Activation activation = Activation::kNone;
  const void* residual = nullptr;
  int64_t residual_stride = 0;
  bool residual_is_bf16 = false;
};

// [tile_begin, tile_end) x [panel_begin, panel_end) of a problem.
struct MatmulRange {
  int64_t tile_begin = 0;
  int64_t tile_end = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
};

struct MatmulKernels {
  int tile_rows;           // most rows of a tile
  int panel_width;         // features of a panel
  PackedX bf16_form;       // of bf16 activations that meet bf16 weights, in tiles int8 ones too
  int64_t scratch_floats;  // rows x features that one task's range may span (but tiles)
  int64_t int8_tile_rows;  // fewest rows whose rounded activations go through tiles; 0: never
  // Panels that are taken at once for m rows: ranges should hold whole multiples.
  int64_t (*panel_step)(DType dtype, PackedX form, int64_t m);
  void (*pack_rows)(const PackRowsParams& params, int64_t tile_begin, int64_t tile_end);
  void (*run)(const MatmulProblem& problem, const MatmulRange& range);
  // One panel as f32 [k_padded][panel_width], without the row scales.
  void (*decode)(const WeightPanels& weight, int64_t panel, float* out);
};

// Most rows of a tile in that form.
inline int rows_of_tile(const MatmulKernels& kernels, PackedX form) {
  return form == PackedX::kBF16Tiles || is_int8_tiles(form) ? 16 : kernels.tile_rows;
}

// Rows that packed activations take the place of.
inline int64_t packed_rows(PackedX form, int64_t m) {
  return is_int8_tiles(form) ? (m + 15) / 16 * 16 : m;
}

// Most rows that one task's range may span in a form of integer tiles.
inline constexpr int64_t kInt8TileTaskRows = 192;

// Rows x features that one task's range may span with activations in that form.
inline constexpr int64_t kMatmulScratchFloats = 32 << 10;

inline int64_t num_row_tiles(int64_t m, int tile_rows) {
  return (m + tile_rows - 1) / tile_rows;
}

}  // namespace mstar

// cpu/matmul_amx.cc; everything but kBF16Tiles is avx512_bf16's.
namespace mstar::amx {
extern const MatmulKernels matmul_kernel_table;
}

MSTAR_DECLARE_PER_ISA(extern const MatmulKernels matmul_kernel_table;
                      void matmul_pack_rows(const PackRowsParams& params,
                                            int64_t tile_begin,
                                            int64_t tile_end);)

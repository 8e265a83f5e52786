#include "mstar/kernels/cpu/matmul_kernels.h"

#include "mstar/kernels/cpu/matmul_epilogue-inl.h"
#include "mstar/kernels/cpu/matmul_formats.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

// k values decoded at a time: a panel's worth stays in the first-level cache beside a tile's x.
constexpr int64_t kDepth = 256;
// f32 sums that a task keeps on its stack.
constexpr int64_t kScratchFloats = 32 << 10;

const FormatKernels& format_kernels(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return format_bf16;
    case DType::kF16: return format_f16;
    case DType::kI8: return format_i8;
    case DType::kQ8_0: return format_q8_0;
    case DType::kQ4_0: return format_q4_0;
    case DType::kQ4_1: return format_q4_1;
    case DType::kQ5_0: return format_q5_0;
    case DType::kQ5_1: return format_q5_1;
    case DType::kQ4_K: return format_q4_k;
    case DType::kQ5_K: return format_q5_k;
    case DType::kQ6_K: return format_q6_k;
    default: return format_f32;
  }
}

float element(const PackRowsParams& p, int64_t row, int64_t k) {
  if (p.x_is_bf16) {
    const uint32_t bits = static_cast<const uint16_t*>(p.x)[row * p.x_stride + k];
    const uint32_t wide = bits << 16;
    float value;
    __builtin_memcpy(&value, &wide, sizeof(value));
    return value;
  }
  return static_cast<const float*>(p.x)[row * p.x_stride + k];
}

void pack_rows(const PackRowsParams& p, int64_t tile_begin, int64_t tile_end) {
  const int64_t num_tiles = num_row_tiles(p.m, kTileRows);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t first = tile * p.m / num_tiles;
    const int64_t rows = (tile + 1) * p.m / num_tiles - first;
    float* out = static_cast<float*>(p.out) + first * p.k_padded;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < p.k; ++k) {
        out[k * rows + row] = element(p, first + row, k);
      }
      for (int64_t k = p.k; k < p.k_padded; ++k) {
        out[k * rows + row] = 0.0F;
      }
    }
  }
}

// All rows fit one tile: weights go from memory to registers once.
void run_one_tile(const MatmulProblem& p, const MatmulRange& range) {
  const FormatKernels& format = format_kernels(p.weight.dtype);
  const int rows = static_cast<int>(p.m);
  const int abreast = panels_abreast(rows);
  alignas(64) float sums[kTileRows * kPanel * 4];
  TileParams tile{nullptr,
                  p.weight.panel_bytes,
                  static_cast<const float*>(p.x),
                  p.weight.k_padded / format.block,
                  sums,
                  0,
                  false};
  for (int64_t panel = range.panel_begin; panel < range.panel_end;) {
    const bool many = panel + abreast <= range.panel_end;
    const int64_t width = many ? abreast * kPanel : kPanel;
    tile.panel = p.weight.data + panel * p.weight.panel_bytes;
    tile.sums_stride = width;
    (many ? format.abreast : format.tile)[rows - 1](tile);
    finish_rows(p, 0, rows, panel * kPanel, width, sums, width);
    panel += many ? abreast : 1;
  }
}

// Several tiles: each stretch of a panel is decoded once and meets all tiles from the cache.
void run_many_tiles(const MatmulProblem& p, const MatmulRange& range) {
  const FormatKernels& format = format_kernels(p.weight.dtype);
  const FormatKernels& plain = format_f32;
  const int64_t num_tiles = num_row_tiles(p.m, kTileRows);
  const int64_t num_panels = range.panel_end - range.panel_begin;
  const int64_t row_begin = range.tile_begin * p.m / num_tiles;
  const int64_t row_end = range.tile_end * p.m / num_tiles;
  const int64_t stride = num_panels * kPanel;
  alignas(64) float sums[kScratchFloats];
  alignas(64) float weights[kDepth * kPanel];
  for (int64_t k = 0; k < p.weight.k_padded; k += kDepth) {
    const int64_t depth = p.weight.k_padded - k < kDepth ? p.weight.k_padded - k : kDepth;
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      const uint8_t* blocks = p.weight.data + (range.panel_begin + panel) * p.weight.panel_bytes +
                              k / format.block * (format.block_bytes * kPanel);
      format.decode(blocks, depth / format.block, weights);
      for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
        const int64_t first = tile * p.m / num_tiles;
        const int64_t rows = (tile + 1) * p.m / num_tiles - first;
        const TileParams params{
            reinterpret_cast<const uint8_t*>(weights),
            0,
            static_cast<const float*>(p.x) + first * p.weight.k_padded + k * rows,
            depth / plain.block,
            sums + (first - row_begin) * stride + panel * kPanel,
            stride,
            k > 0};
        plain.tile[rows - 1](params);
      }
    }
  }
  finish_rows(p, row_begin, row_end - row_begin, range.panel_begin * kPanel, stride, sums, stride);
}

void run(const MatmulProblem& problem, const MatmulRange& range) {
  if (problem.m <= format_kernels(problem.weight.dtype).direct_rows) {
    run_one_tile(problem, range);
  } else {
    run_many_tiles(problem, range);
  }
}

void decode(const WeightPanels& weight, int64_t panel, float* out) {
  const FormatKernels& format = format_kernels(weight.dtype);
  format.decode(weight.data + panel * weight.panel_bytes, weight.k_padded / format.block, out);
}

}  // namespace

extern const MatmulKernels
    matmul_kernel_table{kTileRows, kPanel, false, kScratchFloats, &pack_rows, &run, &decode};

}  // namespace mstar::MSTAR_ISA_NAMESPACE

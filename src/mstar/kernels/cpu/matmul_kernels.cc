#include "mstar/kernels/cpu/matmul_kernels.h"

#include "mstar/kernels/cpu/matmul_epilogue-inl.h"
#include "mstar/kernels/cpu/matmul_formats.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

// k values decoded at a time: a panel's worth stays in the first-level cache beside a tile's x.
constexpr int64_t kDepth = 256;

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

const FormatKernels& int8_kernels(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0: return format_q4_0_int8;
    case DType::kQ4_1: return format_q4_1_int8;
    case DType::kQ5_0: return format_q5_0_int8;
    case DType::kQ5_1: return format_q5_1_int8;
    case DType::kQ4_K: return format_q4_k_int8;
    case DType::kQ5_K: return format_q5_k_int8;
    case DType::kQ6_K: return format_q6_k_int8;
    default: return format_q8_0_int8;
  }
}

const FormatKernels& format_kernels(DType dtype, PackedX form) {
  switch (form) {
    case PackedX::kBF16Pairs: return format_bf16_dot;
    case PackedX::kBF16Tiles:
    case PackedX::kInt8Tiles:
    case PackedX::kInt8NibbleTiles: break;  // not here
    case PackedX::kInt8:
    case PackedX::kInt8Nibbles: return int8_kernels(dtype);
    case PackedX::kF32: break;
  }
  return format_kernels(dtype);
}

// The rows of tile `tile` begin here, and end where the next tile's begin.
int64_t tile_row(const MatmulProblem& p, int64_t num_tiles, int64_t tile) {
  return tile * p.m / num_tiles;
}

// Goes from tile to tile without tile_row's divisions, which weigh as much as a fiftieth of a tile.
class TileWalk {
 public:
  TileWalk(const MatmulProblem& p, int64_t num_tiles, int64_t tile)
      : first_(tile_row(p, num_tiles, tile)),
        rest_(tile * p.m % num_tiles),
        num_tiles_(num_tiles),
        step_(p.m / num_tiles),
        step_rest_(p.m % num_tiles),
        rows_(step_) {
    find_rows();
  }

  int64_t first() const { return first_; }

  int rows() const { return static_cast<int>(rows_); }

  void next() {
    first_ += rows_;
    find_rows();
  }

 private:
  // The rows of this tile, and what is left of the division at the next one.
  void find_rows() {
    rest_ += step_rest_;
    const bool taller = rest_ >= num_tiles_;
    rows_ = taller ? step_ + 1 : step_;
    rest_ -= taller ? num_tiles_ : 0;
  }

  int64_t first_, rest_;
  int64_t num_tiles_, step_, step_rest_;
  int64_t rows_;
};

const uint8_t* x_row(const MatmulProblem& p, int64_t row) {
  return static_cast<const uint8_t*>(p.x) + row * packed_row_bytes(p.x_form, p.weight.k_padded);
}

int tallest_tile(int64_t m, int64_t num_tiles) {
  return static_cast<int>((m + num_tiles - 1) / num_tiles);
}

// For a tile of `rows` rows in a problem whose tallest has `tallest` (at most one more).
TileFunction tile_function(const FormatKernels& format, int rows, int tallest, bool abreast) {
  if (!abreast) {
    return format.one[rows - 1];
  }
  return rows == tallest ? format.abreast[rows - 1] : format.abreast_taller[rows - 1];
}

// One or a few tiles: weights go from memory to registers, for the later tiles from the cache.
void run_direct(const MatmulProblem& p, const MatmulRange& range) {
  const FormatKernels& format = format_kernels(p.weight.dtype, p.x_form);
  const int64_t num_tiles = num_row_tiles(p.m, kTileRows);
  const int tallest = tallest_tile(p.m, num_tiles);
  const int abreast = format.width[tallest - 1];
  alignas(64) float sums[kTileRows * kPanel * kMaxAbreast];
  TileParams params;
  params.panel_bytes = p.weight.panel_bytes;
  params.num_blocks = p.weight.k_padded / format.block;
  params.sums = sums;
  const int64_t prefetch_bytes = weight_prefetch_bytes(p.x_form == PackedX::kInt8Nibbles);
  for (int64_t panel = range.panel_begin; panel < range.panel_end;) {
    const bool many = panel + abreast <= range.panel_end;
    const int64_t width = many ? abreast * kPanel : kPanel;
    params.panel = p.weight.data + panel * p.weight.panel_bytes;
    params.sums_stride = width;
    for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
      const int64_t first = tile_row(p, num_tiles, tile);
      const auto rows = static_cast<int>(tile_row(p, num_tiles, tile + 1) - first);
      params.x = x_row(p, first);
      params.prefetch_bytes = tile == range.tile_begin ? prefetch_bytes : 0;
      tile_function(format, rows, tallest, many)(params);
      finish_rows(p, first, rows, panel * kPanel, width, sums, width);
    }
    panel += many ? abreast : 1;
  }
}

// A stretch of k in a few neighbouring panels, as stored.
struct Stretch {
  const uint8_t* first;  // of the first panel
  int64_t panel_bytes;   // to the next panel
  int64_t bytes;         // in each panel
};

// Asks for a stretch that is decoded soon, a few lines at each call.
struct Prefetcher {
  Stretch stretch;
  int64_t num_panels;
  int64_t panel = 0;
  int64_t offset = 0;

  void ask(int64_t lines) {
    for (; lines > 0 && panel < num_panels; --lines) {
      __builtin_prefetch(stretch.first + panel * stretch.panel_bytes + offset, 0, 2);
      offset += 64;
      if (offset >= stretch.bytes) {
        offset = 0;
        ++panel;
      }
    }
  }
};

// Many tiles: a stretch of a few panels is decoded once (where the tiles cannot read it as it is)
// and meets all tiles from the first-level cache. The sums wait in memory between two stretches of
// k.
struct ManyTiles {
  const MatmulProblem& p;
  const MatmulRange& range;
  const FormatKernels& format;        // of the weight
  const FormatKernels& tile_kernels;  // of what the tiles meet: f32 once decoded
  int64_t num_tiles;
  int tallest;
  TileWalk walk_begin;  // at the first tile
  int64_t row_begin;
  int64_t sums_stride;
  float* sums;
  float* weights;  // [panels of a stretch][depth][kPanel]

  int64_t depth_at(int64_t k) const {
    return p.weight.k_padded - k < kDepth ? p.weight.k_padded - k : kDepth;
  }

  Stretch stretch(int64_t panel, int64_t k) const {
    const int64_t block_bytes = int64_t{format.block_bytes} * kPanel;
    return {p.weight.data + panel * p.weight.panel_bytes + k / format.block * block_bytes,
            p.weight.panel_bytes,
            depth_at(k) / format.block * block_bytes};
  }

  int64_t width_at(int64_t panel) const {
    const int abreast = tile_kernels.width[tallest - 1];
    return panel + abreast <= range.panel_end ? abreast : 1;
  }

  // What comes after panels [panel, …) of the stretch at k.
  Prefetcher prefetch_after(int64_t panel, int64_t k) const {
    panel += width_at(panel);
    if (panel == range.panel_end) {
      panel = range.panel_begin;
      k += kDepth;
    }
    return {stretch(panel, k), k < p.weight.k_padded ? width_at(panel) : 0};
  }

  void run(int64_t panel, int64_t k) const {
    const int64_t depth = depth_at(k);
    const int64_t width = width_at(panel);
    const Stretch here = stretch(panel, k);
    const bool decodes = num_tiles > format.in_place_tiles;
    for (int64_t index = 0; decodes && index < width; ++index) {
      format.decode(here.first + index * here.panel_bytes,
                    depth / format.block,
                    weights + index * depth * kPanel);
    }
    Prefetcher prefetcher = prefetch_after(panel, k);
    const int64_t lines =
        prefetcher.num_panels * here.bytes / 64 / (range.tile_end - range.tile_begin) + 1;
    TileParams params;
    params.panel = decodes ? reinterpret_cast<const uint8_t*>(weights) : here.first;
    params.panel_bytes = decodes ? depth * kPanel * 4 : here.panel_bytes;
    params.num_blocks = depth / tile_kernels.block;
    params.sums_stride = sums_stride;
    params.resume = k > 0;
    TileWalk walk = walk_begin;
    for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile, walk.next()) {
      prefetcher.ask(lines);
      const int64_t first = walk.first();
      const int rows = walk.rows();
      params.x = x_row(p, first) + packed_bytes(p.x_form, k) * rows;
      params.sums = sums + (first - row_begin) * sums_stride + (panel - range.panel_begin) * kPanel;
      tile_function(tile_kernels, rows, tallest, width > 1)(params);
    }
  }
};

void run_many(const MatmulProblem& p, const MatmulRange& range) {
  alignas(64) float sums[kMatmulScratchFloats];
  alignas(64) float weights[kDepth * kPanel * kMaxAbreast];
  const int64_t num_tiles = num_row_tiles(p.m, kTileRows);
  const int64_t row_begin = tile_row(p, num_tiles, range.tile_begin);
  const int64_t row_end = tile_row(p, num_tiles, range.tile_end);
  const int64_t stride = (range.panel_end - range.panel_begin) * kPanel;
  const FormatKernels& format = format_kernels(p.weight.dtype, p.x_form);
  const ManyTiles tiles{p,
                        range,
                        format,
                        num_tiles > format.in_place_tiles ? format_f32 : format,
                        num_tiles,
                        tallest_tile(p.m, num_tiles),
                        TileWalk(p, num_tiles, range.tile_begin),
                        row_begin,
                        stride,
                        sums,
                        weights};
  for (int64_t index = 0; p.weight.k_padded == 0 && index < (row_end - row_begin) * stride;
       ++index) {
    sums[index] = 0.0F;  // an empty sum
  }
  for (int64_t k = 0; k < p.weight.k_padded; k += kDepth) {
    for (int64_t panel = range.panel_begin; panel < range.panel_end;
         panel += tiles.width_at(panel)) {
      tiles.run(panel, k);
    }
  }
  finish_rows(p, row_begin, row_end - row_begin, range.panel_begin * kPanel, stride, sums, stride);
}

bool goes_direct(const FormatKernels& format, int64_t m) {
  const int64_t num_tiles = num_row_tiles(m, kTileRows);
  return num_tiles <= format.direct_tiles && tallest_tile(m, num_tiles) <= format.direct_rows;
}

int64_t panel_step(DType dtype, PackedX form, int64_t m) {
  const FormatKernels& format = format_kernels(dtype, form);
  const int64_t num_tiles = num_row_tiles(m, kTileRows);
  const int tallest = tallest_tile(m, num_tiles);
  const bool decoded = !goes_direct(format, m) && num_tiles > format.in_place_tiles;
  return (decoded ? format_f32 : format).width[tallest - 1];
}

void run(const MatmulProblem& problem, const MatmulRange& range) {
  if (goes_direct(format_kernels(problem.weight.dtype, problem.x_form), problem.m)) {
    run_direct(problem, range);
  } else {
    run_many(problem, range);
  }
}

void decode(const WeightPanels& weight, int64_t panel, float* out) {
  const FormatKernels& format = format_kernels(weight.dtype);
  format.decode(weight.data + panel * weight.panel_bytes, weight.k_padded / format.block, out);
}

}  // namespace

extern const MatmulKernels matmul_kernel_table{
    kTileRows,
    kPanel,
    format_bf16_dot.block > 0 ? PackedX::kBF16Pairs : PackedX::kF32,
    kMatmulScratchFloats,
    0,
    &panel_step,
    &matmul_pack_rows,
    &run,
    &decode};

}  // namespace mstar::MSTAR_ISA_NAMESPACE

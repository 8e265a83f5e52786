// The inner loops of matmul: rows of activations times panels of weights, summed in registers.
//
// Every output element is one chain sum = fma(x[k], w[k], sum) over ascending k, begun at zero,
// whatever the number of rows, the tile they fall into or the cut of k: that is what makes a
// batch equal its singles bit for bit. Where the sums are kept between two cuts of k they are
// stored as f32, which changes nothing.
#pragma once

#include "mstar/kernels/cpu/matmul_formats.h"
#include "mstar/kernels/cpu/panel_reader-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

template <DType dtype>
struct BlockShape {
  static constexpr int kSubs =
      PanelReader<dtype>::kBlock < 32 ? 1 : PanelReader<dtype>::kBlock / 32;
  static constexpr int kGroups = PanelReader<dtype>::kBlock < 32 ? 1 : 4;  // of 8 values, in a sub
  static constexpr int64_t kStride = int64_t{PanelReader<dtype>::kBlockBytes} * kPanel;
};

// Eight values of k: kRows x kPanels sums.
template <DType dtype, int kRows, int kPanels>
MSTAR_INLINE void add_group(const PanelReader<dtype> (&readers)[kPanels],
                            const float* x,
                            F (&sums)[kRows][kPanels]) {
  // Either all rows' x or all panels' weights fit beside the sums, not both.
  constexpr bool kRowsInside = kRows < kPanels;
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    // Weights are loaded again rather than kept from j to j: registers are short.
    asm volatile("" ::: "memory");
    F held[kRowsInside ? kRows : kPanels];
#pragma GCC unroll 8
    for (int i = 0; i < (kRowsInside ? kRows : kPanels); ++i) {
      held[i] = kRowsInside ? splat(x[j * kRows + i]) : readers[i].value(j);
    }
#pragma GCC unroll 8
    for (int i = 0; i < (kRowsInside ? kPanels : kRows); ++i) {
      const F other = kRowsInside ? readers[i].value(j) : splat(x[j * kRows + i]);
#pragma GCC unroll 8
      for (int h = 0; h < (kRowsInside ? kRows : kPanels); ++h) {
        accumulate(kRowsInside ? sums[h][i] : sums[i][h], other, held[h]);
      }
    }
  }
}

template <DType dtype, int kRows, int kPanels>
void run_tile(const TileParams& p) {
  using Shape = BlockShape<dtype>;
  // Copies: the stores of sums might change the parameters, for all the compiler knows.
  float* const kept = p.sums;
  const int64_t stride = p.sums_stride;
  const int64_t prefetch_bytes = p.prefetch_bytes;
  F sums[kRows][kPanels];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int c = 0; c < kPanels; ++c) {
      sums[row][c] = p.resume ? load(kept + row * stride + c * kLanes) : splat(0.0F);
    }
  }
  const auto* x = static_cast<const float*>(p.x);
  const uint8_t* block = p.panel;
  const int64_t panel_bytes = p.panel_bytes;
  for (int64_t left = p.num_blocks; left > 0; --left, block += Shape::kStride) {
    if (prefetch_bytes > 0) {
#pragma GCC unroll 8
      for (int c = 0; c < kPanels; ++c) {
        prefetch<Shape::kStride>(block + c * panel_bytes + prefetch_bytes);
      }
    }
    for (int sub = 0; sub < Shape::kSubs; ++sub) {
      PanelReader<dtype> readers[kPanels];
#pragma GCC unroll 8
      for (int c = 0; c < kPanels; ++c) {
        readers[c].start(block + c * panel_bytes, sub);
      }
      for (int g = 0; g < Shape::kGroups; ++g, x += 8 * kRows) {
#pragma GCC unroll 8
        for (int c = 0; c < kPanels; ++c) {
          readers[c].group(block + c * panel_bytes, sub, g);
        }
        add_group<dtype, kRows, kPanels>(readers, x, sums);
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int c = 0; c < kPanels; ++c) {
      store(kept + row * stride + c * kLanes, sums[row][c]);
    }
  }
}

// A panel's blocks as f32 [k][kPanel], for reuse by many tiles.
template <DType dtype>
void decode_panel(const uint8_t* block, int64_t num_blocks, float* out) {
  using Shape = BlockShape<dtype>;
  for (int64_t left = num_blocks; left > 0; --left, block += Shape::kStride) {
    for (int sub = 0; sub < Shape::kSubs; ++sub) {
      PanelReader<dtype> reader;
      reader.start(block, sub);
      for (int g = 0; g < Shape::kGroups; ++g, out += 8 * kPanel) {
        reader.group(block, sub, g);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
          store(out + j * kPanel, reader.value(j));
        }
      }
    }
  }
}

template <DType dtype, int... rows>
constexpr FormatKernels make_format_kernels(int direct_tiles, IntList<rows...>) {
  return {PanelReader<dtype>::kBlock,
          PanelReader<dtype>::kBlockBytes,
          sizeof...(rows),
          direct_tiles,
          {panels_abreast(rows)...},
          {&run_tile<dtype, rows, 1>...},
          {&run_tile<dtype, rows, panels_abreast(rows)>...},
          {&run_tile<dtype, rows, panels_abreast(rows + 1)>...},
          &decode_panel<dtype>,
          dtype == DType::kF32    ? 1 << 30
          : dtype == DType::kBF16 ? 16
                                  : 0};
}

// Types that cost more to decode than to read twice: beyond two rows their panels are decoded
// into the cache first. Fewer panels abreast than sums would allow: their scales want registers.
constexpr int few_abreast(int rows) {
  return kSums >= 24 ? panels_abreast(rows) : rows == 1 ? 3 : 2;
}

template <DType dtype>
constexpr FormatKernels make_format_kernels() {
  return {PanelReader<dtype>::kBlock,
          PanelReader<dtype>::kBlockBytes,
          2,
          1,
          {few_abreast(1), few_abreast(2)},
          {&run_tile<dtype, 1, 1>, &run_tile<dtype, 2, 1>},
          {&run_tile<dtype, 1, few_abreast(1)>, &run_tile<dtype, 2, few_abreast(2)>},
          {},
          &decode_panel<dtype>};
}

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE

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

template <DType dtype, int kRows, int kPanels>
void run_tile(const TileParams& p) {
  using Reader = PanelReader<dtype>;
  constexpr int kColumns = kPanels * kVectors;
  constexpr int kSubs = Reader::kBlock < 32 ? 1 : Reader::kBlock / 32;
  constexpr int kGroups = Reader::kBlock < 32 ? 1 : 4;
  constexpr int64_t kBlockStride = int64_t{Reader::kBlockBytes} * kPanel;
  F sums[kRows][kColumns];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      sums[row][c] = p.resume ? load(p.sums + row * p.sums_stride + c * kLanes) : splat(0.0F);
    }
  }
  const float* x = p.x;
  const uint8_t* block = p.panel;
  for (int64_t index = 0; index < p.num_blocks; ++index, block += kBlockStride) {
    for (int sub = 0; sub < kSubs; ++sub) {
      Reader readers[kColumns];
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        readers[c].start(block + c / kVectors * p.panel_bytes, sub, c % kVectors * kLanes);
      }
      for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c) {
          readers[c].group(block + c / kVectors * p.panel_bytes, sub, g, c % kVectors * kLanes);
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
          F w[kColumns];
#pragma GCC unroll 8
          for (int c = 0; c < kColumns; ++c) {
            w[c] = readers[c].value(j);
          }
#pragma GCC unroll 8
          for (int row = 0; row < kRows; ++row) {
            const F value = splat(x[j * kRows + row]);
#pragma GCC unroll 8
            for (int c = 0; c < kColumns; ++c) {
              sums[row][c] = mul_add(value, w[c], sums[row][c]);
            }
          }
        }
        x += 8 * kRows;
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      store(p.sums + row * p.sums_stride + c * kLanes, sums[row][c]);
    }
  }
}

// One panel's blocks as f32 [k][kPanel], for reuse by many tiles.
template <DType dtype>
void decode_panel(const uint8_t* block, int64_t num_blocks, float* out) {
  using Reader = PanelReader<dtype>;
  constexpr int kSubs = Reader::kBlock < 32 ? 1 : Reader::kBlock / 32;
  constexpr int kGroups = Reader::kBlock < 32 ? 1 : 4;
  for (int64_t index = 0; index < num_blocks; ++index) {
    for (int sub = 0; sub < kSubs; ++sub) {
      Reader readers[kVectors];
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        readers[c].start(block, sub, c * kLanes);
      }
      for (int g = 0; g < kGroups; ++g, out += 8 * kPanel) {
#pragma GCC unroll 8
        for (int c = 0; c < kVectors; ++c) {
          readers[c].group(block, sub, g, c * kLanes);
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
#pragma GCC unroll 8
          for (int c = 0; c < kVectors; ++c) {
            store(out + j * kPanel + c * kLanes, readers[c].value(j));
          }
        }
      }
    }
    block += int64_t{Reader::kBlockBytes} * kPanel;
  }
}

template <int... values>
struct IntList {};

#if defined(__AVX512F__)
using AllRows = IntList<1, 2, 3, 4, 5, 6, 7, 8>;
#elif defined(__AVX2__)
using AllRows = IntList<1, 2, 3, 4, 5, 6>;
#else
using AllRows = IntList<1, 2, 3, 4>;
#endif
// Types that cost more to decode than to read twice: beyond two rows their panels are decoded
// into the cache first.
using FewRows = IntList<1, 2>;

template <DType dtype, int... rows>
constexpr FormatKernels make_format_kernels(IntList<rows...>) {
  return {PanelReader<dtype>::kBlock,
          PanelReader<dtype>::kBlockBytes,
          sizeof...(rows),
          {&run_tile<dtype, rows, 1>...},
          {&run_tile<dtype, rows, panels_abreast(rows)>...},
          &decode_panel<dtype>};
}

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE

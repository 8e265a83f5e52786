// The inner loop of a convolution: output positions ("rows") times a panel of output channels,
// summed in registers over a list of segments. A segment is one tap over a run of channels; each
// row has its own pointer, so rows may lie in different image rows, frames or tensors, and rows
// whose tap falls into padding point at zeros.
//
// Every output element is one chain sum = fma(x, w, sum) over ascending (tap, channel), begun at
// zero; where a sum is put aside between two calls it is stored as f32, which changes nothing.
#pragma once

#include "mstar/kernels/cpu/matmul_vec-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

// A full panel is kConvVectors wide and its tiles kConvRows high: of the registers, 24 of 32
// (AVX-512), 12 of 16 (AVX2) or 8 of 16 are sums.
constexpr int kConvVectors = kLanes == 16 ? 3 : 2;
constexpr int kConvRows = kLanes == 16 ? 8 : kLanes == 8 ? 6 : 4;
constexpr int kConvColumns = kConvVectors * kLanes;

// Rows of a tile by the vectors of its panel: enough sums in flight for the latency of the
// multiply-adds, as many as the registers hold.
constexpr int tile_rows(int vectors) {
  return vectors == kConvVectors ? kConvRows : vectors == 1 && kLanes == 4 ? 8 : 12;
}

constexpr int kMaxTileRows = 12;

struct Segment {
  const uint8_t* rows[kMaxTileRows];
  int64_t filter_offset;  // bytes into the panel
};

struct ConvTileParams {
  const Segment* segments;
  int num_segments;
  int depth;              // channels of a segment
  const uint8_t* filter;  // the panel
  float* sums;            // [rows][vectors * kLanes]
  bool resume;            // add to `sums` instead of starting at zero
};

MSTAR_INLINE float load_float(const uint8_t* p) {
  float x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}

// sum += x * w in place, written out on AVX-512 too.
MSTAR_INLINE void add_product(F& sum, F x, F w) {
#if defined(__AVX512F__)
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
#else
  accumulate(sum, x, w);
#endif
}

// Words are read once for their lower and once for their upper half. Left alone, the compiler
// keeps all of them between the two and spills the sums instead (2.5 times slower on AVX2).
MSTAR_INLINE void forget_loads() {
  asm volatile("" : : : "memory");
}

// One channel: sums += x (one number a row) times w (one vector of columns after another).
template <int kRows, int kCols>
MSTAR_INLINE void step(F (&sums)[kRows][kCols],
                       const uint8_t* const (&rows)[kRows],
                       int64_t channel,
                       const F (&w)[kCols]) {
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    const F x = splat(load_float(rows[row] + 4 * channel));
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      add_product(sums[row][c], x, w[c]);
    }
  }
}

template <bool w_is_bf16, int odd, int kCols>
MSTAR_INLINE void load_pair(const uint8_t* filter, F (&w)[kCols]) {
#pragma GCC unroll 4
  for (int c = 0; c < kCols; ++c) {
    if constexpr (w_is_bf16) {
      const U word = load_words(filter + 4 * kLanes * c);
      w[c] = as_float(odd ? word & 0xffff0000U : word << 16);
    } else {
      w[c] = load(reinterpret_cast<const float*>(filter) + kLanes * (kCols * odd + c));
    }
  }
}

// f32 pixels; filters of both types.
template <bool w_is_bf16, int kRows, int kCols>
MSTAR_INLINE void run_segment(F (&sums)[kRows][kCols],
                              const uint8_t* const (&rows)[kRows],
                              const uint8_t* filter,
                              int depth) {
  constexpr int kPairBytes = kCols * kLanes * (w_is_bf16 ? 4 : 8);
  F w[kCols];
#pragma GCC unroll 2
  for (int64_t channel = 0; channel + 2 <= depth; channel += 2, filter += kPairBytes) {
    load_pair<w_is_bf16, 0>(filter, w);
    step(sums, rows, channel, w);
    forget_loads();
    load_pair<w_is_bf16, 1>(filter, w);
    step(sums, rows, channel + 1, w);
    forget_loads();
  }
  if (depth % 2 != 0) {
    load_pair<w_is_bf16, 0>(filter, w);
    step(sums, rows, depth - 1, w);
  }
}

#if defined(__AVX512BF16__)

// Two channels of bf16 pixels in each lane times as many of the filter.
template <int kRows, int kCols>
MSTAR_INLINE void step_pair(F (&sums)[kRows][kCols],
                            const uint32_t (&x)[kRows],
                            const uint8_t* filter) {
  U w[kCols];
#pragma GCC unroll 4
  for (int c = 0; c < kCols; ++c) {
    w[c] = load_words(filter + 4 * kLanes * c);
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    const U pair = splat_word(x[row]);
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      sums[row][c] = _mm512_dpbf16_ps(
          sums[row][c], reinterpret_cast<__m512bh>(pair), reinterpret_cast<__m512bh>(w[c]));
    }
  }
}

// bf16 pixels, bf16 filter.
template <int kRows, int kCols>
MSTAR_INLINE void run_segment_pairs(F (&sums)[kRows][kCols],
                                    const uint8_t* const (&rows)[kRows],
                                    const uint8_t* filter,
                                    int depth) {
  constexpr int kPairBytes = kCols * kLanes * 4;
  uint32_t x[kRows];
  const int64_t pairs = depth / 2;
#pragma GCC unroll 2
  for (int64_t pair = 0; pair < pairs; ++pair, filter += kPairBytes) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      __builtin_memcpy(&x[row], rows[row] + 4 * pair, sizeof(uint32_t));
    }
    step_pair(sums, x, filter);
  }
  if (depth % 2 != 0) {  // the last channel of an odd number has no partner to read
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      uint16_t last;
      __builtin_memcpy(&last, rows[row] + 4 * pairs, sizeof(last));
      x[row] = last;
    }
    step_pair(sums, x, filter);
  }
}

#endif

// How pixels and filter of a tile are stored.
enum class ConvTypes : uint8_t { kF32, kF32TimesBf16, kBf16Pairs };

template <ConvTypes kTypes, int kCols>
void run_conv_tile(const ConvTileParams& p) {
  constexpr int kRows = tile_rows(kCols);
  F sums[kRows][kCols];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      sums[row][c] = p.resume ? load(p.sums + (row * kCols + c) * kLanes) : splat(0.0F);
    }
  }
  for (int index = 0; index < p.num_segments; ++index) {
    const uint8_t* rows[kRows];
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      rows[row] = p.segments[index].rows[row];
    }
    const uint8_t* filter = p.filter + p.segments[index].filter_offset;
    if constexpr (kTypes == ConvTypes::kBf16Pairs) {
      run_segment_pairs(sums, rows, filter, p.depth);
    } else {
      run_segment<kTypes == ConvTypes::kF32TimesBf16>(sums, rows, filter, p.depth);
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      store(p.sums + (row * kCols + c) * kLanes, sums[row][c]);
    }
  }
}

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE

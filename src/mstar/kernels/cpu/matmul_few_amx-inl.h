// A few rows of bf16 activations times panels of bf16 or int8 by vectors, to the very bits of the
// tiles. Loads of tiles keep too few lines of memory on their way (62 to 66 % of the bandwidth
// where vectors reach all of it), and with a few rows memory is all that counts.
//
// What a product of tiles does to an output in a step of 32 k (Intel's instruction reference,
// TDPBF16PS): the terms of even k and those of odd k are two chains of fused multiply-adds begun at
// zero, which are added, and then added to the sum; subnormals are zeros, going in and coming out.
#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/amx-inl.h"
#include "mstar/kernels/cpu/matmul_epilogue-inl.h"
#include "mstar/kernels/cpu/matmul_kernels.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"
#include "mstar/kernels/cpu/panel_reader-inl.h"

namespace mstar::amx {
namespace {

constexpr int kMostFewRows = 4;
constexpr int kFewAbreast[kMostFewRows] = {8, 6, 4, 3};  // panels: two chains for each output
constexpr int64_t kFewScratchFloats = 144 << 10;  // rows x k, as f32; more goes through tiles
constexpr int64_t kFewBytesAhead = 1024;

// Makes subnormals zeros on this thread; returns what _mm_setcsr() takes to end that. No object
// whose destructor would: a kernel's file has no room for exceptions.
MSTAR_INLINE unsigned flush_subnormals() {
  constexpr unsigned kFlushToZero = 1U << 15;
  constexpr unsigned kDenormalsAreZero = 1U << 6;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushToZero | kDenormalsAreZero);
  return before;
}

// sum += *x * w in place, `x` read as often as it is used. Written out, because the compiler would
// rather keep the activations of all eight k in registers, and the sums on the stack.
MSTAR_INLINE void accumulate_one(F& sum, const float* x, F w) {
  F moved = sum;  // by value: an operand in memory would keep all sums there
  asm("vfmadd231ps %1%{1to16%}, %2, %0" : "+v"(moved) : "m"(*x), "v"(w));
  sum = moved;
}

struct FewRows {
  const float* x;  // [rows][x_stride]
  int64_t x_stride;
  const uint8_t* panel;
  int64_t panel_bytes;
  int64_t num_steps;  // of k
  float* sums;        // [rows][panels][kPanel]
};

// Called by pointer, so that the compiler moves nothing of it out of what flush_subnormals()
// begins.
template <DType dtype, int kRows, int kPanels>
void run_few_rows(const FewRows& p) {
  constexpr int64_t kGroupBytes = int64_t{PanelReader<dtype>::kBlockBytes} * kPanel;  // of 8 k
  F sums[kRows][kPanels] = {};
  const float* x[kRows];
  for (int row = 0; row < kRows; ++row) {
    x[row] = p.x + row * p.x_stride;
  }
  int64_t k = 0;
  const uint8_t* group = p.panel;
  const int64_t panel_bytes = p.panel_bytes;
  for (int64_t step = 0; step < p.num_steps; ++step) {
    F chains[kRows][kPanels][2] = {};  // of even and of odd k
    for (int g = 0; g < kTileDepth / 8; ++g, group += kGroupBytes, k += 8) {
      PanelReader<dtype> readers[kPanels];
#pragma GCC unroll 8
      for (int c = 0; c < kPanels; ++c) {
        const uint8_t* at = group + c * panel_bytes;
        readers[c].group(at, 0, 0);
#pragma GCC unroll 4
        for (int64_t line = 0; line < kGroupBytes; line += 64) {
          asm volatile("prefetcht0 %0" : : "m"(at[line + kFewBytesAhead]));
        }
      }
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        asm volatile("" ::: "memory");  // weights are decoded as they are needed
#pragma GCC unroll 8
        for (int c = 0; c < kPanels; ++c) {
          const F weight = readers[c].value(j);
#pragma GCC unroll 4
          for (int row = 0; row < kRows; ++row) {
            accumulate_one(chains[row][c][j % 2], x[row] + k + j, weight);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int c = 0; c < kPanels; ++c) {
        sums[row][c] = sums[row][c] + (chains[row][c][0] + chains[row][c][1]);
      }
    }
  }
  __builtin_memcpy(p.sums, sums, sizeof(sums));
}

struct FewRowsFunctions {
  void (*one)(const FewRows&);
  void (*abreast)(const FewRows&);  // kFewAbreast panels
};

template <DType dtype>
FewRowsFunctions few_rows_functions(int64_t rows) {
  static constexpr FewRowsFunctions kFunctions[kMostFewRows] = {
      {&run_few_rows<dtype, 1, 1>, &run_few_rows<dtype, 1, kFewAbreast[0]>},
      {&run_few_rows<dtype, 2, 1>, &run_few_rows<dtype, 2, kFewAbreast[1]>},
      {&run_few_rows<dtype, 3, 1>, &run_few_rows<dtype, 3, kFewAbreast[2]>},
      {&run_few_rows<dtype, 4, 1>, &run_few_rows<dtype, 4, kFewAbreast[3]>}};
  return kFunctions[rows - 1];
}

// From row to row of widened activations: a power of two would bring all of them to one set of the
// first-level cache.
int64_t few_x_stride(const MatmulProblem& p) {
  return p.weight.k_padded + kLanes;
}

bool are_few_rows(const MatmulProblem& p) {
  return p.m <= kMostFewRows && p.m * few_x_stride(p) <= kFewScratchFloats;
}

// The only tile of rows, [k / 32][rows][32] bf16, as f32 [rows][few_x_stride].
void widen_few_rows(const MatmulProblem& p, float* out) {
  const auto* x = static_cast<const uint16_t*>(p.x);
  const int64_t stride = few_x_stride(p);
  for (int64_t k = 0; k < p.weight.k_padded; k += kTileDepth) {
    for (int64_t row = 0; row < p.m; ++row, x += kTileDepth) {
      store(out + row * stride + k, load_bf16(x));
      store(out + row * stride + k + kLanes, load_bf16(x + kLanes));
    }
  }
}

void run_few(const MatmulProblem& p, const MatmulRange& range) {
  alignas(64) float x[kFewScratchFloats];
  alignas(64) float sums[kSums * kPanel];
  widen_few_rows(p, x);
  const FewRowsFunctions functions = p.weight.dtype == DType::kI8
                                         ? few_rows_functions<DType::kI8>(p.m)
                                         : few_rows_functions<DType::kBF16>(p.m);
  FewRows few{
      x, few_x_stride(p), nullptr, p.weight.panel_bytes, p.weight.k_padded / kTileDepth, sums};
  const int64_t abreast = kFewAbreast[p.m - 1];
  for (int64_t panel = range.panel_begin; panel < range.panel_end;) {
    const bool many = panel + abreast <= range.panel_end;
    few.panel = p.weight.data + panel * p.weight.panel_bytes;
    const unsigned before = flush_subnormals();
    (many ? functions.abreast : functions.one)(few);
    _mm_setcsr(before);
    const int64_t width = (many ? abreast : 1) * kPanel;
    finish_rows(p, 0, p.m, panel * kPanel, width, sums, width);
    panel += many ? abreast : 1;
  }
}

}  // namespace
}  // namespace mstar::amx

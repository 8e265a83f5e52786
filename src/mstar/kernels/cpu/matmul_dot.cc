// bf16 weights times bf16 activations through the machine's dot product of pairs. Its rounding
// differs from a chain of multiply-adds (subnormals count as zero), but each output element is
// still one chain over ascending k. Empty for the sets without it.
#include "mstar/kernels/cpu/matmul_formats.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

#if defined(__AVX512BF16__)

namespace {

// The panel's words are pairs of k, as are x's: [k / 2][kRows] words.
template <int kRows, int kPanels>
void run_tile(const TileParams& p) {
  F sums[kRows][kPanels];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int c = 0; c < kPanels; ++c) {
      sums[row][c] = p.resume ? load(p.sums + row * p.sums_stride + c * kLanes) : splat(0.0F);
    }
  }
  const auto* x = static_cast<const uint32_t*>(p.x);
  const uint8_t* block = p.panel;
  const int64_t panel_bytes = p.panel_bytes;
  for (int64_t left = p.num_blocks; left > 0; --left, block += 16 * kPanel, x += 4 * kRows) {
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      U words[kPanels];
#pragma GCC unroll 8
      for (int c = 0; c < kPanels; ++c) {
        words[c] = load_words(block + c * panel_bytes + 4 * kPanel * pair);
      }
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const U value = splat_word(x[pair * kRows + row]);
#pragma GCC unroll 8
        for (int c = 0; c < kPanels; ++c) {
          sums[row][c] = _mm512_dpbf16_ps(sums[row][c],
                                          reinterpret_cast<__m512bh>(value),
                                          reinterpret_cast<__m512bh>(words[c]));
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int c = 0; c < kPanels; ++c) {
      store(p.sums + row * p.sums_stride + c * kLanes, sums[row][c]);
    }
  }
}

template <int... rows>
constexpr FormatKernels make_kernels(IntList<rows...>) {
  return {8,
          16,
          sizeof...(rows),
          4,
          {panels_abreast(rows)...},
          {&run_tile<rows, 1>...},
          {&run_tile<rows, panels_abreast(rows)>...},
          {&run_tile<rows, panels_abreast(rows + 1)>...},
          nullptr,
          1 << 30};
}

}  // namespace

extern const FormatKernels format_bf16_dot = make_kernels(AllRows{});

#else

extern const FormatKernels format_bf16_dot{};

#endif

}  // namespace mstar::MSTAR_ISA_NAMESPACE

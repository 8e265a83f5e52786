// Block-quantized weights times activations that are rounded to int8 in blocks of 32, each with a
// scale of its own: integer dot products, eight times fewer operations a weight than exact f32.
// A block's sum is an exact integer, and the blocks' sums are added in f32 over ascending k, so a
// batch equals its singles bit for bit here too.
#include "mstar/kernels/cpu/matmul_formats.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"
#include "mstar/tensor/dtype.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

#if defined(__AVX512VNNI__)
constexpr bool kVnni = true;
#else
constexpr bool kVnni = false;
#endif

// sum + 4 products in each lane, codes unsigned (at most 15 where kSmall) and x signed bytes.
// Where kSmall the lanes may be pairs of 16-bit sums, good for 32 values of k; see total().
template <bool kSmall>
MSTAR_INLINE U add_products(U sum, U codes, U x) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<U>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum),
                                                 reinterpret_cast<__m512i>(codes),
                                                 reinterpret_cast<__m512i>(x)));
#elif defined(__AVX512F__)
  const auto a = reinterpret_cast<__m512i>(codes);
  const auto b = reinterpret_cast<__m512i>(x);
  if constexpr (kSmall) {
    return reinterpret_cast<U>(
        _mm512_add_epi16(reinterpret_cast<__m512i>(sum), _mm512_maddubs_epi16(a, b)));
  }
  // Signed times signed: pairs of |w| * (x with w's sign) stay within 16 bits.
  const __m512i w = _mm512_xor_si512(a, _mm512_set1_epi8(-128));
  const __m512i moved = _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(w), _mm512_setzero_si512(), b);
  const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w), moved);
  return sum + reinterpret_cast<U>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#elif defined(__AVX2__)
  const auto a = reinterpret_cast<__m256i>(codes);
  const auto b = reinterpret_cast<__m256i>(x);
  if constexpr (kSmall) {
    return reinterpret_cast<U>(
        _mm256_add_epi16(reinterpret_cast<__m256i>(sum), _mm256_maddubs_epi16(a, b)));
  }
  const __m256i w = _mm256_xor_si256(a, _mm256_set1_epi8(-128));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(b, w));
  return sum + reinterpret_cast<U>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
  for (int byte = 0; byte < 4; ++byte) {
    const I signed_x = reinterpret_cast<I>(x << (24 - 8 * byte)) >> 24;
    sum += ((codes >> (8 * byte)) & 255U) * reinterpret_cast<U>(signed_x);
  }
  return sum;
#endif
}

template <bool kSmall>
MSTAR_INLINE I total(U sum) {
#if defined(__AVX512F__) && !defined(__AVX512VNNI__)
  if constexpr (kSmall) {
    return reinterpret_cast<I>(
        _mm512_madd_epi16(reinterpret_cast<__m512i>(sum), _mm512_set1_epi16(1)));
  }
#elif defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (kSmall) {
    return reinterpret_cast<I>(
        _mm256_madd_epi16(reinterpret_cast<__m256i>(sum), _mm256_set1_epi16(1)));
  }
#endif
  return reinterpret_cast<I>(sum);
}

template <DType dtype>
struct Codes;

template <>
struct Codes<DType::kQ8_0> {
  static constexpr bool kSmall = false;
  static constexpr int kBlockBytes = 68;
  // What add_products leaves in a sum for each unit of the x's sum.
#if defined(__AVX2__)
  static constexpr int kOffset = kVnni ? 128 : 0;
#else
  static constexpr int kOffset = 128;
#endif
  U bytes[2];

  MSTAR_INLINE void load_group(const uint8_t* block, int sub, int g) {
    const uint8_t* p = block + (4 + 32 * sub + 8 * g) * kPanel;
    bytes[0] = load_words(p);
    bytes[1] = load_words(p + 4 * kPanel);
  }
};

template <>
struct Codes<DType::kQ4_0> {
  static constexpr bool kSmall = true;
  static constexpr int kBlockBytes = 36;
  static constexpr int kOffset = 8;
  U bytes[2];  // values 0, 2, 4, 6 and 1, 3, 5, 7

  MSTAR_INLINE void load_group(const uint8_t* block, int sub, int g) {
    const U word = load_words(block + (4 + 16 * sub + 4 * g) * kPanel);
    bytes[0] = word & 0x0f0f0f0fU;
    bytes[1] = (word >> 4) & 0x0f0f0f0fU;
  }
};

MSTAR_INLINE int32_t int_at(const uint8_t* p) {
  int32_t value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

MSTAR_INLINE float float_at(const uint8_t* p) {
  float value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

// 32 values of k. `x`: [kRows] scales, [kRows] sums of codes, [8][kRows] words of four codes.
template <DType dtype, int kRows, int kPanels>
MSTAR_INLINE void add_block(const uint8_t* block,
                            int64_t panel_bytes,
                            int sub,
                            const uint8_t* x,
                            F (&sums)[kRows][kPanels]) {
  U products[kRows][kPanels] = {};
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    asm volatile("" ::: "memory");
#pragma GCC unroll 8
    for (int c = 0; c < kPanels; ++c) {
      Codes<dtype> codes;
      codes.load_group(block + c * panel_bytes, sub, g);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const uint8_t* word = x + 8 * kRows + ((2 * g + half) * kRows + row) * 4;
          products[row][c] = add_products<Codes<dtype>::kSmall>(
              products[row][c], codes.bytes[half], splat_word(static_cast<uint32_t>(int_at(word))));
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < kPanels; ++c) {
    const F d = load_halfs(block + c * panel_bytes + 2 * kPanel * sub);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const int32_t offset = Codes<dtype>::kOffset * int_at(x + 4 * (kRows + row));
      const I dot = total<Codes<dtype>::kSmall>(products[row][c]) -
                    reinterpret_cast<I>(splat_word(static_cast<uint32_t>(offset)));
      const F scale = d * splat(float_at(x + 4 * row));
      sums[row][c] = mul_add(__builtin_convertvector(dot, F), scale, sums[row][c]);
    }
  }
}

template <DType dtype, int kRows, int kPanels>
void run_tile(const TileParams& p) {
  F sums[kRows][kPanels] = {};
  const auto* x = static_cast<const uint8_t*>(p.x);
  const uint8_t* block = p.panel;
  const int64_t panel_bytes = p.panel_bytes;
  for (int64_t left = p.num_blocks; left > 0; --left) {
    for (int sub = 0; sub < 2; ++sub, x += int64_t{kInt8BlockBytes} * kRows) {
      add_block<dtype, kRows, kPanels>(block, panel_bytes, sub, x, sums);
    }
    block += Codes<dtype>::kBlockBytes * kPanel;
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int c = 0; c < kPanels; ++c) {
      store(p.sums + row * p.sums_stride + c * kLanes, sums[row][c]);
    }
  }
}

// Integer sums, and the f32 ones that may wait in memory.
constexpr int abreast(int rows) {
  return kSums / 3 * 2 / rows > 4 ? 4 : kSums / 3 * 2 / rows > 0 ? kSums / 3 * 2 / rows : 1;
}

template <DType dtype, int... rows>
constexpr FormatKernels make_kernels(IntList<rows...>) {
  return {64,
          Codes<dtype>::kBlockBytes,
          sizeof...(rows),
          1 << 30,  // nothing to decode
          {abreast(rows)...},
          {&run_tile<dtype, rows, 1>...},
          {&run_tile<dtype, rows, abreast(rows)>...},
          {&run_tile<dtype, rows, abreast(rows + 1)>...},
          nullptr};
}

}  // namespace

extern const FormatKernels format_q8_0_int8 = make_kernels<DType::kQ8_0>(AllRows{});
extern const FormatKernels format_q4_0_int8 = make_kernels<DType::kQ4_0>(AllRows{});

}  // namespace mstar::MSTAR_ISA_NAMESPACE

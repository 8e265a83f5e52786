// Block-quantized weights times activations that are rounded to int8 in blocks of 32, each with a
// scale of its own: integer dot products, eight times fewer operations a weight than exact f32.
// A block's sum is an exact integer, and the blocks' sums are added in f32 over ascending k, so a
// batch equals its singles bit for bit here too.
#pragma once

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

// Keeps integer sums in the order they are written: the compiler would add them as trees and spill
// the products that wait for it (1.3 times slower on AVX2).
MSTAR_INLINE U in_order(U sum) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  asm("" : "+x"(sum));
#endif
  return sum;
}

// sum + 4 products in each lane, codes unsigned and of so many bits, x signed bytes. Where they are
// 4 the lanes may be pairs of 16-bit sums, good for 32 values of k; see total(). Where they are 8
// the codes may count as biased by 128; see Codes::kOffset.
template <int kBits>
MSTAR_INLINE U add_products(U sum, U codes, U x) {
#if defined(__AVX512VNNI__)
  // Written out: around its intrinsic the compiler copies the sums.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(x));
  return sum;
#elif defined(__AVX512F__)
  const auto a = reinterpret_cast<__m512i>(codes);
  const auto b = reinterpret_cast<__m512i>(x);
  if constexpr (kBits < 8) {  // pairs stay within 16 bits
    const __m512i pairs = _mm512_maddubs_epi16(a, b);
    return kBits == 4 ? reinterpret_cast<U>(_mm512_add_epi16(reinterpret_cast<__m512i>(sum), pairs))
                      : sum + reinterpret_cast<U>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  // Signed times signed: pairs of |w| * (x with w's sign) stay within 16 bits.
  const __m512i w = _mm512_xor_si512(a, _mm512_set1_epi8(-128));
  const __m512i moved = _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(w), _mm512_setzero_si512(), b);
  const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w), moved);
  return sum + reinterpret_cast<U>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#elif defined(__AVX2__)
  const auto a = reinterpret_cast<__m256i>(codes);
  const auto b = reinterpret_cast<__m256i>(x);
  if constexpr (kBits < 8) {
    const __m256i pairs = _mm256_maddubs_epi16(a, b);
    return in_order(
        kBits == 4 ? reinterpret_cast<U>(_mm256_add_epi16(reinterpret_cast<__m256i>(sum), pairs))
                   : sum + reinterpret_cast<U>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
  }
  const __m256i w = _mm256_xor_si256(a, _mm256_set1_epi8(-128));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(b, w));
  return in_order(sum + reinterpret_cast<U>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
#else
  for (int byte = 0; byte < 4; ++byte) {
    const I signed_x = reinterpret_cast<I>(x << (24 - 8 * byte)) >> 24;
    sum += ((codes >> (8 * byte)) & 255U) * reinterpret_cast<U>(signed_x);
  }
  return sum;
#endif
}

template <int kBits>
MSTAR_INLINE I total(U sum) {
#if defined(__AVX512F__) && !defined(__AVX512VNNI__)
  if constexpr (kBits == 4) {
    return reinterpret_cast<I>(
        _mm512_madd_epi16(reinterpret_cast<__m512i>(sum), _mm512_set1_epi16(1)));
  }
#elif defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (kBits == 4) {
    return reinterpret_cast<I>(
        _mm256_madd_epi16(reinterpret_cast<__m256i>(sum), _mm256_set1_epi16(1)));
  }
#endif
  return reinterpret_cast<I>(sum);
}

// Codes<dtype>: a panel of that type (layouts: panel_reader-inl.h) as bytes to be dotted.
//   kSubs       runs of 32 values in a block of kBlockBytes
//   kHalves     pieces of such a run with a scale of their own
//   kOffset     what add_products leaves in a sum for each unit of the x's sum
//   kMinimum    values have a minimum besides a scale
//   load_group  eight values: two words of four codes, in the order that x's are packed in
//   scale, minimum   of a piece
template <DType dtype>
struct Codes;

template <>
struct Codes<DType::kQ8_0> {
  static constexpr int kBits = 8;
  static constexpr int kSubs = 2;
  static constexpr int kHalves = 1;
  static constexpr int kBlockBytes = 68;
  static constexpr bool kMinimum = false;
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

  static MSTAR_INLINE F scale(const uint8_t* block, int sub, int) {
    return load_halfs(block + 2 * kPanel * sub);
  }
};

// Values 0, 2, 4, 6 and 1, 3, 5, 7 of a word of nibbles.
MSTAR_INLINE void split_nibbles(const uint8_t* p, U (&bytes)[2]) {
  const U word = load_words(p);
  bytes[0] = word & 0x0f0f0f0fU;
  bytes[1] = (word >> 4) & 0x0f0f0f0fU;
}

// Puts bits that stand at `at` and `at + step` of each byte above the nibbles of bytes[0] and [1].
MSTAR_INLINE void add_high_bits(U high, int at, int step, uint32_t mask, U (&bytes)[2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half, at += step) {
    bytes[half] |= (at < 4 ? high << (4 - at) : high >> (at - 4)) & mask;
  }
}

template <>
struct Codes<DType::kQ4_0> {
  static constexpr int kBits = 4;
  static constexpr int kSubs = 2;
  static constexpr int kHalves = 1;
  static constexpr int kBlockBytes = 36;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 8;
  U bytes[2];

  MSTAR_INLINE void load_group(const uint8_t* block, int sub, int g) {
    split_nibbles(block + (4 + 16 * sub + 4 * g) * kPanel, bytes);
  }

  static MSTAR_INLINE F scale(const uint8_t* block, int sub, int) {
    return load_halfs(block + 2 * kPanel * sub);
  }
};

// q4_1, q5_0, q5_1: blocks of 32.
template <bool kFifthBit, bool kHasMinimum>
struct NibbleCodes {
  static constexpr int kBits = kFifthBit ? 5 : 4;
  static constexpr int kSubs = 1;
  static constexpr int kHalves = 1;
  static constexpr bool kMinimum = kHasMinimum;
  static constexpr int kOffset = kMinimum ? 0 : kFifthBit ? 16 : 8;
  static constexpr int kHighAt = kMinimum ? 4 : 2;
  static constexpr int kWordsAt = kHighAt + (kFifthBit ? 4 : 0);
  static constexpr int kBlockBytes = kWordsAt + 16;
  U bytes[2];

  MSTAR_INLINE void load_group(const uint8_t* block, int, int g) {
    split_nibbles(block + (kWordsAt + 4 * g) * kPanel, bytes);
    if constexpr (kFifthBit) {
      add_high_bits(load_words(block + kHighAt * kPanel), 2 * g, 1, 0x10101010U, bytes);
    }
  }

  static MSTAR_INLINE F scale(const uint8_t* block, int, int) { return load_halfs(block); }

  static MSTAR_INLINE F minimum(const uint8_t* block, int) {
    return load_halfs(block + 2 * kPanel);
  }
};

template <>
struct Codes<DType::kQ4_1> : NibbleCodes<false, true> {};

template <>
struct Codes<DType::kQ5_0> : NibbleCodes<true, false> {};

template <>
struct Codes<DType::kQ5_1> : NibbleCodes<true, true> {};

// q4_k, q5_k: blocks of 256 with a scale and a minimum for each 32.
template <bool kFifthBit>
struct SuperNibbleCodes {
  static constexpr int kBits = kFifthBit ? 5 : 4;
  static constexpr int kSubs = 8;
  static constexpr int kHalves = 1;
  static constexpr bool kMinimum = true;
  static constexpr int kOffset = 0;
  static constexpr int kWordsAt = 20 + (kFifthBit ? 32 : 0);
  static constexpr int kBlockBytes = kWordsAt + 128;
  U bytes[2];

  MSTAR_INLINE void load_group(const uint8_t* block, int sub, int g) {
    split_nibbles(block + (kWordsAt + 16 * sub + 4 * g) * kPanel, bytes);
    if constexpr (kFifthBit) {
      add_high_bits(load_words(block + (20 + 4 * sub) * kPanel), 2 * g, 1, 0x10101010U, bytes);
    }
  }

  static MSTAR_INLINE F scale(const uint8_t* block, int sub, int) {
    return load_halfs(block) * load_u8(block + (4 + sub) * kPanel);
  }

  static MSTAR_INLINE F minimum(const uint8_t* block, int sub) {
    return -(load_halfs(block + 2 * kPanel) * load_u8(block + (12 + sub) * kPanel));
  }
};

template <>
struct Codes<DType::kQ4_K> : SuperNibbleCodes<false> {};

template <>
struct Codes<DType::kQ5_K> : SuperNibbleCodes<true> {};

template <>
struct Codes<DType::kQ6_K> {
  static constexpr int kBits = 6;
  static constexpr int kSubs = 8;
  static constexpr int kHalves = 2;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 32;
  static constexpr int kBlockBytes = 210;
  U bytes[2];

  MSTAR_INLINE void load_group(const uint8_t* block, int sub, int g) {
    split_nibbles(block + (82 + 16 * sub + 4 * g) * kPanel, bytes);
    const U high = load_words(block + (18 + 8 * sub + 4 * (g / 2)) * kPanel);
    add_high_bits(high, 4 * (g % 2), 2, 0x30303030U, bytes);
  }

  static MSTAR_INLINE F scale(const uint8_t* block, int sub, int half) {
    return load_halfs(block) * load_i8(block + (2 + 2 * sub + half) * kPanel);
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

// The sum of a row's codes in piece `half` of kHalves.
template <int kHalves>
MSTAR_INLINE int32_t code_sum(const uint8_t* p, int half) {
  const int32_t both = int_at(p);
  const int32_t first = static_cast<int16_t>(both);
  const int32_t second = both >> 16;
  return kHalves == 1 ? first + second : half == 0 ? first : second;
}

// Piece `half` of 32 values of k. `x`: [kRows] scales, [kRows] sums of codes, [8][kRows] words of
// four codes.
template <DType dtype, int kRows, int kPanels>
MSTAR_INLINE void add_piece(const uint8_t* block,
                            int64_t panel_bytes,
                            int64_t prefetch_bytes,
                            int sub,
                            int half,
                            const uint8_t* x,
                            F (&sums)[kRows][kPanels]) {
  using C = Codes<dtype>;
  constexpr int kGroups = 4 / C::kHalves;
  constexpr int kGroupBytes = C::kBlockBytes * kPanel / (4 * C::kSubs);
  constexpr int kGroupsOfLine = kGroupBytes > 48 ? 1 : 2;
  U products[kRows][kPanels] = {};
#pragma GCC unroll 4
  for (int g = half * kGroups; g < (half + 1) * kGroups; ++g) {
    asm volatile("" ::: "memory");
    if (prefetch_bytes > 0 && g % kGroupsOfLine == 0) {
#pragma GCC unroll 8
      for (int c = 0; c < kPanels; ++c) {
        prefetch<1>(block + c * panel_bytes + prefetch_bytes + (4 * sub + g) * kGroupBytes);
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < kPanels; ++c) {
      C codes;
      codes.load_group(block + c * panel_bytes, sub, g);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
        for (int word = 0; word < 2; ++word) {
          const uint8_t* at = x + 8 * kRows + ((2 * g + word) * kRows + row) * 4;
          products[row][c] = add_products<C::kBits>(
              products[row][c], codes.bytes[word], splat_word(static_cast<uint32_t>(int_at(at))));
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < kPanels; ++c) {
    const F d = C::scale(block + c * panel_bytes, sub, half);
    F minimum{};
    if constexpr (C::kMinimum) {
      minimum = C::minimum(block + c * panel_bytes, sub);
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const int32_t code_total = code_sum<C::kHalves>(x + 4 * (kRows + row), half);
      const float x_scale = float_at(x + 4 * row);
      const I dot = total<C::kBits>(products[row][c]) -
                    reinterpret_cast<I>(splat_word(static_cast<uint32_t>(C::kOffset * code_total)));
      F& sum = sums[row][c];
      sum = mul_add(__builtin_convertvector(dot, F), d * splat(x_scale), sum);
      if constexpr (C::kMinimum) {
        sum = mul_add(minimum, splat(x_scale * static_cast<float>(code_total)), sum);
      }
    }
  }
}

template <DType dtype, int kRows, int kPanels>
void run_tile(const TileParams& p) {
  using C = Codes<dtype>;
  F sums[kRows][kPanels] = {};
  const auto* x = static_cast<const uint8_t*>(p.x);
  const uint8_t* block = p.panel;
  const int64_t panel_bytes = p.panel_bytes;
  for (int64_t left = p.num_blocks; left > 0; --left, block += C::kBlockBytes * kPanel) {
    for (int sub = 0; sub < C::kSubs; ++sub, x += int64_t{kInt8BlockBytes} * kRows) {
#pragma GCC unroll 2
      for (int half = 0; half < C::kHalves; ++half) {
        add_piece<dtype, kRows, kPanels>(block, panel_bytes, p.prefetch_bytes, sub, half, x, sums);
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

// Integer sums, and the f32 ones that may wait in memory.
constexpr int abreast(int rows) {
  return kSums / 3 * 2 / rows > 4 ? 4 : kSums / 3 * 2 / rows > 0 ? kSums / 3 * 2 / rows : 1;
}

template <DType dtype, int... rows>
constexpr FormatKernels make_kernels(IntList<rows...>) {
  return {32 * Codes<dtype>::kSubs,
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
}  // namespace mstar::MSTAR_ISA_NAMESPACE

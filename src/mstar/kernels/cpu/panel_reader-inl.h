// PanelReader<dtype>: a packed panel, one vector of columns wide, decoded to f32 eight values of k
// at a time. The same bits whoever asks, so every path through a weight multiplies equal values.
//
//   kBlock       values of k in a block;  kBlockBytes  bytes a block holds for each column
//   start(block, sub)  32 values [32 * sub, …): loads scales; plain types have blocks of 8
//   group(block, sub, g)   eight values [32 * sub + 8 * g, …)
//   value(j)     value j of the eight, j a constant after unrolling
//
// Layout of a block of a panel w columns wide, in order (sizes for each column):
//   f32, f16            [8] values
//   bf16, i8            words of 2 values, or of 4 biased by 128 (unsigned): [4] or [2]
//   q8_0                64 values, so that words stay aligned: d f16 [2], [16] words of 4 values
//                       biased by 128
//   q4_0                64 values: d f16 [2], [8] words of 8 nibbles
//   q4_1                d f16, m f16, [4] words of 8 nibbles
//   q5_0, q5_1          d f16, (m f16,) a word of 32 fifth bits, [4] words of 8 nibbles
//   q4_k, q5_k          d f16, m f16, scale u8 [8], min u8 [8], (fifth bits [8],) nibbles [32]
//   q6_k                d f16, scale i8 [16], upper bit pairs [16], nibbles [32]
// Every entry is w columns side by side; a word holds ascending k from its low bits up, but for the
// upper bits: value j of group g (eight values) of a word of 32 fifth bits stands at bit
// 8 (j / 2) + 2 g + j % 2, of a word of 16 bit pairs at 8 (j / 2) + 4 g + 2 (j % 2), so that one
// shift brings those of every other value of a group above nibbles that lie in the four bytes.
#pragma once

#include "mstar/kernels/cpu/matmul_vec-inl.h"
#include "mstar/tensor/dtype.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

template <DType dtype>
struct PanelReader;

template <>
struct PanelReader<DType::kF32> {
  static constexpr int kBlock = 8;
  static constexpr int kBlockBytes = 32;
  const uint8_t* p;

  MSTAR_INLINE void start(const uint8_t*, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int, int) { p = block; }

  MSTAR_INLINE F value(int j) const {
    return load(reinterpret_cast<const float*>(p + 4 * kPanel * j));
  }
};

template <>
struct PanelReader<DType::kF16> {
  static constexpr int kBlock = 8;
  static constexpr int kBlockBytes = 16;
  const uint8_t* p;

  MSTAR_INLINE void start(const uint8_t*, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int, int) { p = block; }

  MSTAR_INLINE F value(int j) const { return load_halfs(p + 2 * kPanel * j); }
};

template <>
struct PanelReader<DType::kBF16> {
  static constexpr int kBlock = 8;
  static constexpr int kBlockBytes = 16;
  const uint8_t* p;

  MSTAR_INLINE void start(const uint8_t*, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int, int) { p = block; }

  MSTAR_INLINE F value(int j) const {
    const U word = load_words(p + 4 * kPanel * (j / 2));
    return as_float(j % 2 == 0 ? word << 16 : word & 0xffff0000U);
  }
};

// Codes become floats without a conversion where the machine fuses: a code's bits are put, in
// place, into the mantissa of a power of two whose unit they then count, and one multiply-add
// with the scale removes that power again: (2^e + code) * d - (2^e + offset) * d. Exact, because
// d is an f16 (11 bits) and 2^e + offset has 13 bits at most, so both products fit f32.
#if defined(__AVX2__)
constexpr bool kMantissaCodes = true;
#else
constexpr bool kMantissaCodes = false;
#endif

constexpr float kAtBit8 = 32768.0F;  // the power of two that a code at bit 8 counts in
constexpr float kAtBit12 = 2048.0F;
constexpr float kAtBit16 = 128.0F;

MSTAR_INLINE F put_in_mantissa(U word, uint32_t mask, float power) {
  return as_float((word & mask) | as_words(splat(power)));
}

// Words of four bytes, each a code + 128.
MSTAR_INLINE U byte_word(const uint8_t* p, int j) {
  return load_words(p + 4 * kPanel * (j / 4));
}

// Byte j % 4 of the word, in the mantissa of kAtBit8.
MSTAR_INLINE F byte_in_mantissa(U word, int j) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  const uint32_t from = static_cast<uint32_t>(j % 4) << 8 | 0x80800080U;  // 0x80: a zero byte
  const __m256i lanes = _mm256_setr_epi32(static_cast<int>(from),
                                          static_cast<int>(from + 0x0400U),
                                          static_cast<int>(from + 0x0800U),
                                          static_cast<int>(from + 0x0c00U),
                                          static_cast<int>(from),
                                          static_cast<int>(from + 0x0400U),
                                          static_cast<int>(from + 0x0800U),
                                          static_cast<int>(from + 0x0c00U));
  const U moved = reinterpret_cast<U>(_mm256_shuffle_epi8(reinterpret_cast<__m256i>(word), lanes));
  return as_float(moved | as_words(splat(kAtBit8)));
#else
  switch (j % 4) {
    case 0: word = word << 8; break;
    case 2: word = word >> 8; break;
    case 3: word = word >> 16; break;
    default: break;
  }
  return put_in_mantissa(word, 0xff00U, kAtBit8);
#endif
}

MSTAR_INLINE F byte_as_float(U word, int j) {
  return to_floats((word >> (8 * (j % 4))) & 255U);
}

template <>
struct PanelReader<DType::kI8> {
  static constexpr int kBlock = 8;
  static constexpr int kBlockBytes = 8;
  const uint8_t* p;

  MSTAR_INLINE void start(const uint8_t*, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int, int) { p = block; }

  MSTAR_INLINE F value(int j) const {
    const U word = byte_word(p, j);
    if constexpr (kMantissaCodes) {
      return byte_in_mantissa(word, j) - splat(kAtBit8 + 128.0F);
    }
    return byte_as_float(word, j) - splat(128.0F);
  }
};

template <>
struct PanelReader<DType::kQ8_0> {
  static constexpr int kBlock = 64;
  static constexpr int kBlockBytes = 68;
  const uint8_t* p;
  F d, bias;

  MSTAR_INLINE void start(const uint8_t* block, int sub) {
    d = load_halfs(block + 2 * kPanel * sub);
    bias = d * splat(kMantissaCodes ? -128.0F - kAtBit8 : -128.0F);
  }

  MSTAR_INLINE void group(const uint8_t* block, int sub, int g) {
    p = block + (4 + 32 * sub + 8 * g) * kPanel;
  }

  MSTAR_INLINE F value(int j) const {
    const U word = byte_word(p, j);
    const F code = kMantissaCodes ? byte_in_mantissa(word, j) : byte_as_float(word, j);
    return mul_add(code, d, bias);
  }
};

template <>
struct PanelReader<DType::kQ4_0> {
  static constexpr int kBlock = 64;
  static constexpr int kBlockBytes = 36;
  const uint8_t* p;
  F d, bias[3];  // for codes at bits 8, 12 and 16

  MSTAR_INLINE void start(const uint8_t* block, int sub) {
    d = load_halfs(block + 2 * kPanel * sub);
    bias[0] = d * splat(kMantissaCodes ? -8.0F - kAtBit8 : -8.0F);
    bias[1] = d * splat(-8.0F - kAtBit12);
    bias[2] = d * splat(-8.0F - kAtBit16);
  }

  MSTAR_INLINE void group(const uint8_t* block, int sub, int g) {
    p = block + (4 + 16 * sub + 4 * g) * kPanel;
  }

  MSTAR_INLINE F value(int j) const {
    U word = load_words(p);
    if constexpr (!kMantissaCodes) {
      return mul_add(to_floats((word >> (4 * j)) & 15U), d, bias[0]);
    }
    if (j < 2) {
      word = word << 8;  // nibbles 0, 1 to bits 8, 12
    } else if (j > 4) {
      word = word >> 12;  // nibbles 5, 6, 7 to bits 8, 12, 16
    }
    switch (j < 2 ? j : (j - 2) % 3) {
      case 0: return mul_add(put_in_mantissa(word, 0xf00U, kAtBit8), d, bias[0]);
      case 1: return mul_add(put_in_mantissa(word, 0xf000U, kAtBit12), d, bias[1]);
      default: return mul_add(put_in_mantissa(word, 0xf0000U, kAtBit16), d, bias[2]);
    }
  }
};

// Nibbles, with or without a fifth bit.
template <bool kFifthBit>
struct NibbleWords {
  U word;
  U high;  // the group's fifth bits: that of value j at bit 8 (j / 2) + j % 2

  MSTAR_INLINE void load_group(const uint8_t* p) { word = load_words(p); }

  MSTAR_INLINE void load_high(const uint8_t* p, int g) { high = load_words(p) >> (2 * g); }

  MSTAR_INLINE F scaled(int j, F scale, F bias) const {
    U code = (word >> (4 * j)) & 15U;
    if constexpr (kFifthBit) {
      const int at = 8 * (j / 2) + j % 2;
      code |= (at < 4 ? high << (4 - at) : high >> (at - 4)) & 16U;
    }
    return mul_add(to_floats(code), scale, bias);
  }
};

// q4_1, q5_0, q5_1: blocks of 32.
template <bool kFifthBit, bool kMinimum>
struct NibbleReader {
  static constexpr int kBlock = 32;
  static constexpr int kHighAt = kMinimum ? 4 : 2;
  static constexpr int kWordsAt = kHighAt + (kFifthBit ? 4 : 0);
  static constexpr int kBlockBytes = kWordsAt + 16;
  F d, bias;
  NibbleWords<kFifthBit> codes;

  MSTAR_INLINE void start(const uint8_t* block, int) {
    d = load_halfs(block);
    if constexpr (kMinimum) {
      bias = load_halfs(block + 2 * kPanel);
    } else {
      bias = d * splat(kFifthBit ? -16.0F : -8.0F);
    }
  }

  MSTAR_INLINE void group(const uint8_t* block, int, int g) {
    codes.load_group(block + kWordsAt * kPanel + 4 * kPanel * g);
    if constexpr (kFifthBit) {
      codes.load_high(block + kHighAt * kPanel, g);
    }
  }

  MSTAR_INLINE F value(int j) const { return codes.scaled(j, d, bias); }
};

template <>
struct PanelReader<DType::kQ4_1> : NibbleReader<false, true> {};

template <>
struct PanelReader<DType::kQ5_0> : NibbleReader<true, false> {};

template <>
struct PanelReader<DType::kQ5_1> : NibbleReader<true, true> {};

// q4_k, q5_k: blocks of 256 with a scale and a minimum for each 32.
template <bool kFifthBit>
struct SuperNibbleReader {
  static constexpr int kBlock = 256;
  static constexpr int kWordsAt = 20 + (kFifthBit ? 32 : 0);
  static constexpr int kBlockBytes = kWordsAt + 128;
  F scale, bias;
  NibbleWords<kFifthBit> codes;

  MSTAR_INLINE void start(const uint8_t* block, int sub) {
    const F d = load_halfs(block);
    const F m = load_halfs(block + 2 * kPanel);
    scale = d * load_u8(block + (4 + sub) * kPanel);
    bias = -(m * load_u8(block + (12 + sub) * kPanel));
  }

  MSTAR_INLINE void group(const uint8_t* block, int sub, int g) {
    codes.load_group(block + (kWordsAt + 16 * sub + 4 * g) * kPanel);
    if constexpr (kFifthBit) {
      codes.load_high(block + (20 + 4 * sub) * kPanel, g);
    }
  }

  MSTAR_INLINE F value(int j) const { return codes.scaled(j, scale, bias); }
};

template <>
struct PanelReader<DType::kQ4_K> : SuperNibbleReader<false> {};

template <>
struct PanelReader<DType::kQ5_K> : SuperNibbleReader<true> {};

template <>
struct PanelReader<DType::kQ6_K> {
  static constexpr int kBlock = 256;
  static constexpr int kBlockBytes = 210;
  static constexpr int kHighAt = 18;
  static constexpr int kWordsAt = 82;
  F scale, bias;
  U word, high;

  MSTAR_INLINE void start(const uint8_t*, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int sub, int g) {
    const int sixteen = 2 * sub + g / 2;  // which scale
    scale = load_halfs(block) * load_i8(block + (2 + sixteen) * kPanel);
    bias = scale * splat(-32.0F);
    word = load_words(block + (kWordsAt + 16 * sub + 4 * g) * kPanel);
    high = load_words(block + (kHighAt + 4 * sixteen) * kPanel) >> (4 * (g % 2));
  }

  MSTAR_INLINE F value(int j) const {
    const U low = (word >> (4 * j)) & 15U;
    const int at = 8 * (j / 2) + 2 * (j % 2);
    const U two = (at < 4 ? high << (4 - at) : high >> (at - 4)) & 48U;
    return mul_add(to_floats(low | two), scale, bias);
  }
};

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE

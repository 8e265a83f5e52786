// PanelReader<dtype>: one vector of columns of a packed panel, decoded to f32 eight values of k at
// a time. The same bits whoever asks, so every path through a weight multiplies equal values.
//
//   kBlock       values of k in a block;  kBlockBytes  bytes a block holds for each column
//   start(block, sub, col)  32 values [32 * sub, …): loads scales; plain types have blocks of 8
//   group(block, sub, g, col)   eight values [32 * sub + 8 * g, …)
//   value(j)     value j of the eight, j a constant after unrolling
//
// Layout of a block of a panel w columns wide, in order (sizes for each column):
//   f32, f16            [8] values
//   bf16, i8            words of 2 values, or of 4 biased by 128 (unsigned): [4] or [2]
//   q8_0                d f16, [8] words of 4 values biased by 128
//   q4_0, q4_1          d f16, (m f16,) [4] words of 8 nibbles
//   q5_0, q5_1          d f16, (m f16,) a word of 32 fifth bits, [4] words of 8 nibbles
//   q4_k, q5_k          d f16, m f16, scale u8 [8], min u8 [8], (fifth bits [8],) nibbles [32]
//   q6_k                d f16, scale i8 [16], upper bit pairs [16], nibbles [32]
// Every entry is w columns side by side; a word holds ascending k from its low bits up.
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

  MSTAR_INLINE void start(const uint8_t*, int, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int, int, int col) { p = block + 4 * col; }

  MSTAR_INLINE F value(int j) const {
    return load(reinterpret_cast<const float*>(p + 4 * kPanel * j));
  }
};

template <>
struct PanelReader<DType::kF16> {
  static constexpr int kBlock = 8;
  static constexpr int kBlockBytes = 16;
  const uint8_t* p;

  MSTAR_INLINE void start(const uint8_t*, int, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int, int, int col) { p = block + 2 * col; }

  MSTAR_INLINE F value(int j) const { return load_halfs(p + 2 * kPanel * j); }
};

template <>
struct PanelReader<DType::kBF16> {
  static constexpr int kBlock = 8;
  static constexpr int kBlockBytes = 16;
  const uint8_t* p;

  MSTAR_INLINE void start(const uint8_t*, int, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int, int, int col) { p = block + 4 * col; }

  MSTAR_INLINE F value(int j) const {
    const U word = load_words(p + 4 * kPanel * (j / 2));
    return as_float(j % 2 == 0 ? word << 16 : word & 0xffff0000U);
  }
};

// Words of four bytes, each a code + 128.
struct ByteWords {
  U words[2];

  MSTAR_INLINE void load_group(const uint8_t* p) {
    words[0] = load_words(p);
    words[1] = load_words(p + 4 * kPanel);
  }

  // scale * code, rounded once.
  MSTAR_INLINE F scaled(int j, F scale, F bias) const {
    const U word = words[j / 4] >> (8 * (j % 4));
    return mul_add(to_floats(word & 255U), scale, bias);
  }
};

template <>
struct PanelReader<DType::kI8> {
  static constexpr int kBlock = 8;
  static constexpr int kBlockBytes = 8;
  ByteWords codes;

  MSTAR_INLINE void start(const uint8_t*, int, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int, int, int col) {
    codes.load_group(block + 4 * col);
  }

  MSTAR_INLINE F value(int j) const {
    const U word = codes.words[j / 4] >> (8 * (j % 4));
    return to_floats(word & 255U) - splat(128.0F);
  }
};

template <>
struct PanelReader<DType::kQ8_0> {
  static constexpr int kBlock = 32;
  static constexpr int kBlockBytes = 34;
  F d, bias;
  ByteWords codes;

  MSTAR_INLINE void start(const uint8_t* block, int, int col) {
    d = load_halfs(block + 2 * col);
    bias = d * splat(-128.0F);
  }

  MSTAR_INLINE void group(const uint8_t* block, int, int g, int col) {
    codes.load_group(block + 2 * kPanel + 8 * kPanel * g + 4 * col);
  }

  MSTAR_INLINE F value(int j) const { return codes.scaled(j, d, bias); }
};

// Nibbles, with or without a fifth bit.
template <bool kFifthBit>
struct NibbleWords {
  U word;
  U high;  // the group's fifth bits from bit 0 up

  MSTAR_INLINE void load_group(const uint8_t* p) { word = load_words(p); }

  MSTAR_INLINE void load_high(const uint8_t* p, int g) { high = load_words(p) >> (8 * g); }

  MSTAR_INLINE F scaled(int j, F scale, F bias) const {
    U code = (word >> (4 * j)) & 15U;
    if constexpr (kFifthBit) {
      code |= (j < 4 ? high << (4 - j) : high >> (j - 4)) & 16U;
    }
    return mul_add(to_floats(code), scale, bias);
  }
};

// q4_0, q4_1, q5_0, q5_1: blocks of 32.
template <bool kFifthBit, bool kMinimum>
struct NibbleReader {
  static constexpr int kBlock = 32;
  static constexpr int kHighAt = kMinimum ? 4 : 2;
  static constexpr int kWordsAt = kHighAt + (kFifthBit ? 4 : 0);
  static constexpr int kBlockBytes = kWordsAt + 16;
  F d, bias;
  NibbleWords<kFifthBit> codes;

  MSTAR_INLINE void start(const uint8_t* block, int, int col) {
    d = load_halfs(block + 2 * col);
    if constexpr (kMinimum) {
      bias = load_halfs(block + 2 * kPanel + 2 * col);
    } else {
      bias = d * splat(kFifthBit ? -16.0F : -8.0F);
    }
  }

  MSTAR_INLINE void group(const uint8_t* block, int, int g, int col) {
    codes.load_group(block + kWordsAt * kPanel + 4 * kPanel * g + 4 * col);
    if constexpr (kFifthBit) {
      codes.load_high(block + kHighAt * kPanel + 4 * col, g);
    }
  }

  MSTAR_INLINE F value(int j) const { return codes.scaled(j, d, bias); }
};

template <>
struct PanelReader<DType::kQ4_0> : NibbleReader<false, false> {};

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

  MSTAR_INLINE void start(const uint8_t* block, int sub, int col) {
    const F d = load_halfs(block + 2 * col);
    const F m = load_halfs(block + 2 * kPanel + 2 * col);
    scale = d * load_u8(block + (4 + sub) * kPanel + col);
    bias = -(m * load_u8(block + (12 + sub) * kPanel + col));
  }

  MSTAR_INLINE void group(const uint8_t* block, int sub, int g, int col) {
    codes.load_group(block + (kWordsAt + 16 * sub + 4 * g) * kPanel + 4 * col);
    if constexpr (kFifthBit) {
      codes.load_high(block + (20 + 4 * sub) * kPanel + 4 * col, g);
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

  MSTAR_INLINE void start(const uint8_t*, int, int) {}

  MSTAR_INLINE void group(const uint8_t* block, int sub, int g, int col) {
    const int sixteen = 2 * sub + g / 2;  // which scale
    scale = load_halfs(block + 2 * col) * load_i8(block + (2 + sixteen) * kPanel + col);
    bias = scale * splat(-32.0F);
    word = load_words(block + (kWordsAt + 16 * sub + 4 * g) * kPanel + 4 * col);
    high = load_words(block + (kHighAt + 4 * sixteen) * kPanel + 4 * col) >> (16 * (g % 2));
  }

  MSTAR_INLINE F value(int j) const {
    const U low = (word >> (4 * j)) & 15U;
    const U two = (j < 2 ? high << (4 - 2 * j) : high >> (2 * j - 4)) & 48U;
    return mul_add(to_floats(low | two), scale, bias);
  }
};

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE

#pragma once

#include <bit>
#include <cstdint>

namespace mstar {

// The upper half of an f32.
struct bfloat16 {
  uint16_t bits = 0;
};

// IEEE 754 binary16.
struct float16 {
  uint16_t bits = 0;
};

inline float to_float(float value) {
  return value;
}

inline float to_float(bfloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

inline float to_float(float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000U) << 16;
  const uint32_t magnitude = value.bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  }
  if (magnitude >= 0x400U) {  // normal: move the exponent's bias from 15 to 127
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
  }
  // Subnormal: the value is magnitude * 2^-24, exact in f32.
  return std::bit_cast<float>(sign |
                              std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24F));
}

// Nearest, ties to even; NaN stays NaN.
inline bfloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40U)};
  }
  return {static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

// Nearest, ties to even; too large becomes infinity.
inline float16 to_float16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return {static_cast<uint16_t>(sign | 0x7e00U)};
  }
  if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
    return {static_cast<uint16_t>(sign | 0x7c00U)};
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: the sum's rounding leaves the result's bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U))};
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return {static_cast<uint16_t>(sign | ((rounded - (112U << 23)) >> 13))};
}

template <typename T>
T from_float(float value);

template <>
inline float from_float<float>(float value) {
  return value;
}

template <>
inline bfloat16 from_float<bfloat16>(float value) {
  return to_bfloat16(value);
}

template <>
inline float16 from_float<float16>(float value) {
  return to_float16(value);
}

}  // namespace mstar

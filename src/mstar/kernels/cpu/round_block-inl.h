// 32 activations to int8 codes with a scale: what PackedX::kInt8 and kInt8Nibbles are made of. The
// codes are the same on every instruction set: x * (127 / largest magnitude), to nearest even.
#pragma once

#include "mstar/kernels/cpu/matmul_vec-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

constexpr int kParts = 32 / kLanes;  // vectors in a block

struct RoundedBlock {
  alignas(32) uint8_t codes[32];  // int8, in the order that was asked for
  float scale;  // the largest magnitude / 127; NaN where a value is NaN or infinite, so that these
                // reach the output
  int16_t sums[2];  // of the first and of the last 16 codes
};

#if defined(__AVX2__)
// Order of each eight codes.
template <bool kNibbles>
MSTAR_INLINE __m128i as_packed(__m128i codes) {
  if constexpr (kNibbles) {
    return _mm_shuffle_epi8(codes,
                            _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  }
  return codes;
}

MSTAR_INLINE float largest_of(__m256 values) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

// The sum of 16 signed bytes.
MSTAR_INLINE int16_t sum_of_codes(__m128i codes) {
  const __m128i biased = _mm_xor_si128(codes, _mm_set1_epi8(-128));
  const __m128i sums = _mm_sad_epu8(biased, _mm_setzero_si128());
  return static_cast<int16_t>(_mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128);
}

template <bool kNibbles>
MSTAR_INLINE void put_codes(__m128i first, __m128i last, RoundedBlock& out) {
  out.sums[0] = sum_of_codes(first);
  out.sums[1] = sum_of_codes(last);
  _mm_store_si128(reinterpret_cast<__m128i*>(out.codes), as_packed<kNibbles>(first));
  _mm_store_si128(reinterpret_cast<__m128i*>(out.codes + 16), as_packed<kNibbles>(last));
}
#endif

template <bool kNibbles>
MSTAR_INLINE void round_block(const F (&values)[kParts], RoundedBlock& out) {
#if defined(__AVX512F__)
  F largest = as_float(as_words(values[0]) & 0x7fffffffU);
  const F magnitude = as_float(as_words(values[1]) & 0x7fffffffU);
  largest = select(magnitude > largest, magnitude, largest);
  const F finite = mul_add(values[0], splat(0.0F), values[1] * splat(0.0F));  // else it has a NaN
  const bool all_finite = _mm512_cmp_ps_mask(finite, finite, _CMP_UNORD_Q) == 0;
  __m256 halves[2];
  __builtin_memcpy(halves, &largest, sizeof(largest));
  const float most = largest_of(_mm256_max_ps(halves[0], halves[1]));
  const F inverse = splat(most > 0.0F ? 127.0F / most : 0.0F);
  const auto codes = [&](const F& part) {
    // Adding 1.5 * 2^23 leaves the rounded integer in the low bits; a code never leaves int8.
    const U bits = as_words(part * inverse + splat(12582912.0F));
    return _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(bits));
  };
  put_codes<kNibbles>(codes(values[0]), codes(values[1]), out);
#elif defined(__AVX2__)
  const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 largest = _mm256_setzero_ps();
  __m256 finite = _mm256_setzero_ps();
  for (const F& part : values) {
    largest = _mm256_max_ps(_mm256_and_ps(part, no_sign), largest);
    finite = _mm256_fmadd_ps(part, _mm256_setzero_ps(), finite);
  }
  const float most = largest_of(largest);
  const bool all_finite = _mm256_movemask_ps(_mm256_cmp_ps(finite, finite, _CMP_UNORD_Q)) == 0;
  const __m256 inverse = _mm256_set1_ps(most > 0.0F ? 127.0F / most : 0.0F);
  const auto sixteen = [&](const F& first, const F& second) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(first, inverse)),
                                             _mm256_cvtps_epi32(_mm256_mul_ps(second, inverse)));
    const __m256i in_row = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(in_row), _mm256_extracti128_si256(in_row, 1));
  };
  put_codes<kNibbles>(sixteen(values[0], values[1]), sixteen(values[2], values[3]), out);
#else
  float most = 0.0F;
  float not_finite = 0.0F;
  for (const F& part : values) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float magnitude = part[lane] < 0.0F ? -part[lane] : part[lane];
      most = magnitude > most ? magnitude : most;
      not_finite += part[lane] * 0.0F;
    }
  }
  const bool all_finite = not_finite == 0.0F;
  const F inverse = splat(most > 0.0F ? 127.0F / most : 0.0F);
  out.sums[0] = 0;
  out.sums[1] = 0;
  for (int index = 0; index < 32; ++index) {
    const F product = values[index / kLanes] * inverse;
    const float shifted = product[index % kLanes] + 12582912.0F;
    uint32_t bits;
    __builtin_memcpy(&bits, &shifted, sizeof(bits));
    const auto code = static_cast<int8_t>(bits & 255U);
    const int place = kNibbles ? index / 8 * 8 + index % 2 * 4 + index % 8 / 2 : index;
    out.codes[place] = static_cast<uint8_t>(code);
    out.sums[index / 16] = static_cast<int16_t>(out.sums[index / 16] + code);
  }
#endif
  out.scale = all_finite ? most / 127.0F : __builtin_nanf("");
}

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE

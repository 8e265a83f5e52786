// Vectors for the matmul kernels: one f32 and one 32-bit integer type of the instruction set's
// width, on the compiler's vector extension, with intrinsics only where it has no operator.
// Compiled once per instruction set; everything is internal to the including file.
#pragma once

#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define MSTAR_INLINE inline __attribute__((always_inline))

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kTileRows = 8;
constexpr int kSums = 24;  // of 32 registers
constexpr int kMaxAbreast = 8;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kTileRows = 6;
constexpr int kSums = 12;  // of 16 registers
constexpr int kMaxAbreast = 4;
#else
constexpr int kLanes = 4;
constexpr int kTileRows = 4;
constexpr int kSums = 12;
constexpr int kMaxAbreast = 4;
#endif
constexpr int kPanel = kLanes;  // a panel is one vector wide

// Panels that a tile of so many rows takes side by side. Many sums hide the multiply-adds'
// latency, and many panels are as many streams for the memory's prefetchers: 8 are read a quarter
// faster than one (Zen 3), 3 and 4 faster than 6 and 8 (Zen).
constexpr int panels_abreast(int rows) {
  return kSums / rows < kMaxAbreast ? kSums / rows : kMaxAbreast;
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
typedef float F __attribute__((vector_size(kLanes * 4)));
typedef int32_t I __attribute__((vector_size(kLanes * 4)));
typedef uint32_t U __attribute__((vector_size(kLanes * 4)));

MSTAR_INLINE F load(const float* p) {
  F v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

MSTAR_INLINE U load_words(const uint8_t* p) {
  U v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

MSTAR_INLINE void store(float* p, F v) {
  __builtin_memcpy(p, &v, sizeof(v));
}

// Asks for the lines of so many bytes.
template <int kBytes>
MSTAR_INLINE void prefetch(const uint8_t* p) {
#pragma GCC unroll 16
  for (int offset = 0; offset < kBytes; offset += 64) {
    __builtin_prefetch(p + offset);
  }
}

MSTAR_INLINE F as_float(U v) {
  return reinterpret_cast<F>(v);
}

MSTAR_INLINE U as_words(F v) {
  return reinterpret_cast<U>(v);
}

MSTAR_INLINE F to_floats(U v) {  // below 2^31
  return __builtin_convertvector(reinterpret_cast<I>(v), F);
}

MSTAR_INLINE F splat(float x) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(x);
#elif defined(__AVX2__)
  return _mm256_set1_ps(x);
#else
  return F{x, x, x, x};
#endif
}

MSTAR_INLINE U splat_word(uint32_t x) {
#if defined(__AVX512F__)
  return reinterpret_cast<U>(_mm512_set1_epi32(static_cast<int>(x)));
#elif defined(__AVX2__)
  return reinterpret_cast<U>(_mm256_set1_epi32(static_cast<int>(x)));
#else
  return U{x, x, x, x};
#endif
}

// a * b + c, rounded once where the machine can.
MSTAR_INLINE F mul_add(F a, F b, F c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// sum += x * w in place. Where registers are short it is written out: the compiler, free to choose,
// lets sums wander between registers and spills some of them (a tile of 6 x 2 vectors then reaches
// 92 % of the peak on AVX2 instead of 97).
MSTAR_INLINE void accumulate(F& sum, F x, F w) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  F moved = sum;  // by value: an operand in memory would keep all sums there
  asm("vfmadd231ps %2, %1, %0" : "+x"(moved) : "x"(x), "x"(w));
  sum = moved;
#else
  sum = mul_add(x, w, sum);
#endif
}

// mask must be all ones or all zeros in a lane.
MSTAR_INLINE F select(I mask, F yes, F no) {
  return mask ? yes : no;
}

// kLanes consecutive f16 values.
MSTAR_INLINE F load_halfs(const uint8_t* p) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  typedef uint16_t H __attribute__((vector_size(kLanes * 2)));
  H half;
  __builtin_memcpy(&half, p, sizeof(half));
  const U bits = __builtin_convertvector(half, U);
  const U magnitude = bits & 0x7fffU;
  const U sign = (bits & 0x8000U) << 16;
  const U normal = (magnitude << 13) + (112U << 23);
  const U special = (magnitude << 13) | 0x7f800000U;
  const U small = as_words(to_floats(magnitude) * 0x1p-24F);
  const U finite = magnitude >= 0x400U ? normal : small;
  return as_float(sign | (magnitude >= 0x7c00U ? special : finite));
#endif
}

// kLanes consecutive elements of 16 or 8 bits as words. Written out: the compiler takes the vector
// apart for a conversion of these widths.
MSTAR_INLINE U load_u16_words(const uint16_t* p) {
#if defined(__AVX512F__)
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return reinterpret_cast<U>(_mm512_maskz_cvtepu16_epi32(0xffff, half));
#elif defined(__AVX2__)
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<U>(_mm256_cvtepu16_epi32(half));
#else
  return U{p[0], p[1], p[2], p[3]};
#endif
}

MSTAR_INLINE I load_u8_words(const uint8_t* p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<I>(_mm512_maskz_cvtepu8_epi32(0xffff, bytes));
#elif defined(__AVX2__)
  return reinterpret_cast<I>(_mm256_cvtepu8_epi32(_mm_loadu_si64(p)));
#else
  return I{p[0], p[1], p[2], p[3]};
#endif
}

MSTAR_INLINE I load_i8_words(const uint8_t* p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<I>(_mm512_maskz_cvtepi8_epi32(0xffff, bytes));
#elif defined(__AVX2__)
  return reinterpret_cast<I>(_mm256_cvtepi8_epi32(_mm_loadu_si64(p)));
#else
  return (load_u8_words(p) << 24) >> 24;
#endif
}

// kLanes consecutive bf16 values.
MSTAR_INLINE F load_bf16(const uint16_t* p) {
  return as_float(load_u16_words(p) << 16);
}

// To bf16, nearest even; NaN stays NaN.
MSTAR_INLINE void store_bf16(uint16_t* p, F v) {
  typedef uint16_t H __attribute__((vector_size(kLanes * 2)));
  const U bits = as_words(v);
  const U rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const U quiet = (bits >> 16) | 0x40U;
  const U result = (bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded;
  const H half = __builtin_convertvector(result, H);
  __builtin_memcpy(p, &half, sizeof(half));
}

// kLanes consecutive bytes.
MSTAR_INLINE F load_u8(const uint8_t* p) {
  return __builtin_convertvector(load_u8_words(p), F);
}

MSTAR_INLINE F load_i8(const uint8_t* p) {
  return __builtin_convertvector(load_i8_words(p), F);
}

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE

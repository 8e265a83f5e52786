#pragma once

// Vectors of f32 for the files that are compiled once per instruction set (mstar_isa_sources):
// 1 lane (portable), 8 (AVX2) or 16 (AVX-512), one spelling for all:
//
//   for (int64_t i = 0; i < n; i += kLanes) {
//     store(y + i, fma(load(x + i), set(2.0F), set(1.0F)));   // and load_n, store_n for the rest
//   }
//
// load and store take float, bfloat16 and float16 pointers (any alignment; stores round to
// nearest, ties to even, NaN stays NaN), load also int8_t and uint8_t. min and max give the
// second operand when either is NaN. Reductions add in one fixed order. fma rounds once where
// the set has the instruction, twice in the portable one.
//
// Everything lives in mstar::MSTAR_ISA_NAMESPACE, so that the copies never meet at link time.
// For the same reason a file that includes this one uses no inline function of std.

#include <cstdint>

#include "mstar/tensor/float16.h"  // the types only

#if !defined(MSTAR_ISA_NAMESPACE)
#error "vec.h is for files listed in mstar_isa_sources()"
#endif

#if !defined(MSTAR_ISA_IS_portable)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes _mm512_undefined_ps(), which its own header passes to masked builtins, for a read.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#endif

#define MSTAR_VEC inline __attribute__((always_inline))

namespace mstar::MSTAR_ISA_NAMESPACE {

MSTAR_VEC float bits_float(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

MSTAR_VEC uint32_t float_bits(float x) {
  return __builtin_bit_cast(uint32_t, x);
}

// clang-format off
#if defined(__AVX512F__)
#include "mstar/kernels/cpu/vec_avx512-inl.h"
#elif defined(MSTAR_ISA_IS_avx2)
#include "mstar/kernels/cpu/vec_avx2-inl.h"
#else
#include "mstar/kernels/cpu/vec_portable-inl.h"
#endif
// clang-format on

inline constexpr float kInfinity = __builtin_inff();

// Reads and writes of one element.
MSTAR_VEC float load_one(const float* p) {
  return *p;
}

MSTAR_VEC float load_one(const bfloat16* p) {
  return bits_float(static_cast<uint32_t>(p->bits) << 16);
}

MSTAR_VEC Vec operator+(Vec a, float b) {
  return a + set(b);
}

MSTAR_VEC Vec operator-(Vec a, float b) {
  return a - set(b);
}

MSTAR_VEC Vec operator*(Vec a, float b) {
  return a * set(b);
}

// c[0] + x * (c[1] + x * (…)).
template <int kCount>
MSTAR_VEC Vec polynomial(Vec x, const float (&c)[kCount]) {
  Vec sum = set(c[kCount - 1]);
  for (int index = kCount - 2; index >= 0; --index) {
    sum = fma(sum, x, set(c[index]));
  }
  return sum;
}

// e^r for |r| <= ln(2) / 2, and the split of x into n ln(2) + r.
MSTAR_VEC Vec exp_reduced(Vec r) {
  constexpr float kSeries[] = {
      0.49999994F, 0.16666515F, 0.041668456F, 0.0083694188F, 0.0013813145F};
  const Vec square = r * r;
  return fma(square, polynomial(r, kSeries), r) + 1.0F;
}

MSTAR_VEC Vec exp_remainder(Vec x, Vec n) {
  const Vec r = fnma(n, set(0.693145752F), x);  // ln(2): 15 bits, then the rest
  return fnma(n, set(1.42860677e-06F), r);
}

// e^x, relative error 1.2e-7 (2e-7 portable); overflows to infinity, underflows through the
// subnormals to zero; NaN stays NaN.
MSTAR_VEC Vec exp(Vec x) {
  const Vec in_range = max(set(-104.0F), min(set(89.0F), x));
  const Vec n = round(in_range * 1.44269504F);
  const Vec value = exp_reduced(exp_remainder(in_range, n));
  const IVec exponent = convert(n);
  const IVec half = half_of(exponent);  // in two steps: 2^-150 and 2^128 are no f32 themselves
  return value * power_of_two(half) * power_of_two(exponent - half);
}

// The same for x <= 0, cheaper: zero below -87.3 (where e^x is no normal f32 any more), also for
// minus infinity. What softmax needs.
MSTAR_VEC Vec exp_not_positive(Vec x) {
  const Vec in_range = max(set(-87.3F), x);
  const Vec n = round(in_range * 1.44269504F);
  const Vec value = exp_reduced(exp_remainder(in_range, n)) * power_of_two(convert(n));
  return select(x < set(-87.3F), zero(), value);
}

// The same for softmax weights, where relative errors count beside a weight of 1: exact to 1.3e-7
// near 0, to 3e-7 at -80, about 2e-38 from -86.5 down, minus infinity included (mask separately);
// NaN stays NaN. Half the instructions of exp.
MSTAR_VEC Vec exp_for_softmax(Vec x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer
  constexpr float kSeries[] = {
      1.0F, 1.0F, 0.49999994F, 0.16666515F, 0.041668456F, 0.0083694188F, 0.0013813145F};
  const Vec in_range = max(set(-86.5F), x);
  const Vec shifted = fma(in_range, set(1.44269504F), set(kMagic));
  const Vec r = fnma(shifted - kMagic, set(0.693147181F), in_range);
  return shift_exponent(polynomial(r, kSeries), shifted);
}

// Relative error 2e-7.
MSTAR_VEC Vec tanh(Vec x) {
  constexpr float kSeries[] = {
      -0.33333281F, 0.13331442F, -0.053739715F, 0.020639088F, -0.005704987F};
  const Vec size = abs(x);
  const Vec square = x * x;
  const Vec near = fma(x * square, polynomial(square, kSeries), x);
  const Vec far = set(1.0F) - set(2.0F) / (exp(size + size) + 1.0F);
  return select(size < set(0.625F), near, copysign(far, x));
}

// erfc(x) for x >= 0 without the factor e^(-x^2): x = 0 … 10, relative error 2e-8.
MSTAR_VEC Vec erfc_scaled(Vec x) {
  constexpr float kSeries[] = {1.2769784F,
                               -0.092763998F,
                               -0.16603157F,
                               0.16405566F,
                               -0.05420262F,
                               -0.0080608875F,
                               0.0086253537F,
                               0.0013125679F,
                               -0.0012223381F,
                               -0.00039610409F};
  const Vec place = (x - 2.0F) / (x + 2.0F);
  return polynomial(place, kSeries) / fma(x, set(2.0F), set(1.0F));
}

// e^(-x^2): x^2 is split, because its rounding error would be the result's relative error.
MSTAR_VEC Vec exp_minus_square(Vec x) {
  const Vec square = x * x;
  const Vec rest = fma(x, x, -square);
  return exp(-square) * (set(1.0F) - rest);
}

// 1 - erf(x) with small relative error also where it is tiny (4e-7; portable 2e-6 at x = 4).
MSTAR_VEC Vec erfc(Vec x) {
  const Vec size = min(set(10.0F), abs(x));
  const Vec tail = erfc_scaled(size) * exp_minus_square(size);
  return select(is_nan(x), x, select(x < zero(), set(2.0F) - tail, tail));
}

// Relative error 2e-7.
MSTAR_VEC Vec erf(Vec x) {
  constexpr float kSeries[] = {1.1283791F,
                               -0.37612626F,
                               0.11283585F,
                               -0.026853813F,
                               0.0051883291F,
                               -0.00080102053F,
                               7.853896e-05F};
  const Vec size = abs(x);
  const Vec near = x * polynomial(x * x, kSeries);
  const Vec far = copysign(set(1.0F) - erfc(size), x);
  return select(size < set(1.0F), near, far);
}

MSTAR_VEC Vec sigmoid(Vec x) {
  return set(1.0F) / (exp(-x) + 1.0F);
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE

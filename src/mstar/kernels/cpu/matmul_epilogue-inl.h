// Sums to outputs: scale, bias, activation, residual, store. One code for every element, so that
// an element's bits do not depend on where its tile ends.
#pragma once

#include "mstar/kernels/cpu/matmul_kernels.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

// exp(x) to 2 ulp; saturates to 0 and infinity. 2^n * 2^f with |f| <= 1/2 and a polynomial of
// exp's series, the reduction in two steps so that it stays exact.
MSTAR_INLINE F exponential(F x) {
  const F clamped = select(x > splat(-104.0F), x, splat(-104.0F));
  const F bounded = select(clamped < splat(89.0F), clamped, splat(89.0F));
  const F magic = splat(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const F shifted = mul_add(bounded, splat(1.44269504F), magic);
  const F n = shifted - magic;
  F r = mul_add(n, splat(-0.693359375F), bounded);
  r = mul_add(n, splat(2.12194440e-4F), r);
  F poly = splat(1.0F / 5040.0F);
  poly = mul_add(poly, r, splat(1.0F / 720.0F));
  poly = mul_add(poly, r, splat(1.0F / 120.0F));
  poly = mul_add(poly, r, splat(1.0F / 24.0F));
  poly = mul_add(poly, r, splat(1.0F / 6.0F));
  poly = mul_add(poly, r, splat(0.5F));
  poly = mul_add(poly, r, splat(1.0F));
  poly = mul_add(poly, r, splat(1.0F));
  // In two factors, because 2^n alone may be out of range.
  const I whole = reinterpret_cast<I>(as_words(shifted) - as_words(magic));
  const I half = whole >> 1;
  const F first = as_float(reinterpret_cast<U>((half + 127) << 23));
  const F second = as_float(reinterpret_cast<U>((whole - half + 127) << 23));
  const F result = poly * first * second;
  return select(x != x, x, result);
}

MSTAR_INLINE F sigmoid(F x) {
  return splat(1.0F) / (splat(1.0F) + exponential(-x));
}

// erf to 1.5e-7 absolute would lose the tail of gelu, so: x * normal_cdf(x) through erfc's
// continued form, erfc(z) = t * exp(-z^2 + P(t)), t = 1 / (1 + z / 2), relative error 1.2e-7
// (Numerical Recipes' Chebyshev fit).
MSTAR_INLINE F erfc_positive(F z) {
  const F t = splat(1.0F) / mul_add(z, splat(0.5F), splat(1.0F));
  F poly = splat(0.17087277F);
  poly = mul_add(poly, t, splat(-0.82215223F));
  poly = mul_add(poly, t, splat(1.48851587F));
  poly = mul_add(poly, t, splat(-1.13520398F));
  poly = mul_add(poly, t, splat(0.27886807F));
  poly = mul_add(poly, t, splat(-0.18628806F));
  poly = mul_add(poly, t, splat(0.09678418F));
  poly = mul_add(poly, t, splat(0.37409196F));
  poly = mul_add(poly, t, splat(1.00002368F));
  poly = mul_add(poly, t, splat(-1.26551223F));
  return t * exponential(poly - z * z);
}

MSTAR_INLINE F gelu(F x) {
  const F z = x * splat(0.70710678F);
  const I negative = x < splat(0.0F);
  const F tail = splat(0.5F) * erfc_positive(select(negative, -z, z));
  return x * select(negative, tail, splat(1.0F) - tail);
}

MSTAR_INLINE F gelu_tanh(F x) {  // 0.5 x (1 + tanh(u)) = x sigmoid(2u)
  const F cube = x * x * x;
  const F u = splat(0.7978845608F) * mul_add(splat(0.044715F), cube, x);
  return x * sigmoid(u + u);
}

MSTAR_INLINE F relu(F x) {
  return select(x < splat(0.0F), splat(0.0F), x);
}

MSTAR_INLINE F activated(F x, Activation activation) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kSilu: return x * sigmoid(x);
    case Activation::kGelu: return gelu(x);
    case Activation::kGeluTanh: return gelu_tanh(x);
    case Activation::kRelu: return relu(x);
    case Activation::kRelu2: return relu(x) * relu(x);
  }
  return x;
}

// `count` values at `base + index` elements, the lanes beyond it zero.
MSTAR_INLINE F load_some(const void* base, bool is_bf16, int64_t index, int64_t count) {
  if (is_bf16) {
    const auto* p = static_cast<const uint16_t*>(base) + index;
    if (count >= kLanes) {
      return load_bf16(p);
    }
    uint16_t some[kLanes] = {};
    for (int64_t lane = 0; lane < count; ++lane) {
      some[lane] = p[lane];
    }
    return load_bf16(some);
  }
  const auto* p = static_cast<const float*>(base) + index;
  if (count >= kLanes) {
    return load(p);
  }
  float some[kLanes] = {};
  for (int64_t lane = 0; lane < count; ++lane) {
    some[lane] = p[lane];
  }
  return load(some);
}

MSTAR_INLINE void store_some(void* base, bool is_bf16, int64_t index, int64_t count, F v) {
  if (is_bf16) {
    auto* p = static_cast<uint16_t*>(base) + index;
    if (count >= kLanes) {
      store_bf16(p, v);
      return;
    }
    uint16_t some[kLanes];
    store_bf16(some, v);
    for (int64_t lane = 0; lane < count; ++lane) {
      p[lane] = some[lane];
    }
    return;
  }
  auto* p = static_cast<float*>(base) + index;
  if (count >= kLanes) {
    store(p, v);
    return;
  }
  float some[kLanes];
  store(some, v);
  for (int64_t lane = 0; lane < count; ++lane) {
    p[lane] = some[lane];
  }
}

// Rows [row, row + num_rows) of the problem, columns [column, …) as far as they exist.
inline void finish_rows(const MatmulProblem& p,
                        int64_t row,
                        int64_t num_rows,
                        int64_t column,
                        int64_t num_columns,
                        const float* sums,
                        int64_t sums_stride) {
  if (num_columns > p.weight.n - column) {
    num_columns = p.weight.n - column;
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t c = 0; c < num_columns; c += kLanes) {
      const int64_t count = num_columns - c;
      F v = load(sums + r * sums_stride + c);
      if (p.weight.row_scales != nullptr) {
        v = v * load(p.weight.row_scales + column + c);
      }
      v = v * splat(p.alpha);
      if (p.bias != nullptr) {
        v = v + load_some(p.bias, p.bias_is_bf16, column + c, count);
      }
      v = activated(v, p.activation);
      if (p.residual != nullptr) {
        const int64_t index = (row + r) * p.residual_stride + column + c;
        v = v + load_some(p.residual, p.residual_is_bf16, index, count);
      }
      store_some(p.out, p.out_is_bf16, (row + r) * p.out_stride + column + c, count, v);
    }
  }
}

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE

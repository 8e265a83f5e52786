// One lane: what processors without the other sets run, and the plainest reading of vec.h.
// Part of vec.h, inside its namespace.

inline constexpr int kLanes = 1;

struct Vec {
  float v;
};

struct IVec {  // i32 lanes
  int32_t v;
};

struct Mask {
  bool v;
};

MSTAR_VEC Vec zero() {
  return {0.0F};
}

MSTAR_VEC Vec set(float x) {
  return {x};
}

MSTAR_VEC IVec set_int(int32_t x) {
  return {x};
}

MSTAR_VEC Vec load(const float* p) {
  return {*p};
}

MSTAR_VEC Vec load(const bfloat16* p) {
  return {bits_float(static_cast<uint32_t>(p->bits) << 16)};
}

MSTAR_VEC Vec load(const float16* p) {
  const uint32_t sign = static_cast<uint32_t>(p->bits & 0x8000U) << 16;
  const uint32_t magnitude = p->bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {
    return {bits_float(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13 |
                       (magnitude > 0x7c00U ? 0x400000U : 0U))};
  }
  if (magnitude >= 0x400U) {
    return {bits_float(sign | ((magnitude << 13) + (112U << 23)))};
  }
  return {bits_float(sign | float_bits(static_cast<float>(magnitude) * 0x1p-24F))};
}

MSTAR_VEC Vec load(const int8_t* p) {
  return {static_cast<float>(*p)};
}

MSTAR_VEC Vec load(const uint8_t* p) {
  return {static_cast<float>(*p)};
}

MSTAR_VEC void store(float* p, Vec x) {
  *p = x.v;
}

MSTAR_VEC uint32_t bf16_bits(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return (bits >> 16) | 0x40U;
  }
  return (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
}

MSTAR_VEC void store(bfloat16* p, Vec x) {
  p->bits = static_cast<uint16_t>(bf16_bits(x.v));
}

MSTAR_VEC void store(float16* p, Vec x) {
  const uint32_t bits = float_bits(x.v);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U | (magnitude >> 13 & 0x3ffU);
  } else if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
    half = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {  // 2^-14: normal
    half = (magnitude - (112U << 23) + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
  } else {  // adding 0.5 leaves multiples of 2^-24, rounded as f32 addition rounds
    half = float_bits(bits_float(magnitude) + 0.5F) - 0x3f000000U;
  }
  p->bits = static_cast<uint16_t>(sign | half);
}

template <typename T>
MSTAR_VEC Vec load_n(const T* p, int n) {
  return n > 0 ? load(p) : zero();
}

template <typename T>
MSTAR_VEC void store_n(T* p, Vec x, int n) {
  if (n > 0) {
    store(p, x);
  }
}

MSTAR_VEC Vec round_bf16(Vec x) {
  return {bits_float(bf16_bits(x.v) << 16)};
}

MSTAR_VEC Vec operator+(Vec a, Vec b) {
  return {a.v + b.v};
}

MSTAR_VEC Vec operator-(Vec a, Vec b) {
  return {a.v - b.v};
}

MSTAR_VEC Vec operator*(Vec a, Vec b) {
  return {a.v * b.v};
}

MSTAR_VEC Vec operator/(Vec a, Vec b) {
  return {a.v / b.v};
}

MSTAR_VEC Vec operator-(Vec a) {
  return {-a.v};
}

MSTAR_VEC Vec fma(Vec a, Vec b, Vec c) {
  return {a.v * b.v + c.v};
}  // a * b + c

MSTAR_VEC void accumulate(Vec& sum, Vec a, Vec b) {
  sum = fma(a, b, sum);
}

MSTAR_VEC Vec fnma(Vec a, Vec b, Vec c) {
  return {c.v - a.v * b.v};
}  // c - a * b

MSTAR_VEC Vec min(Vec a, Vec b) {
  return {a.v < b.v ? a.v : b.v};
}  // b when either is NaN

MSTAR_VEC Vec max(Vec a, Vec b) {
  return {a.v > b.v ? a.v : b.v};
}

MSTAR_VEC Vec abs(Vec a) {
  return {__builtin_fabsf(a.v)};
}

MSTAR_VEC Vec sqrt(Vec a) {
  return {__builtin_sqrtf(a.v)};
}

MSTAR_VEC Vec copysign(Vec size, Vec sign) {
  return {__builtin_copysignf(size.v, sign.v)};
}

MSTAR_VEC Vec round(Vec a) {
  return {__builtin_rintf(a.v)};
}  // nearest, ties to even

MSTAR_VEC Vec floor(Vec a) {
  return {__builtin_floorf(a.v)};
}

MSTAR_VEC Mask operator<(Vec a, Vec b) {
  return {a.v < b.v};
}

MSTAR_VEC Mask operator>(Vec a, Vec b) {
  return {a.v > b.v};
}

MSTAR_VEC Mask operator<(IVec a, IVec b) {
  return {a.v < b.v};
}

MSTAR_VEC Mask is_nan(Vec a) {
  return {a.v != a.v};
}

MSTAR_VEC bool any(Mask m) {
  return m.v;
}

MSTAR_VEC Vec select(Mask m, Vec yes, Vec no) {
  return m.v ? yes : no;
}

MSTAR_VEC IVec operator+(IVec a, IVec b) {
  return {a.v + b.v};
}

MSTAR_VEC IVec operator-(IVec a, IVec b) {
  return {a.v - b.v};
}

MSTAR_VEC IVec half_of(IVec a) {
  return {a.v >> 1};
}  // floor(a / 2)

MSTAR_VEC IVec iota() {
  return {0};
}  // 0, 1, 2, …

MSTAR_VEC Vec convert(IVec a) {
  return {static_cast<float>(a.v)};
}

MSTAR_VEC IVec convert(Vec a) {
  return {static_cast<int32_t>(__builtin_rintf(a.v))};
}

// 2^n for n in [-126, 127].
MSTAR_VEC Vec power_of_two(IVec n) {
  return {bits_float(static_cast<uint32_t>(n.v + 127) << 23)};
}

// value * 2^n, n in the low bits of `magic` (see exp_for_softmax).
MSTAR_VEC Vec shift_exponent(Vec value, Vec magic) {
  return {bits_float(float_bits(value.v) + (float_bits(magic.v) << 23))};
}

MSTAR_VEC float reduce_add(Vec x) {
  return x.v;
}

MSTAR_VEC float reduce_max(Vec x) {
  return x.v;
}

MSTAR_VEC float reduce_min(Vec x) {
  return x.v;
}

// Lane i becomes the sum of x[i].
MSTAR_VEC Vec reduce_add_each(const Vec (&x)[kLanes]) {
  return x[0];
}

// Rows become columns.
MSTAR_VEC void transpose(Vec (&)[kLanes]) {}

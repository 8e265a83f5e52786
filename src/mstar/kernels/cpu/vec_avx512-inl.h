// Sixteen lanes: AVX-512 F, BW, DQ, VL. Part of vec.h, inside its namespace.
// bf16 is rounded with integer instructions also where vcvtneps2bf16 exists: that one flushes
// subnormal numbers, and every set must store the same bits.

inline constexpr int kLanes = 16;

struct Vec {
  __m512 v;
};

struct IVec {  // i32 lanes
  __m512i v;
};

struct Mask {
  __mmask16 v;
};

MSTAR_VEC Vec zero() {
  return {_mm512_setzero_ps()};
}

MSTAR_VEC Vec set(float x) {
  return {_mm512_set1_ps(x)};
}

MSTAR_VEC IVec set_int(int32_t x) {
  return {_mm512_set1_epi32(x)};
}

MSTAR_VEC Vec from_bf16(__m256i bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}

MSTAR_VEC __m256i load_32_bytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

MSTAR_VEC Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}

MSTAR_VEC Vec load(const bfloat16* p) {
  return from_bf16(load_32_bytes(p));
}

MSTAR_VEC Vec load(const float16* p) {
  return {_mm512_cvtph_ps(load_32_bytes(p))};
}

MSTAR_VEC Vec load(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}

MSTAR_VEC Vec load(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
}

// Upper halves of the lanes, rounded: the bits of bf16 in 32-bit lanes.
MSTAR_VEC __m512i bf16_bits(Vec x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_srli_epi32(rounded, 16);
}

MSTAR_VEC __m256i to_bf16(Vec x) {
  return _mm512_cvtepi32_epi16(bf16_bits(x));
}

MSTAR_VEC __m256i to_f16(Vec x) {
  return _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT);
}

// n (0 … 2 kLanes) bf16 as words of two, zeros behind them.
MSTAR_VEC Vec load_pairs(const bfloat16* p, int n) {
  if (n == 2 * kLanes) {
    return load(reinterpret_cast<const float*>(p));
  }
  const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1U);
  return {_mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, p))};
}

// Words of two bf16, the lower from `low` and the upper from `high` (32 bf16 each): those of the
// first 16 columns (second = false) or of the last 16.
MSTAR_VEC Vec interleave_pairs(Vec low, Vec high, bool second) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // Halves i of `low` and 32 + i of both.
  const __m512i halves = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x10001)),
                                          _mm512_set1_epi32(second ? 0x300010 : 0x200000));
  return {_mm512_castsi512_ps(
      _mm512_permutex2var_epi16(_mm512_castps_si512(low.v), halves, _mm512_castps_si512(high.v)))};
}

MSTAR_VEC void store(float* p, Vec x) {
  _mm512_storeu_ps(p, x.v);
}

MSTAR_VEC void store(bfloat16* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(x));
}

MSTAR_VEC void store(float16* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_f16(x));
}

MSTAR_VEC __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1U << n) - 1U);
}

// The first n (0 … kLanes) elements, zeros behind them; nothing else is touched.
MSTAR_VEC Vec load_n(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}

MSTAR_VEC Vec load_n(const bfloat16* p, int n) {
  return from_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

MSTAR_VEC Vec load_n(const float16* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}

MSTAR_VEC Vec load_n(const int8_t* p, int n) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p)))};
}

MSTAR_VEC Vec load_n(const uint8_t* p, int n) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p)))};
}

MSTAR_VEC void store_n(float* p, Vec x, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x.v);
}

MSTAR_VEC void store_n(bfloat16* p, Vec x, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), to_bf16(x));
}

MSTAR_VEC void store_n(float16* p, Vec x, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), to_f16(x));
}

MSTAR_VEC Vec round_bf16(Vec x) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bf16_bits(x), 16))};
}

MSTAR_VEC Vec operator+(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}

MSTAR_VEC Vec operator-(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}

MSTAR_VEC Vec operator*(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}

MSTAR_VEC Vec operator/(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}

MSTAR_VEC Vec operator-(Vec a) {
  return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0F))};
}

MSTAR_VEC Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}

MSTAR_VEC void accumulate(Vec& sum, Vec a, Vec b) {
  sum = fma(a, b, sum);
}

MSTAR_VEC Vec fnma(Vec a, Vec b, Vec c) {
  return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
}

#if defined(__AVX512BF16__)
// sum + a.low * b.low + a.high * b.high of words of two bf16; subnormals count as zero.
MSTAR_VEC Vec dot_pairs(Vec sum, Vec a, Vec b) {
  return {
      _mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}
#endif

MSTAR_VEC Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}

MSTAR_VEC Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}

MSTAR_VEC Vec abs(Vec a) {
  return {_mm512_andnot_ps(_mm512_set1_ps(-0.0F), a.v)};
}

MSTAR_VEC Vec sqrt(Vec a) {
  return {_mm512_sqrt_ps(a.v)};
}

MSTAR_VEC Vec copysign(Vec size, Vec sign) {
  const __m512 bit = _mm512_set1_ps(-0.0F);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, size.v), _mm512_and_ps(bit, sign.v))};
}

MSTAR_VEC Vec round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

MSTAR_VEC Vec floor(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}

MSTAR_VEC Mask operator<(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}

MSTAR_VEC Mask operator>(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)};
}

MSTAR_VEC Mask operator<(IVec a, IVec b) {
  return {_mm512_cmplt_epi32_mask(a.v, b.v)};
}

MSTAR_VEC Mask is_nan(Vec a) {
  return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)};
}

MSTAR_VEC bool any(Mask m) {
  return m.v != 0;
}

MSTAR_VEC Vec select(Mask m, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(m.v, no.v, yes.v)};
}

MSTAR_VEC IVec operator+(IVec a, IVec b) {
  return {_mm512_add_epi32(a.v, b.v)};
}

MSTAR_VEC IVec operator-(IVec a, IVec b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}

MSTAR_VEC IVec half_of(IVec a) {
  return {_mm512_srai_epi32(a.v, 1)};
}

MSTAR_VEC IVec iota() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}

MSTAR_VEC Vec convert(IVec a) {
  return {_mm512_cvtepi32_ps(a.v)};
}

MSTAR_VEC IVec convert(Vec a) {
  return {_mm512_cvtps_epi32(a.v)};
}

MSTAR_VEC Vec power_of_two(IVec n) {
  return {
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23))};
}

// value * 2^n, n in the low bits of `magic` (see exp_for_softmax).
MSTAR_VEC Vec shift_exponent(Vec value, Vec magic) {
  const __m512i shift = _mm512_slli_epi32(_mm512_castps_si512(magic.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value.v), shift))};
}

MSTAR_VEC __m256 upper_half(__m512 x) {
  return _mm512_extractf32x8_ps(x, 1);
}

MSTAR_VEC float reduce_add(Vec x) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x.v), upper_half(x.v));
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

MSTAR_VEC float reduce_max(Vec x) {
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x.v), upper_half(x.v));
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}

MSTAR_VEC float reduce_min(Vec x) {
  const __m256 half = _mm256_min_ps(_mm512_castps512_ps256(x.v), upper_half(x.v));
  __m128 least = _mm_min_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  least = _mm_min_ps(least, _mm_movehl_ps(least, least));
  return _mm_cvtss_f32(_mm_min_ss(least, _mm_movehdup_ps(least)));
}

// Four rows within 128-bit quarters: quarter q of x[i] becomes column-major.
MSTAR_VEC void transpose_quarters(__m512 (&x)[4]) {
  const __m512 a = _mm512_unpacklo_ps(x[0], x[1]);
  const __m512 b = _mm512_unpackhi_ps(x[0], x[1]);
  const __m512 c = _mm512_unpacklo_ps(x[2], x[3]);
  const __m512 d = _mm512_unpackhi_ps(x[2], x[3]);
  x[0] = _mm512_shuffle_ps(a, c, 0x44);
  x[1] = _mm512_shuffle_ps(a, c, 0xee);
  x[2] = _mm512_shuffle_ps(b, d, 0x44);
  x[3] = _mm512_shuffle_ps(b, d, 0xee);
}

MSTAR_VEC void transpose(Vec (&x)[kLanes]) {
  __m512 a[4][4];
  for (int group = 0; group < 4; ++group) {
    for (int i = 0; i < 4; ++i) {
      a[group][i] = x[4 * group + i].v;
    }
    transpose_quarters(a[group]);
  }
  // Quarter q of a[group][i] holds column 4 q + i of rows 4 group … 4 group + 3.
  for (int i = 0; i < 4; ++i) {
    const __m512 low01 = _mm512_shuffle_f32x4(a[0][i], a[1][i], 0x44);
    const __m512 high01 = _mm512_shuffle_f32x4(a[0][i], a[1][i], 0xee);
    const __m512 low23 = _mm512_shuffle_f32x4(a[2][i], a[3][i], 0x44);
    const __m512 high23 = _mm512_shuffle_f32x4(a[2][i], a[3][i], 0xee);
    x[i].v = _mm512_shuffle_f32x4(low01, low23, 0x88);
    x[4 + i].v = _mm512_shuffle_f32x4(low01, low23, 0xdd);
    x[8 + i].v = _mm512_shuffle_f32x4(high01, high23, 0x88);
    x[12 + i].v = _mm512_shuffle_f32x4(high01, high23, 0xdd);
  }
}

// The columns' sum after a transpose, pairwise.
MSTAR_VEC Vec reduce_add_each(const Vec (&x)[kLanes]) {
  __m512 quarter[4];
  for (int group = 0; group < 4; ++group) {
    __m512 a[4] = {x[4 * group].v, x[4 * group + 1].v, x[4 * group + 2].v, x[4 * group + 3].v};
    transpose_quarters(a);
    quarter[group] = _mm512_add_ps(_mm512_add_ps(a[0], a[1]), _mm512_add_ps(a[2], a[3]));
  }
  // Quarter q of quarter[group] is a partial sum of rows 4 group … 4 group + 3.
  const __m512 low01 = _mm512_shuffle_f32x4(quarter[0], quarter[1], 0x44);
  const __m512 high01 = _mm512_shuffle_f32x4(quarter[0], quarter[1], 0xee);
  const __m512 low23 = _mm512_shuffle_f32x4(quarter[2], quarter[3], 0x44);
  const __m512 high23 = _mm512_shuffle_f32x4(quarter[2], quarter[3], 0xee);
  const __m512 first = _mm512_shuffle_f32x4(low01, low23, 0x88);
  const __m512 second = _mm512_shuffle_f32x4(low01, low23, 0xdd);
  const __m512 third = _mm512_shuffle_f32x4(high01, high23, 0x88);
  const __m512 fourth = _mm512_shuffle_f32x4(high01, high23, 0xdd);
  return {_mm512_add_ps(_mm512_add_ps(first, second), _mm512_add_ps(third, fourth))};
}

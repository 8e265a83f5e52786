// Eight lanes: AVX2, FMA, F16C. Part of vec.h, inside its namespace.

inline constexpr int kLanes = 8;

struct Vec {
  __m256 v;
};

struct IVec {  // i32 lanes
  __m256i v;
};

struct Mask {
  __m256 v;  // all bits of a lane, or none
};

MSTAR_VEC Vec zero() {
  return {_mm256_setzero_ps()};
}

MSTAR_VEC Vec set(float x) {
  return {_mm256_set1_ps(x)};
}

MSTAR_VEC IVec set_int(int32_t x) {
  return {_mm256_set1_epi32(x)};
}

MSTAR_VEC Vec load(const float* p) {
  return {_mm256_loadu_ps(p)};
}

MSTAR_VEC Vec from_bf16(__m128i bits) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}

MSTAR_VEC __m128i load_16_bytes(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

MSTAR_VEC Vec load(const bfloat16* p) {
  return from_bf16(load_16_bytes(p));
}

MSTAR_VEC Vec load(const float16* p) {
  return {_mm256_cvtph_ps(load_16_bytes(p))};
}

MSTAR_VEC Vec load(const int8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
}

MSTAR_VEC Vec load(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))};
}

// Upper halves of the lanes, rounded: the bits of bf16 in 32-bit lanes.
MSTAR_VEC __m256i bf16_bits(Vec x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q);
  const __m256 rounded = _mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(quiet), nan);
  return _mm256_srli_epi32(_mm256_castps_si256(rounded), 16);
}

MSTAR_VEC __m128i to_bf16(Vec x) {
  const __m256i bits = bf16_bits(x);
  const __m256i packed = _mm256_packus_epi32(bits, bits);  // within 128-bit halves
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

MSTAR_VEC __m128i to_f16(Vec x) {
  return _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT);
}

MSTAR_VEC void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.v);
}

MSTAR_VEC void store(bfloat16* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bf16(x));
}

MSTAR_VEC void store(float16* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_f16(x));
}

MSTAR_VEC __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

MSTAR_VEC Vec load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_lanes(n))};
}

MSTAR_VEC void store_n(float* p, Vec x, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), x.v);
}

// The first n (0 … kLanes) elements, zeros behind them; nothing else is touched.
template <typename T>
MSTAR_VEC Vec load_n(const T* p, int n) {
  T buffer[kLanes] = {};
  for (int lane = 0; lane < kLanes && lane < n; ++lane) {
    buffer[lane] = p[lane];
  }
  return load(buffer);
}

template <typename T>
MSTAR_VEC void store_n(T* p, Vec x, int n) {
  T buffer[kLanes];
  store(buffer, x);
  for (int lane = 0; lane < kLanes && lane < n; ++lane) {
    p[lane] = buffer[lane];
  }
}

MSTAR_VEC Vec round_bf16(Vec x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(x), 16))};
}

MSTAR_VEC Vec operator+(Vec a, Vec b) {
  return {_mm256_add_ps(a.v, b.v)};
}

MSTAR_VEC Vec operator-(Vec a, Vec b) {
  return {_mm256_sub_ps(a.v, b.v)};
}

MSTAR_VEC Vec operator*(Vec a, Vec b) {
  return {_mm256_mul_ps(a.v, b.v)};
}

MSTAR_VEC Vec operator/(Vec a, Vec b) {
  return {_mm256_div_ps(a.v, b.v)};
}

MSTAR_VEC Vec operator-(Vec a) {
  return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0F))};
}

MSTAR_VEC Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}

// sum += a * b in place, written out so that the compiler leaves sums in their registers.
MSTAR_VEC void accumulate(Vec& sum, Vec a, Vec b) {
  __m256 moved = sum.v;  // by value: an operand in memory would keep all sums there
  asm("vfmadd231ps %2, %1, %0" : "+x"(moved) : "x"(a.v), "x"(b.v));
  sum.v = moved;
}

MSTAR_VEC Vec fnma(Vec a, Vec b, Vec c) {
  return {_mm256_fnmadd_ps(a.v, b.v, c.v)};
}

MSTAR_VEC Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.v, b.v)};
}

MSTAR_VEC Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.v, b.v)};
}

MSTAR_VEC Vec abs(Vec a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0F), a.v)};
}

MSTAR_VEC Vec sqrt(Vec a) {
  return {_mm256_sqrt_ps(a.v)};
}

MSTAR_VEC Vec copysign(Vec size, Vec sign) {
  const __m256 bit = _mm256_set1_ps(-0.0F);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, size.v), _mm256_and_ps(bit, sign.v))};
}

MSTAR_VEC Vec round(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

MSTAR_VEC Vec floor(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}

MSTAR_VEC Mask operator<(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)};
}

MSTAR_VEC Mask operator>(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)};
}

MSTAR_VEC Mask operator<(IVec a, IVec b) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.v, a.v))};
}

MSTAR_VEC Mask is_nan(Vec a) {
  return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)};
}

MSTAR_VEC bool any(Mask m) {
  return _mm256_movemask_ps(m.v) != 0;
}

MSTAR_VEC Vec select(Mask m, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.v, yes.v, m.v)};
}

MSTAR_VEC IVec operator+(IVec a, IVec b) {
  return {_mm256_add_epi32(a.v, b.v)};
}

MSTAR_VEC IVec operator-(IVec a, IVec b) {
  return {_mm256_sub_epi32(a.v, b.v)};
}

MSTAR_VEC IVec half_of(IVec a) {
  return {_mm256_srai_epi32(a.v, 1)};
}

MSTAR_VEC IVec iota() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)};
}

MSTAR_VEC Vec convert(IVec a) {
  return {_mm256_cvtepi32_ps(a.v)};
}

MSTAR_VEC IVec convert(Vec a) {
  return {_mm256_cvtps_epi32(a.v)};
}

MSTAR_VEC Vec power_of_two(IVec n) {
  return {
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.v, _mm256_set1_epi32(127)), 23))};
}

// value * 2^n, n in the low bits of `magic` (see exp_for_softmax).
MSTAR_VEC Vec shift_exponent(Vec value, Vec magic) {
  const __m256i shift = _mm256_slli_epi32(_mm256_castps_si256(magic.v), 23);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value.v), shift))};
}

MSTAR_VEC float reduce_add(Vec x) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

MSTAR_VEC float reduce_max(Vec x) {
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}

MSTAR_VEC float reduce_min(Vec x) {
  __m128 least = _mm_min_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  least = _mm_min_ps(least, _mm_movehl_ps(least, least));
  return _mm_cvtss_f32(_mm_min_ss(least, _mm_movehdup_ps(least)));
}

MSTAR_VEC Vec reduce_add_each(const Vec (&x)[kLanes]) {
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(x[0].v, x[1].v), _mm256_hadd_ps(x[2].v, x[3].v));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(x[4].v, x[5].v), _mm256_hadd_ps(x[6].v, x[7].v));
  return {_mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31))};
}

MSTAR_VEC void transpose(Vec (&x)[kLanes]) {
  __m256 a[8];
  __m256 b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_ps(x[2 * i].v, x[2 * i + 1].v);
    a[2 * i + 1] = _mm256_unpackhi_ps(x[2 * i].v, x[2 * i + 1].v);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
    b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
    b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
    b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    x[i].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    x[i + 4].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}

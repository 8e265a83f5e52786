#include "mstar/kernels/cpu/rope.h"
#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

// clang-format off
#include "mstar/kernels/cpu/rows-inl.h"
// clang-format on

constexpr int64_t kBlock = 64;
constexpr double kLargestAngle = 1e6;  // beyond: the library's slow reduction

// Sine and cosine of f32 angles, right to the last bit but for a few ties: all in double, without
// fused operations, so that every instruction set gives the same bits. The loop has no branches
// and becomes vectors.
void sin_cos(const float* angle, int64_t count, float* sin, float* cos) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it leaves the integer
  for (int64_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(angle[i]);
    const double shifted = x * 0.63661977236758134 + kMagic;  // quarter turns
    const double turns = shifted - kMagic;
    // pi / 2 in two parts, the first of 33 bits: turns * first is exact.
    const double r = (x - turns * 1.5707963267341256) - turns * 6.0771005065061922e-11;
    const double s = r * r;
    const double sine =
        r + r * s *
                (-1.0 / 6 +
                 s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880 + s * (-1.0 / 39916800)))));
    const double cosine =
        1.0 +
        s * (-0.5 + s * (1.0 / 24 + s * (-1.0 / 720 + s * (1.0 / 40320 +
                                                           s * (-1.0 / 3628800 + s / 479001600)))));
    const uint64_t quarter = __builtin_bit_cast(uint64_t, shifted) & 3U;
    const bool swapped = (quarter & 1U) != 0;
    const double sin_size = swapped ? cosine : sine;
    const double cos_size = swapped ? sine : cosine;
    sin[i] = static_cast<float>((quarter & 2U) != 0 ? -sin_size : sin_size);
    cos[i] = static_cast<float>(((quarter + 1U) & 2U) != 0 ? -cos_size : cos_size);
  }
}

float position_at(const RopeTableParams& p, int64_t place) {
  switch (p.positions_dtype) {
    case DType::kI32: return static_cast<float>(static_cast<const int32_t*>(p.positions)[place]);
    case DType::kI64: return static_cast<float>(static_cast<const int64_t*>(p.positions)[place]);
    default: return static_cast<const float*>(p.positions)[place];
  }
}

void table_row(const RopeTableParams& p, int64_t token) {
  const int64_t place = token * p.token_stride;
  const float position[3] = {position_at(p, place),
                             position_at(p, place + p.axis_stride),
                             position_at(p, place + 2 * p.axis_stride)};
  float* cos = p.cos + token * p.half;
  float* sin = p.sin + token * p.half;
  for (int64_t begin = 0; begin < p.half; begin += kBlock) {
    const int64_t count = p.half - begin < kBlock ? p.half - begin : kBlock;
    float angle[kBlock];
    bool small = true;
    for (int64_t i = 0; i < count; ++i) {
      angle[i] = position[p.axis[begin + i]] * p.inv_freq[begin + i];
      small = small && __builtin_fabsf(angle[i]) < static_cast<float>(kLargestAngle);
    }
    if (small) {
      sin_cos(angle, count, sin + begin, cos + begin);
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      sin[begin + i] = static_cast<float>(__builtin_sin(static_cast<double>(angle[i])));
      cos[begin + i] = static_cast<float>(__builtin_cos(static_cast<double>(angle[i])));
    }
  }
}

// (a, b) turned by the angle. With kRound every step is rounded to bf16.
template <bool kRound>
MSTAR_VEC void turn(Vec& a, Vec& b, Vec cos, Vec sin) {
  if constexpr (kRound) {
    cos = round_bf16(cos);
    sin = round_bf16(sin);
    const Vec first = round_bf16(a * cos) - round_bf16(b * sin);
    b = round_bf16(b * cos) + round_bf16(a * sin);
    a = first;
  } else {
    const Vec first = a * cos - b * sin;
    b = b * cos + a * sin;
    a = first;
  }
}

template <typename T, bool kRound>
void turn_halves(T* x, const float* cos, const float* sin, int64_t half) {
  for_vectors(
      0,
      half,
      [&](int64_t i) {
        Vec a = load(x + i);
        Vec b = load(x + half + i);
        turn<kRound>(a, b, load(cos + i), load(sin + i));
        store(x + i, a);
        store(x + half + i, b);
      },
      [&](int64_t i, int n) {
        Vec a = load_n(x + i, n);
        Vec b = load_n(x + half + i, n);
        turn<kRound>(a, b, load_n(cos + i, n), load_n(sin + i, n));
        store_n(x + i, a, n);
        store_n(x + half + i, b, n);
      });
}

// Pairs (2 i, 2 i + 1): set apart into two halves, turned, and put together again.
template <typename T, bool kRound>
void turn_pairs(T* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t begin = 0; begin < half; begin += kBlock) {
    const int64_t count = half - begin < kBlock ? half - begin : kBlock;
    T apart[2 * kBlock];
    T* pairs = x + 2 * begin;
    for (int64_t i = 0; i < count; ++i) {
      apart[i] = pairs[2 * i];
      apart[count + i] = pairs[2 * i + 1];
    }
    turn_halves<T, kRound>(apart, cos + begin, sin + begin, count);
    for (int64_t i = 0; i < count; ++i) {
      pairs[2 * i] = apart[i];
      pairs[2 * i + 1] = apart[count + i];
    }
  }
}

template <typename T, bool kRound>
void rope_rows(const RopeParams& p, int task) {
  const Share tokens = share_of(p.tokens, task, p.num_tasks);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const float* cos = p.cos + token * p.half;
    const float* sin = p.sin + token * p.half;
    for (int64_t head = 0; head < p.num_heads; ++head) {
      T* x = static_cast<T*>(p.x) + token * p.token_stride + head * p.head_stride;
      if (p.interleave) {
        turn_pairs<T, kRound>(x, cos, sin, p.half);
      } else {
        turn_halves<T, kRound>(x, cos, sin, p.half);
      }
    }
  }
}

}  // namespace

void rope_table(const RopeTableParams& p, int task) {
  const Share tokens = share_of(p.tokens, task, p.num_tasks);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    table_row(p, token);
  }
}

void apply_rope(const RopeParams& p, int task) {
  if (p.dtype == DType::kF32) {
    rope_rows<float, false>(p, task);
  } else if (p.round_table) {
    rope_rows<bfloat16, true>(p, task);
  } else {
    rope_rows<bfloat16, false>(p, task);
  }
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE

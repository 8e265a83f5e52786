#include "mstar/kernels/cpu/sampling_kernels.h"

#include "mstar/kernels/cpu/philox.h"
#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

// Pieces are whole vectors; what lies beyond the end of the row reads as minus infinity.
template <typename T>
MSTAR_VEC Vec load_or_lowest(const T* x, int64_t left) {
  if (left >= kLanes) {
    return load(x);
  }
  const int count = static_cast<int>(left);
  return select(
      convert(iota()) < set(static_cast<float>(count)), load_n(x, count), set(-kInfinity));
}

template <typename T>
float piece_maxima_of(const T* x, int64_t n, float* maxima) {
  float largest = -kInfinity;
  for (int64_t begin = 0; begin < n; begin += kSamplingPiece) {
    const int64_t end = begin + kSamplingPiece < n ? begin + kSamplingPiece : n;
    Vec a = set(-kInfinity);
    Vec b = a;
    int64_t i = begin;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      a = max(load(x + i), a);
      b = max(load(x + i + kLanes), b);
    }
    for (; i < end; i += kLanes) {
      a = max(load_or_lowest(x + i, end - i), a);
    }
    const float piece = reduce_max(max(a, b));
    maxima[begin / kSamplingPiece] = piece;
    largest = piece > largest ? piece : largest;
  }
  return largest;
}

template <typename T>
int64_t count_at_least_of(const T* x, int64_t n, float threshold) {
  const Vec limit = set(threshold);
  int64_t count = 0;
  for (int64_t begin = 0; begin < n; begin += 4096) {  // counts in f32 lanes stay exact
    const int64_t end = begin + 4096 < n ? begin + 4096 : n;
    Vec found = zero();
    for (int64_t i = begin; i < end; i += kLanes) {
      const Vec v = load_or_lowest(x + i, end - i);
      found = found + select(v < limit, zero(), select(is_nan(v), zero(), set(1.0F)));
    }
    count += static_cast<int64_t>(reduce_add(found));
  }
  return count;
}

template <typename T>
int64_t collect_of(const T* x,
                   int64_t n,
                   const float* maxima,
                   float threshold,
                   float* values,
                   int32_t* indices) {
  int64_t count = 0;
  for (int64_t begin = 0; begin < n; begin += kSamplingPiece) {
    if (!(maxima[begin / kSamplingPiece] >= threshold)) {
      continue;
    }
    const int64_t end = begin + kSamplingPiece < n ? begin + kSamplingPiece : n;
    for (int64_t i = begin; i < end; ++i) {
      const float read = load_one(x + i);
      const float value = read == read ? read : -kInfinity;
      values[count] = value;
      indices[count] = static_cast<int32_t>(i);
      count += value >= threshold ? 1 : 0;
    }
  }
  return count;
}

// Down through the subnormals: what a token that may be drawn weighs must not become zero early.
MSTAR_VEC Vec exponential(Vec x, float shift, float scale) {
  const Vec power = max((x - shift) * scale, set(-1000.0F));
  return select(power < set(-104.0F), zero(), exp(power));
}

template <typename T>
void exponentials_of(const T* x, int64_t n, float shift, float scale, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(out + i, exponential(load(x + i), shift, scale));
  }
  if (i < n) {
    const int left = static_cast<int>(n - i);
    store_n(out + i, exponential(load_n(x + i, left), shift, scale), left);
  }
}

template <typename T>
double exponential_sums_of(const T* x, int64_t n, float shift, float scale, float* sums) {
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kSamplingPiece) {
    const int64_t end = begin + kSamplingPiece < n ? begin + kSamplingPiece : n;
    Vec sum = zero();
    for (int64_t i = begin; i < end; i += kLanes) {
      sum = sum + exponential(load_or_lowest(x + i, end - i), shift, scale);
    }
    const float piece = reduce_add(sum);
    sums[begin / kSamplingPiece] = piece;
    total += static_cast<double>(piece);
  }
  return total;
}

double mass_at_least(const float* x, int64_t n, float threshold, int64_t* count) {
  const Vec limit = set(threshold);
  double total = 0.0;
  int64_t found = 0;
  for (int64_t begin = 0; begin < n; begin += 1024) {
    const int64_t end = begin + 1024 < n ? begin + 1024 : n;
    Vec mass = zero();
    Vec ones = zero();
    for (int64_t i = begin; i < end; i += kLanes) {
      const Vec v = load_or_lowest(x + i, end - i);
      const Mask below = v < limit;
      mass = mass + select(below, zero(), v);
      ones = ones + select(below, zero(), set(1.0F));
    }
    total += static_cast<double>(reduce_add(mass));
    found += static_cast<int64_t>(reduce_add(ones));
  }
  *count = found;
  return total;
}

MSTAR_VEC Vec softmax_term(Vec x, float shift) {
  return exp_not_positive(max(x - shift, set(-1000.0F)));
}

template <typename T, typename Out>
void softmax_of(const T* x, int64_t n, Out* out) {
  Vec largest = set(-kInfinity);
  for (int64_t i = 0; i < n; i += kLanes) {
    largest = max(load_or_lowest(x + i, n - i), largest);
  }
  const float shift = reduce_max(largest);
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kSamplingPiece) {
    const int64_t end = begin + kSamplingPiece < n ? begin + kSamplingPiece : n;
    Vec sum = zero();
    for (int64_t i = begin; i < end; i += kLanes) {
      sum = sum + softmax_term(load_or_lowest(x + i, end - i), shift);
    }
    total += static_cast<double>(reduce_add(sum));
  }
  const Vec factor = set(static_cast<float>(1.0 / total));
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec v = softmax_term(load_or_lowest(x + i, n - i), shift) * factor;
    if (n - i >= kLanes) {
      store(out + i, v);
    } else {
      store_n(out + i, v, static_cast<int>(n - i));
    }
  }
}

template <typename Function>
MSTAR_VEC auto with_type(const SamplingInput& x, Function function) {
  return x.is_bf16 ? function(static_cast<const bfloat16*>(x.data))
                   : function(static_cast<const float*>(x.data));
}

float piece_maxima(const SamplingInput& x, float* maxima) {
  return with_type(x, [&](const auto* data) { return piece_maxima_of(data, x.n, maxima); });
}

int64_t count_at_least(const SamplingInput& x, float threshold) {
  return with_type(x, [&](const auto* data) { return count_at_least_of(data, x.n, threshold); });
}

int64_t collect(const SamplingInput& x,
                const float* maxima,
                float threshold,
                float* values,
                int32_t* indices) {
  return with_type(x, [&](const auto* data) {
    return collect_of(data, x.n, maxima, threshold, values, indices);
  });
}

void exponentials(const SamplingInput& x, float shift, float scale, float* out) {
  with_type(x, [&](const auto* data) { exponentials_of(data, x.n, shift, scale, out); });
}

double exponential_sums(const SamplingInput& x, float shift, float scale, float* sums) {
  return with_type(
      x, [&](const auto* data) { return exponential_sums_of(data, x.n, shift, scale, sums); });
}

void softmax(const SamplingInput& x, void* out, bool out_is_bf16) {
  with_type(x, [&](const auto* data) {
    if (out_is_bf16) {
      softmax_of(data, x.n, static_cast<bfloat16*>(out));
    } else {
      softmax_of(data, x.n, static_cast<float*>(out));
    }
  });
}

// ln(u) for u in (0, 1], absolute error 1e-7: 2 atanh((m - 1) / (m + 1)) of the mantissa m in
// [sqrt(1/2), sqrt(2)). Multiplications and additions are rounded one by one (no fma), so that
// every machine gives the same bits.
MSTAR_VEC float log_of(float u) {
  const uint32_t bits = float_bits(u);
  const uint32_t shifted = bits - 0x3f3504f3U;  // sqrt(1/2)
  const auto exponent = static_cast<int32_t>(shifted) >> 23;
  const float m = bits_float(bits - (static_cast<uint32_t>(exponent) << 23));
  const float s = (m - 1.0F) / (m + 1.0F);
  const float z = s * s;
  float series = z * (1.0F / 9.0F) + 1.0F / 7.0F;
  series = series * z + 1.0F / 5.0F;
  series = series * z + 1.0F / 3.0F;
  series = series * z + 1.0F;
  return 2.0F * s * series + static_cast<float>(exponent) * 0.69314718F;
}

// cos and sin of 2 pi a for a multiple of 2^-24 in [0, 1): the quarter turn is split off exactly.
MSTAR_VEC void turn(float a, float* cosine, float* sine) {
  const auto quarter = static_cast<int32_t>(a * 4.0F + 0.5F);
  const float r = (a - static_cast<float>(quarter) * 0.25F) * 6.2831853F;
  const float z = r * r;
  float s = z * (1.0F / 362880.0F) - 1.0F / 5040.0F;
  s = s * z + 1.0F / 120.0F;
  s = s * z - 1.0F / 6.0F;
  s = s * z * r + r;
  float c = z * (1.0F / 40320.0F) - 1.0F / 720.0F;
  c = c * z + 1.0F / 24.0F;
  c = c * z - 0.5F;
  c = c * z + 1.0F;
  const bool swap = (quarter & 1) != 0;
  const float x = swap ? s : c;
  const float y = swap ? c : s;
  *cosine = ((quarter + 1) & 2) != 0 ? -x : x;
  *sine = (quarter & 2) != 0 ? -y : y;
}

void normals(uint64_t seed, uint64_t stream, int64_t begin, int64_t end, float* out) {
  constexpr int kBatch = 16;  // counters at a time, so that the loops become vectors
  for (int64_t at = begin; at < end; at += 4 * kBatch) {
    uint32_t words[4][kBatch];
    for (int lane = 0; lane < kBatch; ++lane) {
      const PhiloxWords random =
          philox(seed, static_cast<uint64_t>(at / 4) + static_cast<uint64_t>(lane), stream);
      for (int word = 0; word < 4; ++word) {
        words[word][lane] = random.words[word];
      }
    }
    float values[kBatch][4];
    for (int pair = 0; pair < 2; ++pair) {
      for (int lane = 0; lane < kBatch; ++lane) {
        const float u = static_cast<float>((words[2 * pair][lane] >> 8) + 1) * 0x1p-24F;
        const float a = static_cast<float>(words[2 * pair + 1][lane] >> 8) * 0x1p-24F;
        const float square = -2.0F * log_of(u);
        const float radius = __builtin_sqrtf(square > 0.0F ? square : 0.0F);
        float cosine;
        float sine;
        turn(a, &cosine, &sine);
        values[lane][2 * pair] = radius * cosine;
        values[lane][2 * pair + 1] = radius * sine;
      }
    }
    const int64_t left = end - at;
    const int64_t count = left < 4 * kBatch ? left : 4 * kBatch;
    __builtin_memcpy(out + (at - begin), values, static_cast<uint64_t>(count) * sizeof(float));
  }
}

}  // namespace

const SamplingKernels sampling_kernels = {piece_maxima,
                                          count_at_least,
                                          collect,
                                          exponentials,
                                          exponential_sums,
                                          mass_at_least,
                                          softmax,
                                          normals};

}  // namespace mstar::MSTAR_ISA_NAMESPACE

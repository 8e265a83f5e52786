#include "mstar/kernels/cpu/vec_probe.h"

#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

Vec apply(VecFunction f, Vec x) {
  switch (f) {
    case VecFunction::kExp: return exp(x);
    case VecFunction::kExpNotPositive: return exp_not_positive(x);
    case VecFunction::kExpForSoftmax: return exp_for_softmax(x);
    case VecFunction::kTanh: return tanh(x);
    case VecFunction::kErf: return erf(x);
    case VecFunction::kErfc: return erfc(x);
    case VecFunction::kRound: return round(x);
    case VecFunction::kFloor: return floor(x);
  }
  return x;
}

template <typename From, typename To>
void convert_all(const From* x, To* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(y + i, load(x + i));
  }
  store_n(y + i, load_n(x + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}

}  // namespace

int vec_lanes() {
  return kLanes;
}

void vec_map(VecFunction f, const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(y + i, apply(f, load(x + i)));
  }
  const int rest = static_cast<int>(n - i);
  store_n(y + i, apply(f, load_n(x + i, rest)), rest);
}

void vec_to_bf16(const float* x, bfloat16* y, int64_t n) {
  convert_all(x, y, n);
}

void vec_to_f16(const float* x, float16* y, int64_t n) {
  convert_all(x, y, n);
}

void vec_from_bf16(const bfloat16* x, float* y, int64_t n) {
  convert_all(x, y, n);
}

void vec_from_f16(const float16* x, float* y, int64_t n) {
  convert_all(x, y, n);
}

void vec_transpose(const float* x, float* y) {
  Vec rows[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    rows[i] = load(x + i * kLanes);
  }
  transpose(rows);
  for (int i = 0; i < kLanes; ++i) {
    store(y + i * kLanes, rows[i]);
  }
}

void vec_row_sums(const float* x, float* one_by_one, float* together) {
  Vec rows[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    rows[i] = load(x + i * kLanes);
    one_by_one[i] = reduce_add(rows[i]);
  }
  store(together, reduce_add_each(rows));
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE

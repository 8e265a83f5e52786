#include "mstar/kernels/cpu/resize_table.h"

#include <algorithm>
#include <cmath>

namespace mstar {

namespace {

// The filters of torch and PIL; Real is the precision that torch evaluates them in.
template <typename Real>
Real tent(Real x) {
  x = std::abs(x);
  return x < Real{1} ? Real{1} - x : Real{0};
}

template <typename Real>
Real cubic(Real x, Real a) {
  x = std::abs(x);
  if (x < Real{1}) {
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  }
  return x < Real{2} ? (((x - 5) * x + 8) * x - 4) * a : Real{0};
}

int radius(ResizeFilter filter) {
  return filter == ResizeFilter::kBilinear ? 1 : 2;
}

struct Taps {
  int64_t begin;
  int64_t count;
};

// The filter is stretched by the scale when shrinking, cut at the edges and normalized.
template <typename Real>
Taps antialiased(const ResizeAxis& axis, int64_t to, Real* weights) {
  const Real scale = static_cast<Real>(axis.in_size) / static_cast<Real>(axis.out_size);
  const Real stretch = std::max(scale, Real{1});
  const Real support = static_cast<Real>(radius(axis.filter)) * stretch;
  const Real inverse = Real{1} / stretch;
  const auto center = static_cast<Real>(scale * (static_cast<double>(to) + 0.5));
  const auto edge = [](double position) { return static_cast<int64_t>(position); };
  Taps taps;
  taps.begin = std::max<int64_t>(edge(center - support + 0.5), 0);
  taps.count = std::min(edge(center + support + 0.5), axis.in_size) - taps.begin;
  Real total{0};
  for (int64_t tap = 0; tap < taps.count; ++tap) {
    const double from = static_cast<double>(tap + taps.begin);
    const auto x = static_cast<Real>((from - center + 0.5) * inverse);
    weights[tap] = axis.filter == ResizeFilter::kBilinear ? tent(x) : cubic(x, Real{-0.5});
    total += weights[tap];
  }
  for (int64_t tap = 0; tap < taps.count; ++tap) {
    weights[tap] /= total;
  }
  return taps;
}

// Two or four taps around the position; those outside fall on the edge pixels.
template <typename Real>
Taps interpolated(const ResizeAxis& axis, int64_t to, Real* weights) {
  const Real scale = static_cast<Real>(axis.in_size) / static_cast<Real>(axis.out_size);
  const bool bilinear = axis.filter == ResizeFilter::kBilinear;
  Real position = scale * (static_cast<Real>(to) + Real{0.5}) - Real{0.5};
  if (bilinear) {
    position = std::max(position, Real{0});
  }
  const Real base = std::floor(position);
  const Real fraction = position - base;
  const int64_t first = static_cast<int64_t>(base) + 1 - radius(axis.filter);
  const int64_t last = static_cast<int64_t>(base) + radius(axis.filter);
  Taps taps;
  taps.begin = std::clamp<int64_t>(first, 0, axis.in_size - 1);
  taps.count = std::clamp<int64_t>(last, 0, axis.in_size - 1) - taps.begin + 1;
  std::fill_n(weights, taps.count, Real{0});
  for (int64_t from = first; from <= last; ++from) {
    const Real x = fraction - static_cast<Real>(from - static_cast<int64_t>(base));
    const int64_t at = std::clamp<int64_t>(from, 0, axis.in_size - 1);
    weights[at - taps.begin] += bilinear ? tent(x) : cubic(x, Real{-0.75});
  }
  return taps;
}

template <typename Real>
Taps taps_of(const ResizeAxis& axis, int64_t to, Real* weights) {
  return axis.antialias ? antialiased(axis, to, weights) : interpolated(axis, to, weights);
}

// A weight in units of 2^-precision, halves away from zero.
int32_t fixed_point(double weight, int32_t precision) {
  const double scaled = weight * static_cast<double>(1 << precision);
  return static_cast<int32_t>(scaled < 0.0 ? scaled - 0.5 : scaled + 0.5);
}

// The largest precision at which the largest weight still fits 16 bits.
int32_t precision_for(double largest) {
  int32_t precision = 0;
  while (precision < 22 && fixed_point(largest, precision + 1) < (1 << 15)) {
    ++precision;
  }
  return precision;
}

// Twice over all outputs: the precision depends on the largest weight of all.
void fill_fixed(const ResizeAxis& axis, const ResizeTable& table) {
  double largest = 0.0;
  for (int64_t to = 0; to < axis.out_size; ++to) {
    const Taps taps = taps_of(axis, to, table.scratch);
    largest = std::max(largest, *std::max_element(table.scratch, table.scratch + taps.count));
  }
  *table.precision = std::max(precision_for(largest), 1);
  for (int64_t to = 0; to < axis.out_size; ++to) {
    const Taps taps = taps_of(axis, to, table.scratch);
    table.begin[to] = static_cast<int32_t>(taps.begin);
    table.count[to] = static_cast<int32_t>(taps.count);
    for (int64_t tap = 0; tap < taps.count; ++tap) {
      table.fixed[to * table.max_taps + tap] = fixed_point(table.scratch[tap], *table.precision);
    }
  }
}

}  // namespace

int32_t max_taps(const ResizeAxis& axis) {
  if (!axis.antialias) {
    return 2 * radius(axis.filter);
  }
  const double scale = static_cast<double>(axis.in_size) / static_cast<double>(axis.out_size);
  return static_cast<int32_t>(std::ceil(radius(axis.filter) * std::max(scale, 1.0))) * 2 + 2;
}

void fill_table(const ResizeAxis& axis, const ResizeTable& table) {
  if (table.fixed != nullptr) {
    fill_fixed(axis, table);
    return;
  }
  for (int64_t to = 0; to < axis.out_size; ++to) {
    const Taps taps = taps_of(axis, to, table.weights + to * table.max_taps);
    table.begin[to] = static_cast<int32_t>(taps.begin);
    table.count[to] = static_cast<int32_t>(taps.count);
  }
}

int64_t nearest_input(int64_t to, int64_t in_size, int64_t out_size) {
  const float scale = static_cast<float>(in_size) / static_cast<float>(out_size);
  const float position = (static_cast<float>(to) + 0.5F) * scale;
  return std::min(static_cast<int64_t>(position), in_size - 1);
}

}  // namespace mstar

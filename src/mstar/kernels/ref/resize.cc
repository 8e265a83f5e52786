#include "mstar/kernels/ref/resize.h"

#include <algorithm>
#include <cmath>

#include "mstar/kernels/ref/elements.h"

namespace mstar::ref {

namespace {

double tent(double x) {
  return std::max(0.0, 1.0 - std::abs(x));
}

// Keys' cubic with parameter a.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1.0) {
    return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  }
  return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

// What every input position contributes to output position `to`.
std::vector<double> weights_of(int64_t to,
                               int64_t in_size,
                               int64_t out_size,
                               ResizeFilter filter,
                               bool antialias) {
  std::vector<double> weights(static_cast<size_t>(in_size), 0.0);
  const double scale = static_cast<double>(in_size) / static_cast<double>(out_size);
  const double center = (static_cast<double>(to) + 0.5) * scale;
  if (filter == ResizeFilter::kNearest) {
    weights[static_cast<size_t>(std::min(static_cast<int64_t>(center), in_size - 1))] = 1.0;
    return weights;
  }
  const double radius = filter == ResizeFilter::kBilinear ? 1.0 : 2.0;
  if (antialias) {
    const double stretch = std::max(scale, 1.0);
    const auto begin = std::max<int64_t>(static_cast<int64_t>(center - radius * stretch + 0.5), 0);
    const auto end = std::min(static_cast<int64_t>(center + radius * stretch + 0.5), in_size);
    double total = 0.0;
    for (int64_t from = begin; from < end; ++from) {
      const double x = (static_cast<double>(from) - center + 0.5) / stretch;
      const double weight = filter == ResizeFilter::kBilinear ? tent(x) : cubic(x, -0.5);
      weights[static_cast<size_t>(from)] = weight;
      total += weight;
    }
    for (double& weight : weights) {
      weight /= total;
    }
    return weights;
  }
  // Taps outside the picture fall on its edge.
  double position = center - 0.5;
  if (filter == ResizeFilter::kBilinear) {
    position = std::max(position, 0.0);
  }
  const double base = std::floor(position);
  const auto reach = static_cast<int64_t>(radius);
  for (int64_t tap = 1 - reach; tap <= reach; ++tap) {
    const int64_t from = std::clamp<int64_t>(static_cast<int64_t>(base) + tap, 0, in_size - 1);
    const double x = position - base - static_cast<double>(tap);
    weights[static_cast<size_t>(from)] +=
        filter == ResizeFilter::kBilinear ? tent(x) : cubic(x, -0.75);
  }
  return weights;
}

}  // namespace

void resize(const Tensor& x, ResizeFilter filter, bool antialias, Tensor& out) {
  const std::vector<float> values = x.to_floats();
  const bool rounds = x.dtype() == DType::kU8;
  // One axis: [lines, in, columns] -> [lines, out, columns].
  const auto pass = [&](const auto& from, int64_t lines, int64_t in, int64_t to, int64_t columns) {
    std::vector<double> result(static_cast<size_t>(lines * to * columns), 0.0);
    for (int64_t output = 0; output < to; ++output) {
      const std::vector<double> weights = weights_of(output, in, to, filter, antialias);
      for (int64_t line = 0; line < lines; ++line) {
        for (int64_t column = 0; column < columns; ++column) {
          double& sum = result[static_cast<size_t>((line * to + output) * columns + column)];
          for (int64_t input = 0; input < in; ++input) {
            sum += weights[static_cast<size_t>(input)] *
                   from[static_cast<size_t>((line * in + input) * columns + column)];
          }
          sum = rounds ? std::clamp(std::floor(sum + 0.5), 0.0, 255.0) : sum;
        }
      }
    }
    return result;
  };
  const std::vector<double> wide =
      pass(values, x.dim(0) * x.dim(1), x.dim(2), out.dim(2), x.dim(3));
  assign(out, pass(wide, x.dim(0), x.dim(1), out.dim(1), out.dim(2) * x.dim(3)));
}

}  // namespace mstar::ref

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
  const auto grey = [&](double value) {
    return rounds ? std::clamp(std::floor(value + 0.5), 0.0, 255.0) : value;
  };
  const int64_t height = x.dim(1);
  const int64_t width = x.dim(2);
  const int64_t channels = x.dim(3);
  // Width first: [n, h, w', c].
  std::vector<double> wide;
  for (int64_t line = 0; line < x.dim(0) * height; ++line) {
    for (int64_t to = 0; to < out.dim(2); ++to) {
      const std::vector<double> weights = weights_of(to, width, out.dim(2), filter, antialias);
      for (int64_t channel = 0; channel < channels; ++channel) {
        double sum = 0.0;
        for (int64_t from = 0; from < width; ++from) {
          sum += weights[static_cast<size_t>(from)] *
                 values[static_cast<size_t>((line * width + from) * channels + channel)];
        }
        wide.push_back(grey(sum));
      }
    }
  }
  const int64_t row = out.dim(2) * channels;
  std::vector<double> tall;
  for (int64_t n = 0; n < x.dim(0); ++n) {
    for (int64_t to = 0; to < out.dim(1); ++to) {
      const std::vector<double> weights = weights_of(to, height, out.dim(1), filter, antialias);
      for (int64_t column = 0; column < row; ++column) {
        double sum = 0.0;
        for (int64_t from = 0; from < height; ++from) {
          sum += weights[static_cast<size_t>(from)] *
                 wide[static_cast<size_t>((n * height + from) * row + column)];
        }
        tall.push_back(grey(sum));
      }
    }
  }
  assign(out, tall);
}

}  // namespace mstar::ref

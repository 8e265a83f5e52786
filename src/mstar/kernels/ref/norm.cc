#include "mstar/kernels/ref/norm.h"

#include <algorithm>
#include <cmath>

#include "mstar/kernels/ref/element.h"

namespace mstar::ref {

namespace {

double sum_of_squares(const Rows& x, int64_t row, int64_t dim) {
  double sum = 0.0;
  for (int64_t column = 0; column < dim; ++column) {
    const double value = load(x, row, column);
    sum += value * value;
  }
  return sum;
}

// out row = x row * rsqrt(mean of squares + eps), weighted.
void rms_norm_row(const NormParams& p, const Rows& x, int64_t row) {
  const double factor = 1.0 / std::sqrt(sum_of_squares(x, row, p.dim) / p.dim + p.eps);
  for (int64_t column = 0; column < p.dim; ++column) {
    double value = load(x, row, column) * factor;
    if (p.round_before_weight) {
      value = rounded(value, p.out.dtype);
    }
    double weight = p.weight.data != nullptr ? load(p.weight, 0, column) : 1.0;
    if (p.gemma_mode && p.weight.data != nullptr) {
      weight += 1.0;
    }
    store(p.out, row, column, value * weight);
  }
}

}  // namespace

void rms_norm(const NormParams& p, int task) {
  const Range rows = share(p.rows, task, p.num_tasks);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    rms_norm_row(p, p.x, row);
  }
}

void add_rms_norm(const NormParams& p, int task) {
  const Range rows = share(p.rows, task, p.num_tasks);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t column = 0; column < p.dim; ++column) {
      const float sum = static_cast<float>(load(p.x, row, column)) +
                        static_cast<float>(load(p.residual, row, column));
      store(p.residual, row, column, sum);
    }
    rms_norm_row(p, p.residual, row);
  }
}

void ada_rms_norm(const NormParams& p, int task) {
  const Range rows = share(p.rows, task, p.num_tasks);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const double factor = 1.0 / std::sqrt(sum_of_squares(p.x, row, p.dim) / p.dim + p.eps);
    const int64_t cond = row / p.rows_per_cond;
    for (int64_t column = 0; column < p.dim; ++column) {
      const double normed = load(p.x, row, column) * factor;
      store(p.out,
            row,
            column,
            normed * (1.0 + load(p.scale, cond, column)) + load(p.shift, cond, column));
    }
  }
}

void layer_norm(const NormParams& p, int task) {
  const Range rows = share(p.rows, task, p.num_tasks);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    double mean = 0.0;
    for (int64_t column = 0; column < p.dim; ++column) {
      mean += load(p.x, row, column);
    }
    mean /= static_cast<double>(p.dim);
    double variance = 0.0;
    for (int64_t column = 0; column < p.dim; ++column) {
      const double delta = load(p.x, row, column) - mean;
      variance += delta * delta;
    }
    variance /= static_cast<double>(p.dim);
    const double factor = 1.0 / std::sqrt(variance + p.eps);
    for (int64_t column = 0; column < p.dim; ++column) {
      const double weight = p.weight.data != nullptr ? load(p.weight, 0, column) : 1.0;
      const double bias = p.bias.data != nullptr ? load(p.bias, 0, column) : 0.0;
      store(p.out, row, column, (load(p.x, row, column) - mean) * factor * weight + bias);
    }
  }
}

void l2_norm_scaled(const NormParams& p, int task) {
  const Range rows = share(p.rows, task, p.num_tasks);
  const double root = std::sqrt(static_cast<double>(p.dim));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const double norm = std::max(std::sqrt(sum_of_squares(p.x, row, p.dim)), 1e-12);
    for (int64_t column = 0; column < p.dim; ++column) {
      double value = load(p.x, row, column) / norm * root * load(p.weight, 0, column);
      if (p.silu) {
        value = value / (1.0 + std::exp(-value));
      }
      store(p.out, row, column, value);
    }
  }
}

}  // namespace mstar::ref

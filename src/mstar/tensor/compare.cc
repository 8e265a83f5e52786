#include "mstar/tensor/compare.h"

#include <cmath>
#include <limits>

#include "mstar/base/str_cat.h"
#include "mstar/tensor/dispatch.h"

namespace mstar {

namespace {

// int64 values above 2^53 would not survive a float: doubles of every element.
std::vector<double> to_doubles(const Tensor& tensor) {
  std::vector<double> values;
  if (is_floating(tensor.dtype())) {
    for (const float value : tensor.to_floats()) {
      values.push_back(value);
    }
  } else {
    for (const int64_t value : tensor.to_ints()) {
      values.push_back(static_cast<double>(value));
    }
  }
  return values;
}

// How far `got` is from `want` as a share of what is allowed; above 1 fails.
double share_of_allowed(double got, double want, const Tolerance& tolerance) {
  if (got == want || (std::isnan(got) && std::isnan(want))) {
    return 0.0;
  }
  const double error = std::fabs(got - want);
  if (tolerance.exact || !std::isfinite(error)) {
    return std::numeric_limits<double>::infinity();
  }
  const double allowed = tolerance.atol + tolerance.rtol * std::fabs(want);
  return allowed > 0 ? error / allowed : std::numeric_limits<double>::infinity();
}

}  // namespace

Comparison compare(const Tensor& got, const Tensor& want, const Tolerance& tolerance) {
  Comparison result;
  if (!(got.shape() == want.shape())) {
    result.num_wrong = std::max<int64_t>(1, want.num_elements());
    result.first_wrong = 0;
    result.worst = std::numeric_limits<double>::infinity();
    return result;
  }
  const std::vector<double> a = to_doubles(got);
  const std::vector<double> b = to_doubles(want);
  for (size_t index = 0; index < a.size(); ++index) {
    const double error = std::fabs(a[index] - b[index]);
    if (std::isfinite(error)) {
      result.max_abs = std::max(result.max_abs, error);
      if (b[index] != 0) {
        result.max_rel = std::max(result.max_rel, error / std::fabs(b[index]));
      }
    }
    const double share = share_of_allowed(a[index], b[index], tolerance);
    const auto position = static_cast<int64_t>(index);
    if (share > result.worst || result.worst_index < 0) {
      result.worst = share;
      result.worst_index = position;
    }
    if (share > 1.0) {
      ++result.num_wrong;
      if (result.first_wrong < 0) {
        result.first_wrong = position;
      }
    }
  }
  const int64_t shown = result.first_wrong >= 0 ? result.first_wrong : result.worst_index;
  if (shown >= 0) {
    result.got = a[static_cast<size_t>(shown)];
    result.want = b[static_cast<size_t>(shown)];
  }
  result.passed = result.num_wrong == 0;
  return result;
}

std::string Comparison::to_string() const {
  if (passed) {
    return str_cat("passed: max abs ",
                   static_cast<float>(max_abs),
                   " (",
                   static_cast<int>(std::lround(worst * 100)),
                   " % of the tolerance)");
  }
  if (worst_index < 0) {
    return "failed: shapes differ";
  }
  return str_cat("failed: ",
                 num_wrong,
                 " wrong, first at ",
                 first_wrong,
                 ": got ",
                 got,
                 ", want ",
                 want,
                 "; max abs ",
                 static_cast<float>(max_abs),
                 ", max rel ",
                 static_cast<float>(max_rel));
}

double cosine_similarity(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = to_doubles(a);
  const std::vector<double> y = to_doubles(b);
  if (x.size() != y.size()) {
    return 0.0;
  }
  double xx = 0;
  double yy = 0;
  double xy = 0;
  for (size_t index = 0; index < x.size(); ++index) {
    xx += x[index] * x[index];
    yy += y[index] * y[index];
    xy += x[index] * y[index];
  }
  if (xx == 0 || yy == 0) {
    return xx == yy ? 1.0 : 0.0;
  }
  return xy / std::sqrt(xx * yy);
}

}  // namespace mstar

#pragma once

#include <cstdint>
#include <string>

#include "mstar/tensor/tensor.h"

namespace mstar {

// An element passes when |got - want| <= atol + rtol * |want|; with `exact`, when it is equal
// (NaN equals NaN, and zeros of either sign are equal).
struct Tolerance {
  double atol = 0.0;
  double rtol = 0.0;
  bool exact = false;
};

struct Comparison {
  bool passed = false;
  double max_abs = 0.0;      // largest |got - want|
  double max_rel = 0.0;      // largest |got - want| / |want| where want is not 0
  double worst = 0.0;        // largest error as a share of what the tolerance allows there
  int64_t num_wrong = 0;     // elements outside
  int64_t first_wrong = -1;  // row-major index of the first of them
  int64_t worst_index = -1;
  double got = 0.0;  // at first_wrong, or at worst_index when all pass
  double want = 0.0;

  // "passed: max abs 1e-06 (3 % of the tolerance)" or where and how it failed.
  std::string to_string() const;
};

// The one comparison of all tests. Shapes must agree (else it fails with everything wrong);
// dtypes may differ: values are compared as doubles. Plain types on the host.
Comparison compare(const Tensor& got, const Tensor& want, const Tolerance& tolerance);

// 1 for equal directions; of all elements as one vector. 1 when both are zero.
double cosine_similarity(const Tensor& a, const Tensor& b);

}  // namespace mstar

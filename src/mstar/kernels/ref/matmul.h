#pragma once

#include "mstar/kernels/ops/matmul.h"

namespace mstar::ref {

// The slow twin of ops::linear: sums in f64. `weight` is [n, k] f32; x, out and the epilogue as
// there.
void linear(const Tensor& x, const Tensor& weight, const Epilogue& epilogue, Tensor& out);

}  // namespace mstar::ref

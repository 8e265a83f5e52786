#pragma once

#include "mstar/kernels/cpu/activation.h"

namespace mstar::ref {

void activate(const ElementwiseParams& p, int task);
void gated_activation(const ElementwiseParams& p, int task);
void add(const ElementwiseParams& p, int task);
void mul(const ElementwiseParams& p, int task);
void affine(const ElementwiseParams& p, int task);
void add_gated(const ElementwiseParams& p, int task);
void copy(const CopyParams& p, int task);
void check_finite(const CheckFiniteParams& p, int task);

// The function itself, in double.
double activation_value(Activation activation, double x);

}  // namespace mstar::ref

#pragma once

#include "mstar/kernels/cpu/norm.h"

// Slow twins of the norms: double inside.
namespace mstar::ref {

void rms_norm(const NormParams& p, int task);
void add_rms_norm(const NormParams& p, int task);
void ada_rms_norm(const NormParams& p, int task);
void layer_norm(const NormParams& p, int task);
void l2_norm_scaled(const NormParams& p, int task);

}  // namespace mstar::ref

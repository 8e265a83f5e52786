#pragma once

#include "mstar/kernels/ops/resize.h"

// Slow, obvious twin of ops/resize. It allocates; not for use inside a step.
namespace mstar::ref {

void resize(const Tensor& x, ResizeFilter filter, bool antialias, Tensor& out);

}  // namespace mstar::ref

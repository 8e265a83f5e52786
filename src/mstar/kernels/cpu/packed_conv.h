#pragma once

#include "mstar/kernels/ops/conv.h"

namespace mstar {

struct PackedConv::Data {
  Tensor weight;  // as given
  Tensor bias;    // f32 or undefined
  bool transposed = false;
};

}  // namespace mstar

#pragma once

#include "mstar/kernels/cpu/conv_kernels.h"
#include "mstar/kernels/ops/conv.h"

namespace mstar {

struct PackedConv::Data {
  Tensor panels;  // bytes
  Tensor bias;    // f32, padded to whole vectors with zeros; undefined without
  ConvFilter filter;
  ConvShape shape{};  // of the instruction set it was packed for
  Isa isa = Isa::kPortable;
  std::array<int32_t, 3> kernel{1, 1, 1};  // (t, h, w)
  int num_axes = 0;                        // spatial ones of the weight: 1, 2 or 3
  bool transposed = false;
};

}  // namespace mstar

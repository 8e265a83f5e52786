#pragma once

#include <cstdint>
#include <functional>

#include "mstar/tensor/dtype.h"

// oneDNN as users call it, to hold our kernels against. It is linked here and nowhere else
// (docs/decisions/010-matmul.md).
namespace mstar::bench {

// x [m, k] times weights [k, n] of `dtype` (f32 or bf16), weights in oneDNN's own layout, packed
// once; `num_copies` sets of weights take turns. Empty when this machine has no such primitive.
std::function<void()> onednn_matmul(int64_t m,
                                    int64_t n,
                                    int64_t k,
                                    DType dtype,
                                    int num_copies,
                                    int num_threads);

struct ConvSizes {
  int64_t frames, height, width;  // of the output
  int64_t in_channels, out_channels;
  int64_t kernel_t, kernel;  // taps in time, and in height and width
};

// A causal convolution over frames [frames + kernel_t - 1, height, width, in_channels], height
// and width padded to keep their size; channels last, filters in oneDNN's own layout.
std::function<void()> onednn_conv3d(const ConvSizes& sizes, DType dtype, int num_threads);

}  // namespace mstar::bench

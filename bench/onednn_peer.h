#pragma once

#include <cstdint>
#include <functional>

#include "mstar/tensor/dtype.h"

// oneDNN as users call it, to hold our kernels against. It is linked here and nowhere else
// (docs/decisions/matmul.md).
namespace mstar::bench {

// x [m, k] times weights [k, n] of `dtype` (f32 or bf16), weights in oneDNN's own layout, packed
// once; `num_copies` sets of weights take turns. Empty when this machine has no such primitive.
std::function<void()> onednn_matmul(int64_t m,
                                    int64_t n,
                                    int64_t k,
                                    DType dtype,
                                    int num_copies,
                                    int num_threads);

}  // namespace mstar::bench

#pragma once

#include <array>

#include "mstar/kernels/ops/sampling.h"

// Slow, obvious twins of ops/sampling. They allocate; not for use inside a step.
namespace mstar::ref {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3").
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

void softmax(const Tensor& x, Tensor& out);
void top_k(const Tensor& x, Tensor& values, Tensor& indices);
void argmax(const Tensor& x, Tensor& indices);
void sample(const Tensor& logits,
            const Tensor& rows,
            const Tensor& seen,
            const Tensor& counts,
            const Tensor& logit_bias,
            Tensor& tokens,
            Tensor& probs);
void fill_normal(uint64_t seed, uint64_t stream_id, Tensor& out);

}  // namespace mstar::ref

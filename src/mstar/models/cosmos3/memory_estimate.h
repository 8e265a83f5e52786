// What a request takes while it runs, beside weights and pools: an estimate for memory plans, made
// of the shapes that are alive at the same time.
#pragma once

#include <cstdint>

#include "mstar/models/cosmos3/config.h"
#include "mstar/tensor/dtype.h"

namespace mstar::cosmos3 {

struct MadeSize {
  int64_t width = 0;  // pixels
  int64_t height = 0;
  int64_t num_frames = 1;
};

// Bytes of one denoising step over both guidance branches.
int64_t step_bytes(const TransformerConfig& config,
                   const VaeConfig& vae,
                   const MadeSize& size,
                   DType dtype);

// Bytes of decoding: the widest layers of a chunk, the causal caches and the finished frames.
int64_t decode_bytes(const VaeConfig& vae, const MadeSize& size, DType dtype);

}  // namespace mstar::cosmos3

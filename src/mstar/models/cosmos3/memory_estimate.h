// What weights take as loaded, by the headers of their files, and what a request takes while it
// runs beside weights and pools: an estimate made of the shapes that are alive at the same time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "mstar/models/cosmos3/config.h"
#include "mstar/tensor/dtype.h"

namespace mstar::cosmos3 {

// Bytes of the tensors whose names begin with one of `prefixes`. Both open the checkpoint in
// `folder` and throw as open_checkpoint() does.
int64_t part_bytes(const std::string& folder,
                   std::initializer_list<std::string_view> prefixes,
                   DType activation_dtype);

// The language head only for a reasoner, and with int8 a byte for each number of the towers'
// matrices and a scale for each of their rows.
int64_t transformer_bytes(const std::string& folder,
                          bool with_head,
                          bool int8,
                          DType activation_dtype);

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

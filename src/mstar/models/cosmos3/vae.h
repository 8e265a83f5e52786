// The Wan 2.2 video VAE: pixels to latents and back, chunk by chunk with causal caches. Pixels are
// [frames, height, width, 3] f32 in about [-1, 1]; latents [z_dim, frames, height, width] f32,
// normalized as the generator sees them. What the layers compute in between is f32 or bf16.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"
#include "mstar/models/cosmos3/config.h"
#include "mstar/models/cosmos3/vae_blocks.h"

namespace mstar::cosmos3 {

// encoder.* and quant_conv.*. const after load().
class VaeEncoder : public Module {
 public:
  explicit VaeEncoder(const VaeConfig& config, DType activation_dtype = DType::kF32);

  // Reads its own tensors of vae/. Throws Error(kInvalidArgument) listing what is wrong.
  void load(const CheckpointReader& reader, const FinalizeOptions& options);

  // The first frame alone, then four at a time; frames beyond the last full chunk are dropped.
  // `cancelled` is asked between chunks; true ends with Error(kCancelled).
  Tensor encode(Stream& stream,
                const Tensor& pixels,
                const std::function<bool()>& cancelled = {}) const;

  // One chunk of cells [t, h, w, in_channels] -> moments [t', h', w', 2 z_dim] before quant_conv.
  Tensor encode_chunk(Stream& stream, const Tensor& cells, VaeCache& cache) const;

  // Mean and log variance of one chunk, [t, h, w, 2 z_dim].
  Tensor moments(Stream& stream, const Tensor& encoded) const;

  const CacheLayout& cache_layout() const { return layout_; }

 private:
  struct Block {
    std::vector<std::unique_ptr<ResidualBlock>> resnets;
    std::unique_ptr<Downsampler> downsampler;  // null in the last block
    int64_t out_channels = 0;
    int64_t time = 1;  // how the shortcut folds
    int64_t space = 1;
  };

  VaeConfig config_;
  DType activation_dtype_;
  CacheLayout layout_;
  CausalConv conv_in_;
  std::vector<Block> blocks_;
  std::unique_ptr<MidBlock> mid_;
  std::unique_ptr<ChannelNorm> norm_out_;
  std::unique_ptr<CausalConv> conv_out_;
  VaeConv quant_conv_;
  Tensor mean_;         // [z_dim] f32
  Tensor inverse_std_;  // [z_dim]
};

// decoder.* and post_quant_conv.*. const after load().
class VaeDecoder : public Module {
 public:
  explicit VaeDecoder(const VaeConfig& config, DType activation_dtype = DType::kF32);

  void load(const CheckpointReader& reader, const FinalizeOptions& options);

  // All frames: latents of t frames give 1 + 4 (t - 1). With a `cache` that has seen earlier frames
  // of the clip: 4 t. Not clamped. `cancelled` is asked between frames.
  Tensor decode(Stream& stream,
                const Tensor& latents,
                VaeCache& cache,
                const std::function<bool()>& cancelled = {}) const;

  // One latent frame [1, h, w, z_dim] after post_quant_conv -> cells [1 or 4, h', w',
  // out_channels].
  Tensor decode_chunk(Stream& stream, const Tensor& frame, VaeCache& cache) const;

  // Denormalizes and mixes channels: latents -> [frames, h, w, z_dim] of the layers' type.
  Tensor prepare(Stream& stream, const Tensor& latents) const;

  const CacheLayout& cache_layout() const { return layout_; }

 private:
  struct Block {
    std::vector<std::unique_ptr<ResidualBlock>> resnets;
    std::unique_ptr<Upsampler> upsampler;  // null in the last block
    int64_t time = 1;                      // how the shortcut unfolds
  };

  VaeConfig config_;
  DType activation_dtype_;
  CacheLayout layout_;
  VaeConv post_quant_conv_;
  std::unique_ptr<CausalConv> conv_in_;
  std::unique_ptr<MidBlock> mid_;
  std::vector<Block> blocks_;
  std::unique_ptr<ChannelNorm> norm_out_;
  std::unique_ptr<CausalConv> conv_out_;
  Tensor mean_;
  Tensor inverse_std_;
};

}  // namespace mstar::cosmos3

#include "mstar/models/cosmos3/vae.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/load.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/models/cosmos3/vae_ops.h"

namespace mstar::cosmos3 {

namespace {

constexpr std::array<int64_t, 3> kOne{1, 1, 1};

Tensor vector_of(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

Tensor inverse_of(const std::vector<float>& values) {
  std::vector<float> inverse;
  for (const float value : values) {
    inverse.push_back(1.0F / value);
  }
  return vector_of(inverse);
}

void stop_if(const std::function<bool()>& cancelled) {
  if (cancelled && cancelled()) {
    throw Error(ErrorCode::kCancelled, "[vae] the request was cancelled");
  }
}

void load_part(Module& module,
               const CheckpointReader& reader,
               const FinalizeOptions& options,
               std::vector<std::string> skip) {
  NameMapping mapping;
  mapping.skip = std::move(skip);
  load_strictly(reader, module.load_targets(), mapping);
  module.finalize(options);
  reader.release_pages();
}

// Several [t, …] pieces one after the other in time.
Tensor join_frames(Stream& stream, const std::vector<Tensor>& pieces) {
  Shape shape = pieces.front().shape();
  shape[0] = 0;
  for (const Tensor& piece : pieces) {
    shape[0] += piece.dim(0);
  }
  Tensor out = stream.empty(shape, pieces.front().dtype());
  int64_t frame = 0;
  for (const Tensor& piece : pieces) {
    Tensor part = out.slice(0, frame, frame + piece.dim(0));
    ops::copy(stream, piece, part);
    frame += piece.dim(0);
  }
  return out;
}

}  // namespace

VaeEncoder::VaeEncoder(const VaeConfig& config, DType activation_dtype)
    : config_(config),
      activation_dtype_(activation_dtype),
      conv_in_(config.in_channels, config.base_dim, layout_.add("encoder.conv_in")),
      quant_conv_(2 * config.z_dim, 2 * config.z_dim, kOne, 3),
      mean_(vector_of(config.latents_mean)),
      inverse_std_(inverse_of(config.latents_std)) {
  add_module("encoder.conv_in", conv_in_);
  add_module("quant_conv", quant_conv_);
  int64_t in = config.base_dim;
  for (size_t index = 0; index < config.dim_mult.size(); ++index) {
    const std::string name = str_cat("encoder.down_blocks.", index);
    Block& block = blocks_.emplace_back();
    block.out_channels = config.base_dim * config.dim_mult[index];
    for (int64_t resnet = 0; resnet < config.num_res_blocks; ++resnet) {
      const std::string own = str_cat(name, ".resnets.", resnet);
      block.resnets.push_back(
          std::make_unique<ResidualBlock>(in, block.out_channels, own, layout_));
      add_module(own, *block.resnets.back());
      in = block.out_channels;
    }
    if (index + 1 < config.dim_mult.size()) {
      const bool temporal = config.temperal_downsample[index];
      const std::string own = name + ".downsampler";
      block.downsampler = std::make_unique<Downsampler>(in, temporal, own, layout_);
      add_module(own, *block.downsampler);
      block.time = temporal ? 2 : 1;
      block.space = 2;
    }
  }
  mid_ = std::make_unique<MidBlock>(in, "encoder.mid_block", layout_);
  norm_out_ = std::make_unique<ChannelNorm>(in, 3);
  conv_out_ = std::make_unique<CausalConv>(in, 2 * config.z_dim, layout_.add("encoder.conv_out"));
  add_module("encoder.mid_block", *mid_);
  add_module("encoder.norm_out", *norm_out_);
  add_module("encoder.conv_out", *conv_out_);
}

void VaeEncoder::load(const CheckpointReader& reader, const FinalizeOptions& options) {
  load_part(*this, reader, options, {"^decoder", "^post_quant_conv"});
}

Tensor VaeEncoder::encode_chunk(Stream& stream, const Tensor& cells, VaeCache& cache) const {
  Tensor x = conv_in_.run(stream, cells, cache);
  for (const Block& block : blocks_) {
    const Tensor in = x;
    for (const auto& resnet : block.resnets) {
      x = resnet->forward(stream, x, cache);
    }
    if (block.downsampler != nullptr) {
      x = block.downsampler->forward(stream, x, cache);
    }
    add_averaged_down(stream, in, block.time, block.space, x);
  }
  x = norm_out_->forward(stream, mid_->forward(stream, x, cache), true);
  x = conv_out_->run(stream, x, cache);
  cache.next_chunk();
  return x;
}

Tensor VaeEncoder::moments(Stream& stream, const Tensor& encoded) const {
  return quant_conv_.forward(stream, encoded, {}, ConvOptions{});
}

Tensor VaeEncoder::encode(Stream& stream,
                          const Tensor& pixels,
                          const std::function<bool()>& cancelled) const {
  const int64_t patch = config_.patch_size;
  const int64_t chunk = config_.scale_factor_temporal;
  const int64_t num_latents = config_.latent_frames(pixels.dim(0));
  VaeCache cache;
  std::vector<Tensor> pieces;
  for (int64_t index = 0; index < num_latents; ++index) {
    stop_if(cancelled);
    const int64_t begin = index == 0 ? 0 : 1 + (index - 1) * chunk;
    const Tensor part = pixels.slice(0, begin, index == 0 ? 1 : begin + chunk);
    Tensor cells = stream.empty(
        {part.dim(0), part.dim(1) / patch, part.dim(2) / patch, part.dim(3) * patch * patch},
        activation_dtype_);
    patchify_pixels(stream, part, patch, cells);
    pieces.push_back(encode_chunk(stream, cells, cache));
  }
  const Tensor both = moments(stream, join_frames(stream, pieces));
  Tensor latents =
      stream.empty({config_.z_dim, both.dim(0), both.dim(1), both.dim(2)}, DType::kF32);
  normalize_latents(stream, both, mean_, inverse_std_, latents);  // the means, not the variances
  return latents;
}

VaeDecoder::VaeDecoder(const VaeConfig& config, DType activation_dtype)
    : config_(config),
      activation_dtype_(activation_dtype),
      post_quant_conv_(config.z_dim, config.z_dim, kOne, 3),
      mean_(vector_of(config.latents_mean)),
      inverse_std_(inverse_of(config.latents_std)) {
  add_module("post_quant_conv", post_quant_conv_);
  int64_t in = config.decoder_base_dim * config.dim_mult.back();
  conv_in_ = std::make_unique<CausalConv>(config.z_dim, in, layout_.add("decoder.conv_in"));
  mid_ = std::make_unique<MidBlock>(in, "decoder.mid_block", layout_);
  add_module("decoder.conv_in", *conv_in_);
  add_module("decoder.mid_block", *mid_);
  const size_t num_blocks = config.dim_mult.size();
  for (size_t index = 0; index < num_blocks; ++index) {
    const std::string name = str_cat("decoder.up_blocks.", index);
    const int64_t out = config.decoder_base_dim * config.dim_mult[num_blocks - 1 - index];
    Block& block = blocks_.emplace_back();
    for (int64_t resnet = 0; resnet <= config.num_res_blocks; ++resnet) {
      const std::string own = str_cat(name, ".resnets.", resnet);
      block.resnets.push_back(std::make_unique<ResidualBlock>(in, out, own, layout_));
      add_module(own, *block.resnets.back());
      in = out;
    }
    if (index + 1 < num_blocks) {
      const bool temporal = config.temperal_downsample[num_blocks - 2 - index];
      const std::string own = name + ".upsampler";
      block.upsampler = std::make_unique<Upsampler>(in, temporal, own, layout_);
      add_module(own, *block.upsampler);
      block.time = temporal ? 2 : 1;
    }
  }
  norm_out_ = std::make_unique<ChannelNorm>(in, 3);
  conv_out_ =
      std::make_unique<CausalConv>(in, config.out_channels, layout_.add("decoder.conv_out"));
  add_module("decoder.norm_out", *norm_out_);
  add_module("decoder.conv_out", *conv_out_);
}

void VaeDecoder::load(const CheckpointReader& reader, const FinalizeOptions& options) {
  load_part(*this, reader, options, {"^encoder", "^quant_conv"});
}

Tensor VaeDecoder::prepare(Stream& stream, const Tensor& latents) const {
  Tensor last = stream.empty({latents.dim(1), latents.dim(2), latents.dim(3), latents.dim(0)},
                             activation_dtype_);
  denormalize_latents(stream, latents, mean_, inverse_std_, last);
  return post_quant_conv_.forward(stream, last, {}, ConvOptions{});
}

Tensor VaeDecoder::decode_chunk(Stream& stream, const Tensor& frame, VaeCache& cache) const {
  Tensor x = mid_->forward(stream, conv_in_->run(stream, frame, cache), cache);
  for (const Block& block : blocks_) {
    const Tensor in = x;
    for (const auto& resnet : block.resnets) {
      x = resnet->forward(stream, x, cache);
    }
    if (block.upsampler != nullptr) {
      x = block.upsampler->forward(stream, x, cache);
      const int64_t dropped = cache.is_first_chunk() ? block.time - 1 : 0;
      add_duplicated_up(stream, in, block.time, 2, dropped, x);
    }
  }
  x = conv_out_->run(stream, norm_out_->forward(stream, x, true), cache);
  cache.next_chunk();
  return x;
}

Tensor VaeDecoder::decode(Stream& stream,
                          const Tensor& latents,
                          VaeCache& cache,
                          const std::function<bool()>& cancelled) const {
  const Tensor prepared = prepare(stream, latents);
  const int64_t patch = config_.patch_size;
  int64_t scale = 1;  // of cells to latents
  int64_t chunk = 1;  // frames a latent frame, but the first
  for (const Block& block : blocks_) {
    scale *= block.upsampler != nullptr ? 2 : 1;
    chunk *= block.time;
  }
  const int64_t first = cache.is_first_chunk() ? 1 : chunk;
  const int64_t colours = config_.out_channels / (patch * patch);
  Tensor pixels = stream.empty({first + (prepared.dim(0) - 1) * chunk,
                                prepared.dim(1) * scale * patch,
                                prepared.dim(2) * scale * patch,
                                colours},
                               DType::kF32);
  int64_t next = 0;
  for (int64_t frame = 0; frame < prepared.dim(0); ++frame) {
    stop_if(cancelled);
    const Tensor cells = decode_chunk(stream, prepared.slice(0, frame, frame + 1), cache);
    Tensor part = pixels.slice(0, next, next + cells.dim(0));
    unpatchify_pixels(stream, cells, patch, part);
    next += cells.dim(0);
  }
  MSTAR_CHECK(next == pixels.dim(0), next, " frames of ", pixels.to_string());
  return pixels;
}

}  // namespace mstar::cosmos3

#include "mstar/models/whisper/transformer.h"

#include <cmath>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/load.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar::whisper {

WhisperEncoder::WhisperEncoder(const WhisperConfig& config)
    : config_(config),
      conv1_(config.num_mel_bins, config.d_model, 1),
      conv2_(config.d_model, config.d_model, 2),
      embed_positions_(config.max_source_positions, config.d_model),
      layer_norm_(config.d_model) {
  add_module("conv1", conv1_);
  add_module("conv2", conv2_);
  add_module("embed_positions", embed_positions_);
  for (int64_t index = 0; index < config.encoder_layers; ++index) {
    layers_.push_back(std::make_unique<WhisperLayer>(
        WhisperLayer::Config{.d_model = config.d_model,
                             .num_heads = config.encoder_attention_heads,
                             .ffn_dim = config.encoder_ffn_dim,
                             .activation = config.activation_function,
                             .attn_key = kEncoderAttention}));
    add_module(str_cat("layers.", index), *layers_.back());
  }
  add_module("layer_norm", layer_norm_);
}

void WhisperEncoder::map_weights(const CheckpointReader& reader) {
  NameMapping mapping;
  mapping.skip = {"^model.decoder", "^proj_out"};
  load_strictly(reader, load_targets("model.encoder"), mapping);
}

void WhisperEncoder::load(const CheckpointReader& reader, const FinalizeOptions& options) {
  map_weights(reader);
  finalize(options);
  positions_ = embed_positions_.weight().to(DType::kF32);
  reader.release_pages();
}

void WhisperEncoder::bind_resources(const ResourceMap& resources) {
  for (const auto& layer : layers_) {
    layer->bind_resources(resources);
  }
}

Tensor WhisperEncoder::forward(Stream& stream,
                               const Tensor& features,
                               const AttentionContext& context,
                               DType dtype) const {
  const int64_t batch = features.dim(0);
  const int64_t rows = config_.max_source_positions;
  MSTAR_CHECK(features.dim(1) == config_.num_frames(), "frames=", features.dim(1));
  const Tensor heard = conv2_.forward(stream, conv1_.forward(stream, features));
  Tensor hidden = stream.empty({batch * rows, config_.d_model}, dtype);
  for (int64_t index = 0; index < batch; ++index) {
    Tensor own = hidden.slice(0, index * rows, (index + 1) * rows);
    ops::add(stream, heard.select(0, index), positions_, own);
  }
  for (size_t index = 0; index < layers_.size(); ++index) {
    hidden = layers_[index]->forward(stream, hidden, context.at_layer(static_cast<int32_t>(index)));
  }
  return layer_norm_.forward(stream, hidden);
}

WhisperDecoder::WhisperDecoder(const WhisperConfig& config)
    : config_(config),
      embed_tokens_(config.vocab_size,
                    config.d_model,
                    config.scale_embedding ? std::sqrt(static_cast<float>(config.d_model)) : 1.0F),
      embed_positions_(config.max_target_positions, config.d_model),
      layer_norm_(config.d_model),
      proj_out_(config.d_model, config.vocab_size) {
  add_module("model.decoder.embed_tokens", embed_tokens_);
  add_module("model.decoder.embed_positions", embed_positions_);
  for (int64_t index = 0; index < config.decoder_layers; ++index) {
    layers_.push_back(std::make_unique<WhisperLayer>(
        WhisperLayer::Config{.d_model = config.d_model,
                             .num_heads = config.decoder_attention_heads,
                             .ffn_dim = config.decoder_ffn_dim,
                             .activation = config.activation_function,
                             .attn_key = kAttention,
                             .kv_key = kKv,
                             .cross_attention = true}));
    add_module(str_cat("model.decoder.layers.", index), *layers_.back());
  }
  add_module("model.decoder.layer_norm", layer_norm_);
  add_module("proj_out", proj_out_);
}

void WhisperDecoder::map_weights(const CheckpointReader& reader) {
  NameMapping mapping;
  mapping.skip = {"^model.encoder"};
  std::vector<LoadTarget> targets = load_targets();
  if (config_.tie_word_embeddings) {
    std::erase_if(targets,
                  [](const LoadTarget& target) { return target.name == "proj_out.weight"; });
    mapping.skip.push_back("^proj_out");  // a copy of the table, where a file has it at all
  }
  load_strictly(reader, targets, mapping);
}

void WhisperDecoder::load(const CheckpointReader& reader, const FinalizeOptions& options) {
  map_weights(reader);
  if (config_.tie_word_embeddings) {
    proj_out_.tie_weight(embed_tokens_.loaded_weight(), options);
  }
  finalize(options);
  reader.release_pages();
}

void WhisperDecoder::bind_resources(const ResourceMap& resources) {
  for (const auto& layer : layers_) {
    layer->bind_resources(resources);
  }
}

void WhisperDecoder::write_context(Stream& stream,
                                   const Tensor& states,
                                   const AttentionContext& context) const {
  for (size_t index = 0; index < layers_.size(); ++index) {
    layers_[index]->write_context(stream, states, context.at_layer(static_cast<int32_t>(index)));
  }
}

Tensor WhisperDecoder::forward(Stream& stream,
                               const Tensor& ids,
                               const Tensor& positions,
                               const AttentionContext& context,
                               DType dtype) const {
  Tensor hidden = embed_tokens_.forward(stream, ids, dtype);
  ops::add(stream, hidden, embed_positions_.forward(stream, positions, dtype), hidden);
  for (size_t index = 0; index < layers_.size(); ++index) {
    hidden = layers_[index]->forward(stream, hidden, context.at_layer(static_cast<int32_t>(index)));
  }
  return hidden;
}

Tensor WhisperDecoder::logits(Stream& stream, const Tensor& hidden) const {
  const Tensor normed = layer_norm_.forward(stream, hidden);
  Tensor out = stream.empty({hidden.dim(0), config_.vocab_size}, DType::kF32);
  proj_out_.forward_into(stream, normed, {}, out);
  return out;
}

}  // namespace mstar::whisper

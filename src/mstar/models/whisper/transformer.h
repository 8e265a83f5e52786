#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"
#include "mstar/components/embedding.h"
#include "mstar/models/whisper/config.h"
#include "mstar/models/whisper/layers.h"

namespace mstar::whisper {

// Sound to hidden states. Members carry the checkpoint's names below model.encoder: conv1, conv2,
// embed_positions, layers.N.…, layer_norm.
class WhisperEncoder : public Module {
 public:
  explicit WhisperEncoder(const WhisperConfig& config);

  // Fills and packs the encoder's weights. Throws Error(kInvalidArgument) listing what is missing,
  // unknown or of another shape.
  void load(const CheckpointReader& reader, const FinalizeOptions& options);

  // The first half of load(): maps the weights without touching their bytes.
  void map_weights(const CheckpointReader& reader);

  void bind_resources(const ResourceMap& resources);

  // features [n, num_frames, num_mel_bins] f32 -> [n * max_source_positions, d_model] of `dtype`.
  // The step has one segment of max_source_positions rows for each of the n, not causal.
  Tensor forward(Stream& stream,
                 const Tensor& features,
                 const AttentionContext& context,
                 DType dtype) const;

  const WhisperConfig& config() const { return config_; }

 private:
  WhisperConfig config_;
  Conv1d conv1_;
  Conv1d conv2_;
  Embedding embed_positions_;
  std::vector<std::unique_ptr<WhisperLayer>> layers_;
  LayerNorm layer_norm_;
  Tensor positions_;  // [max_source_positions, d_model] f32
};

// Tokens and an encoder's context to logits. Members carry the names below model.decoder:
// embed_tokens, embed_positions, layers.N.…, layer_norm; and proj_out.
class WhisperDecoder : public Module {
 public:
  explicit WhisperDecoder(const WhisperConfig& config);

  void load(const CheckpointReader& reader, const FinalizeOptions& options);

  // The first half of load(): maps the weights without touching their bytes.
  void map_weights(const CheckpointReader& reader);

  void bind_resources(const ResourceMap& resources);

  // states [context tokens, d_model] -> keys and values of every layer's cross-attention; once for
  // each request, in the step that grows the context.
  void write_context(Stream& stream, const Tensor& states, const AttentionContext& context) const;

  // ids, positions [tokens] i32 -> hidden states [tokens, d_model] of `dtype`, before the last
  // norm.
  Tensor forward(Stream& stream,
                 const Tensor& ids,
                 const Tensor& positions,
                 const AttentionContext& context,
                 DType dtype) const;

  // hidden [rows, d_model] -> logits [rows, vocab_size] f32: last norm and head.
  Tensor logits(Stream& stream, const Tensor& hidden) const;

  const WhisperConfig& config() const { return config_; }

 private:
  WhisperConfig config_;
  Embedding embed_tokens_;
  Embedding embed_positions_;
  std::vector<std::unique_ptr<WhisperLayer>> layers_;
  LayerNorm layer_norm_;
  Linear proj_out_;
};

}  // namespace mstar::whisper

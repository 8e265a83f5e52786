#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"
#include "mstar/components/decoder_layer.h"
#include "mstar/components/embedding.h"
#include "mstar/components/linear.h"
#include "mstar/components/norm.h"
#include "mstar/models/llama/config.h"

namespace mstar::llama {

// The decoder-only transformer: ids to hidden states to logits. Members carry the checkpoint's
// names: model.embed_tokens, model.layers.N.…, model.norm, lm_head.
class LlamaTransformer : public Module {
 public:
  explicit LlamaTransformer(const LlamaConfig& config);

  // Fills and packs the weights. Throws Error(kInvalidArgument) listing what is missing, unknown
  // or of another shape.
  void load(const CheckpointReader& reader, const FinalizeOptions& options);

  // The first half of load(): maps the weights without touching their bytes.
  void map_weights(const CheckpointReader& reader);

  void bind_resources(const ResourceMap& resources);

  // ids [tokens] i32 -> [tokens, hidden_size] of `dtype` (f32 or bf16).
  Tensor embed(Stream& stream, const Tensor& ids, DType dtype) const;

  // hidden [tokens, hidden_size], packed as `context`'s step planned it -> the same after all
  // layers, before the final norm.
  Tensor forward(Stream& stream, Tensor hidden, const AttentionContext& context) const;

  // hidden [rows, hidden_size] -> logits [rows, vocab_size] f32: final norm and head.
  Tensor logits(Stream& stream, const Tensor& hidden) const;

  const LlamaConfig& config() const { return config_; }

 private:
  std::unique_ptr<DecoderLayer> make_layer(int64_t index) const;

  LlamaConfig config_;
  Embedding embed_tokens_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  RMSNorm norm_;
  Linear lm_head_;
};

}  // namespace mstar::llama

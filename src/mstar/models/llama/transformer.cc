#include "mstar/models/llama/transformer.h"

#include <cmath>

#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/load.h"
#include "mstar/components/attention.h"
#include "mstar/components/mlp.h"
#include "mstar/components/moe.h"

namespace mstar::llama {

namespace {

// Checkpoints round the normalized value before the weight (Hugging Face's LlamaRMSNorm).
constexpr RmsNormRounding kRounding = RmsNormRounding::kBeforeWeight;

std::unique_ptr<Norm> make_norm(const LlamaConfig& config) {
  return std::make_unique<RMSNorm>(config.hidden_size,
                                   config.rms_norm_eps,
                                   config.unit_offset,
                                   config.gemma_mode ? RmsNormRounding::kOnce : kRounding);
}

std::unique_ptr<FeedForward> make_mlp(const LlamaConfig& config, int64_t layer) {
  if (!config.is_sparse[static_cast<size_t>(layer)]) {
    return std::make_unique<FusedGatedMLP>(
        config.hidden_size, config.intermediate_size, config.hidden_act);
  }
  const MoeConfig moe{.hidden_size = config.hidden_size,
                      .num_experts = config.num_experts,
                      .num_experts_per_tok = config.num_experts_per_tok,
                      .moe_intermediate_size = config.moe_intermediate_size,
                      .norm_topk_prob = config.norm_topk_prob};
  if (config.shared_expert_intermediate_size == 0) {
    return std::make_unique<SparseMoeBlock>(moe);
  }
  return std::make_unique<SparseMoeBlockWithSharedExpert>(
      moe,
      std::make_unique<FusedGatedMLP>(
          config.hidden_size, config.shared_expert_intermediate_size, config.hidden_act));
}

// GGUF's names for the same tensors (github.com/ggml-org/ggml, docs/gguf.md).
std::vector<RenameRule> gguf_names() {
  return {
      {"^token_embd", "model.embed_tokens"},
      {"^output_norm", "model.norm"},
      {"^output", "lm_head"},
      {"^blk.*.attn_norm", "model.layers.*.input_layernorm"},
      {"^blk.*.ffn_norm", "model.layers.*.post_attention_layernorm"},
      {"^blk.*.attn_q", "model.layers.*.self_attn.q_proj"},
      {"^blk.*.attn_k", "model.layers.*.self_attn.k_proj"},
      {"^blk.*.attn_v", "model.layers.*.self_attn.v_proj"},
      {"^blk.*.attn_output", "model.layers.*.self_attn.o_proj"},
      {"^blk.*.attn_q_norm", "model.layers.*.self_attn.q_norm"},
      {"^blk.*.attn_k_norm", "model.layers.*.self_attn.k_norm"},
      {"^blk.*.ffn_gate", "model.layers.*.mlp.gate_proj"},
      {"^blk.*.ffn_up", "model.layers.*.mlp.up_proj"},
      {"^blk.*.ffn_down", "model.layers.*.mlp.down_proj"},
      {"^blk.*.ffn_gate_inp", "model.layers.*.mlp.gate"},
      {"^blk.*.ffn_gate_exps.weight", "model.layers.*.mlp.experts.gate_exps"},
      {"^blk.*.ffn_up_exps.weight", "model.layers.*.mlp.experts.up_exps"},
      {"^blk.*.ffn_down_exps.weight", "model.layers.*.mlp.experts.down_proj"},
      {"^blk.*.ffn_gate_shexp", "model.layers.*.mlp.shared_expert.gate_proj"},
      {"^blk.*.ffn_up_shexp", "model.layers.*.mlp.shared_expert.up_proj"},
      {"^blk.*.ffn_down_shexp", "model.layers.*.mlp.shared_expert.down_proj"},
      {"^blk.*.ffn_gate_inp_shexp", "model.layers.*.mlp.shared_expert_gate"},
  };
}

}  // namespace

LlamaTransformer::LlamaTransformer(const LlamaConfig& config)
    : config_(config),
      embed_tokens_(config.vocab_size,
                    config.hidden_size,
                    config.gemma_mode ? std::sqrt(static_cast<float>(config.hidden_size)) : 1.0F),
      norm_(config.hidden_size,
            config.rms_norm_eps,
            config.unit_offset,
            config.gemma_mode ? RmsNormRounding::kOnce : kRounding),
      lm_head_(config.hidden_size, config.vocab_size) {
  add_module("model.embed_tokens", embed_tokens_);
  for (int64_t index = 0; index < config.num_hidden_layers; ++index) {
    layers_.push_back(make_layer(index));
    add_module(str_cat("model.layers.", index), *layers_.back());
  }
  add_module("model.norm", norm_);
  add_module("lm_head", lm_head_);
}

std::unique_ptr<DecoderLayer> LlamaTransformer::make_layer(int64_t index) const {
  const Attention::Config attention{.hidden_size = config_.hidden_size,
                                    .num_heads = config_.num_attention_heads,
                                    .num_kv_heads = config_.num_key_value_heads,
                                    .head_dim = config_.head_dim,
                                    .qkv_bias = config_.qkv_bias,
                                    .o_bias = config_.o_bias,
                                    .qk_norm = config_.qk_norm,
                                    .rms_norm_eps = config_.rms_norm_eps};
  return std::make_unique<DecoderLayer>(std::make_unique<Attention>(attention),
                                        make_mlp(config_, index),
                                        make_norm(config_),
                                        make_norm(config_));
}

void LlamaTransformer::map_weights(const CheckpointReader& reader) {
  NameMapping mapping;
  mapping.stacked = ExpertWeights::stacked_rules();
  for (StackedParamRule& rule : FusedGatedMLP::stacked_rules()) {
    mapping.stacked.push_back(std::move(rule));
  }
  if (reader.find("token_embd.weight") != nullptr) {
    mapping.rename = gguf_names();
    mapping.skip = {"^rope_freqs"};
  }
  mapping.skip.push_back("rotary_emb.inv_freq");  // old checkpoints carry the table
  std::vector<LoadTarget> targets = load_targets();
  if (config_.tie_word_embeddings) {
    std::erase_if(targets,
                  [](const LoadTarget& target) { return target.name == "lm_head.weight"; });
    mapping.skip.push_back("^lm_head");  // a copy of the table, where a file has it at all
  }
  load_strictly(reader, targets, mapping);
}

void LlamaTransformer::load(const CheckpointReader& reader, const FinalizeOptions& options) {
  map_weights(reader);
  if (config_.tie_word_embeddings) {
    lm_head_.tie_weight(embed_tokens_.loaded_weight(), options);
  }
  for (const auto& layer : layers_) {
    if (auto* attention = dynamic_cast<Attention*>(&layer->self_attn());
        attention != nullptr && !config_.qkv_bias) {
      attention->consolidate_qkv_weight();
    }
  }
  finalize(options);
  reader.release_pages();
}

void LlamaTransformer::bind_resources(const ResourceMap& resources) {
  for (const auto& layer : layers_) {
    layer->bind_resources(resources);
  }
}

Tensor LlamaTransformer::embed(Stream& stream, const Tensor& ids, DType dtype) const {
  return embed_tokens_.forward(stream, ids, dtype);
}

Tensor LlamaTransformer::forward(Stream& stream,
                                 Tensor hidden,
                                 const AttentionContext& context) const {
  for (size_t index = 0; index < layers_.size(); ++index) {
    hidden = layers_[index]->forward(stream, hidden, context.at_layer(static_cast<int32_t>(index)));
  }
  return hidden;
}

Tensor LlamaTransformer::logits(Stream& stream, const Tensor& hidden) const {
  const Tensor normed = norm_.forward(stream, hidden);
  Tensor out = stream.empty({hidden.dim(0), config_.vocab_size}, DType::kF32);
  lm_head_.forward_into(stream, normed, {}, out);
  return out;
}

}  // namespace mstar::llama

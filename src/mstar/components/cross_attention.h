#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "mstar/components/attention.h"

namespace mstar {

// Attention of decoder rows over a fixed encoder context, whose keys and values are computed once
// and written to a KV resource of their own. No grouped queries, no rotation; the defaults are
// Whisper's. Checkpoint names: q_proj, k_proj, v_proj, out_proj.
class CrossAttention : public Module {
 public:
  struct Config {
    int64_t hidden_size = 0;
    int64_t num_heads = 0;
    int64_t head_dim = 0;
    bool q_bias = true;
    bool k_bias = false;
    bool v_bias = true;
    bool o_bias = true;
    std::string source = "default";  // which encoder, where a decoder reads several
    std::string cross_key{};         // empty: "cross", or "cross_<source>" for another source
    std::string context_kv_key{};    // empty: "context_kv" or "context_kv_<source>"
  };

  explicit CrossAttention(const Config& config);

  // As SelfAttention::bind_resources.
  void bind_resources(const ResourceMap& resources);

  // encoder_states [enc_len, hidden_size] -> keys and values [enc_len, num_heads, head_dim].
  std::pair<Tensor, Tensor> compute_kv(Stream& stream, const Tensor& encoder_states) const;

  // compute_kv, written into the context cache; in the step that grows it.
  void write_context(Stream& stream,
                     const Tensor& encoder_states,
                     const AttentionContext& context) const;

  // hidden_states [tokens, hidden_size] -> the same shape, plus `residual` when given.
  Tensor forward(Stream& stream,
                 const Tensor& hidden_states,
                 const AttentionContext& context,
                 const Tensor& residual = {}) const;

  // The cursor form: bound once per step, told the layer, then forward() without a context. One
  // executor at a time.
  void bind_step(const StepContext& step, LabelId label) { cursor_ = {&step, label, 0}; }

  void set_layer_idx(int32_t layer_idx) { cursor_.layer = layer_idx; }

  Tensor forward(Stream& stream, const Tensor& hidden_states) const {
    return forward(stream, hidden_states, cursor_);
  }

  const std::string& cross_key() const { return config_.cross_key; }

  const std::string& context_kv_key() const { return config_.context_kv_key; }

 private:
  Config config_;
  Linear q_proj_;
  Linear k_proj_;
  Linear v_proj_;
  Linear out_proj_;
  AttentionBinding binding_;
  AttentionContext cursor_;
};

}  // namespace mstar

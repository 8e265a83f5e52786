#pragma once

#include <memory>

#include "mstar/components/attention.h"
#include "mstar/components/mlp.h"
#include "mstar/components/norm.h"

namespace mstar {

// The standard pre-norm transformer layer:
//   x += self_attn(input_layernorm(x)); x += mlp(post_attention_layernorm(x))
// Owns its parts, under these names.
class DecoderLayer : public Module {
 public:
  DecoderLayer(std::unique_ptr<SelfAttention> self_attn,
               std::unique_ptr<FeedForward> mlp,
               std::unique_ptr<Norm> input_layernorm,
               std::unique_ptr<Norm> post_attention_layernorm);

  void bind_resources(const ResourceMap& resources) { self_attn_->bind_resources(resources); }

  // hidden_states [tokens, hidden_size] f32 or bf16 -> the same shape and type.
  Tensor forward(Stream& stream,
                 const Tensor& hidden_states,
                 const AttentionContext& context) const;

  SelfAttention& self_attn() { return *self_attn_; }

  FeedForward& mlp() { return *mlp_; }

 private:
  std::unique_ptr<SelfAttention> self_attn_;
  std::unique_ptr<FeedForward> mlp_;
  std::unique_ptr<Norm> input_layernorm_;
  std::unique_ptr<Norm> post_attention_layernorm_;
};

// The same with norms that take a condition and return a gate for the residual:
//   h, gate = input_layernorm(x, cond); x += gate * self_attn(h); likewise for the mlp
class GatedDecoderLayer : public Module {
 public:
  GatedDecoderLayer(std::unique_ptr<SelfAttention> self_attn,
                    std::unique_ptr<FeedForward> mlp,
                    std::unique_ptr<AdaRMSNorm> input_layernorm,
                    std::unique_ptr<AdaRMSNorm> post_attention_layernorm);

  void bind_resources(const ResourceMap& resources) { self_attn_->bind_resources(resources); }

  // adarms_cond [cond_rows, cond_dim]: row i serves the i-th run of tokens / cond_rows tokens.
  Tensor forward(Stream& stream,
                 const Tensor& hidden_states,
                 const Tensor& adarms_cond,
                 const AttentionContext& context) const;

 private:
  std::unique_ptr<SelfAttention> self_attn_;
  std::unique_ptr<FeedForward> mlp_;
  std::unique_ptr<AdaRMSNorm> input_layernorm_;
  std::unique_ptr<AdaRMSNorm> post_attention_layernorm_;
};

// x + gate * branch, or x + branch without a gate; gate rows serve runs of rows.
Tensor gated_residual(Stream& stream, const Tensor& x, const Tensor& gate, const Tensor& branch);

}  // namespace mstar

#include "mstar/components/decoder_layer.h"

#include "mstar/kernels/ops/activation.h"

namespace mstar {

DecoderLayer::DecoderLayer(std::unique_ptr<SelfAttention> self_attn,
                           std::unique_ptr<FeedForward> mlp,
                           std::unique_ptr<Norm> input_layernorm,
                           std::unique_ptr<Norm> post_attention_layernorm)
    : self_attn_(std::move(self_attn)),
      mlp_(std::move(mlp)),
      input_layernorm_(std::move(input_layernorm)),
      post_attention_layernorm_(std::move(post_attention_layernorm)) {
  add_module("self_attn", *self_attn_);
  add_module("mlp", *mlp_);
  add_module("input_layernorm", *input_layernorm_);
  add_module("post_attention_layernorm", *post_attention_layernorm_);
}

Tensor DecoderLayer::forward(Stream& stream,
                             const Tensor& hidden_states,
                             const AttentionContext& context) const {
  const Tensor attn_in = input_layernorm_->forward(stream, hidden_states);
  const Tensor hidden = self_attn_->forward(stream, attn_in, context, hidden_states);
  const Tensor mlp_in = post_attention_layernorm_->forward(stream, hidden);
  return mlp_->forward(stream, mlp_in, hidden);
}

GatedDecoderLayer::GatedDecoderLayer(std::unique_ptr<SelfAttention> self_attn,
                                     std::unique_ptr<FeedForward> mlp,
                                     std::unique_ptr<AdaRMSNorm> input_layernorm,
                                     std::unique_ptr<AdaRMSNorm> post_attention_layernorm)
    : self_attn_(std::move(self_attn)),
      mlp_(std::move(mlp)),
      input_layernorm_(std::move(input_layernorm)),
      post_attention_layernorm_(std::move(post_attention_layernorm)) {
  add_module("self_attn", *self_attn_);
  add_module("mlp", *mlp_);
  add_module("input_layernorm", *input_layernorm_);
  add_module("post_attention_layernorm", *post_attention_layernorm_);
}

Tensor gated_residual(Stream& stream, const Tensor& x, const Tensor& gate, const Tensor& branch) {
  Tensor out = stream.empty(x.shape(), x.dtype());
  if (gate.defined()) {
    ops::add_gated(stream, x, gate, branch, out);
  } else {
    ops::add(stream, x, branch, out);
  }
  return out;
}

Tensor GatedDecoderLayer::forward(Stream& stream,
                                  const Tensor& hidden_states,
                                  const Tensor& adarms_cond,
                                  const AttentionContext& context) const {
  const AdaRMSNorm::Output before = input_layernorm_->forward(stream, hidden_states, adarms_cond);
  const Tensor attended = self_attn_->forward(stream, before.normed, context);
  const Tensor hidden = gated_residual(stream, hidden_states, before.gate, attended);
  const AdaRMSNorm::Output after = post_attention_layernorm_->forward(stream, hidden, adarms_cond);
  return gated_residual(stream, hidden, after.gate, mlp_->forward(stream, after.normed));
}

}  // namespace mstar

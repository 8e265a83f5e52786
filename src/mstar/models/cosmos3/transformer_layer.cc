#include "mstar/models/cosmos3/transformer_layer.h"

#include "mstar/base/check.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/attention.h"
#include "mstar/models/cosmos3/elementwise.h"

namespace mstar::cosmos3 {

namespace {

std::unique_ptr<RMSNorm> head_norm(const TransformerConfig& config) {
  return std::make_unique<RMSNorm>(
      config.head_dim, config.rms_norm_eps, false, config.norm_rounding);
}

}  // namespace

void DirectAttention::attend_und(Stream& stream,
                                 int32_t layer,
                                 const Tensor& q,
                                 const Tensor& k,
                                 const Tensor& k_for_gen,
                                 const Tensor& v,
                                 Tensor& out) {
  kept_[static_cast<size_t>(layer)] = {k_for_gen, v};
  if (out.defined()) {
    const int32_t ends[] = {0, static_cast<int32_t>(q.dim(0))};
    const Tensor indptr = Tensor::from(ends, {2});
    AttentionOptions options;
    options.causal = true;
    ops::ragged_attention(stream, q, k, v, indptr, indptr, options, out);
    stream.synchronize();  // indptr must live until the op ran
  }
}

void DirectAttention::attend_gen(Stream& stream,
                                 int32_t layer,
                                 const Tensor& q,
                                 const Tensor& k,
                                 const Tensor& v,
                                 Tensor& out) {
  const Kept& kept = kept_[static_cast<size_t>(layer)];
  MSTAR_CHECK(kept.k.defined(), "layer ", layer, " has no text");
  AttentionOptions options;
  options.causal = false;
  ops::two_part_attention(stream, q, kept.k, kept.v, k, v, options, out);
}

TowerLayer::TowerLayer(const TransformerConfig& config)
    : input_norm(config.hidden_size, config.rms_norm_eps, false, config.norm_rounding),
      post_norm(config.hidden_size, config.rms_norm_eps, false, config.norm_rounding),
      q(config.hidden_size, config.num_attention_heads * config.head_dim),
      k(config.hidden_size, config.num_key_value_heads * config.head_dim),
      v(config.hidden_size, config.num_key_value_heads * config.head_dim),
      out(config.num_attention_heads * config.head_dim, config.hidden_size),
      up(config.hidden_size, config.intermediate_size),
      down(config.intermediate_size, config.hidden_size) {
  if (config.gated_mlp) {
    gate = std::make_unique<Linear>(config.hidden_size, config.intermediate_size);
  }
}

Tensor TowerLayer::mlp(Stream& stream, const TransformerConfig& config, const Tensor& x) const {
  const Tensor normed = post_norm.forward(stream, x);
  Epilogue residual;
  residual.residual = x;
  if (gate == nullptr) {
    Epilogue squared;
    squared.activation = config.hidden_act;
    return down.forward(stream, up.forward(stream, normed, squared), residual);
  }
  Tensor hidden = gate->forward(stream, normed);
  ops::gated_activation(stream, hidden, up.forward(stream, normed), config.hidden_act, hidden);
  return down.forward(stream, hidden, residual);
}

DecoderLayer::DecoderLayer(const TransformerConfig& config, int32_t index)
    : config_(config), index_(index), und_(config), gen_(config) {
  if (config.qk_norm_for_text) {
    und_.q_norm = head_norm(config);
    und_.k_norm = head_norm(config);
    add_module("self_attn.norm_q", *und_.q_norm);
    add_module("self_attn.norm_k", *und_.k_norm);
  }
  if (config.use_und_k_norm_for_gen) {
    und_.k_norm_for_gen = head_norm(config);
    add_module("self_attn.k_norm_und_for_gen", *und_.k_norm_for_gen);
  }
  gen_.q_norm = head_norm(config);
  gen_.k_norm = head_norm(config);
  add_module("self_attn.norm_added_q", *gen_.q_norm);
  add_module("self_attn.norm_added_k", *gen_.k_norm);
  add_module("input_layernorm", und_.input_norm);
  add_module("input_layernorm_moe_gen", gen_.input_norm);
  add_module("post_attention_layernorm", und_.post_norm);
  add_module("post_attention_layernorm_moe_gen", gen_.post_norm);
  add_module("self_attn.to_q", und_.q);
  add_module("self_attn.to_k", und_.k);
  add_module("self_attn.to_v", und_.v);
  add_module("self_attn.to_out", und_.out);
  add_module("self_attn.add_q_proj", gen_.q);
  add_module("self_attn.add_k_proj", gen_.k);
  add_module("self_attn.add_v_proj", gen_.v);
  add_module("self_attn.to_add_out", gen_.out);
  if (config.gated_mlp) {
    add_module("mlp.gate_proj", *und_.gate);
    add_module("mlp_moe_gen.gate_proj", *gen_.gate);
  }
  add_module("mlp.up_proj", und_.up);
  add_module("mlp.down_proj", und_.down);
  add_module("mlp_moe_gen.up_proj", gen_.up);
  add_module("mlp_moe_gen.down_proj", gen_.down);
}

Tensor DecoderLayer::heads(Stream& stream,
                           const Linear& projection,
                           const Tensor& rows,
                           int64_t count) const {
  return projection.forward(stream, rows).view({rows.dim(0), count, config_.head_dim});
}

// Per-head norm, where there is one, then the rotation.
void DecoderLayer::rotate(Stream& stream,
                          const RMSNorm* norm,
                          const RotaryTable& rotary,
                          Tensor& x) const {
  if (norm != nullptr) {
    norm_rope(stream, norm->weight(), norm->options(), rotary.cos, rotary.sin, config_.rope, x);
    return;
  }
  ops::apply_rope(stream, rotary.cos, rotary.sin, config_.rope, true, x);
}

Tensor DecoderLayer::finish(Stream& stream,
                            const TowerLayer& tower,
                            const Tensor& rows,
                            const Tensor& attended) const {
  Epilogue residual;
  residual.residual = rows;
  const Tensor flat = attended.view({attended.dim(0), -1});
  return tower.mlp(stream, config_, tower.out.forward(stream, flat, residual));
}

Tensor DecoderLayer::forward_und(Stream& stream,
                                 const Tensor& rows,
                                 const RotaryTable& rotary,
                                 TowerAttention& attention,
                                 bool keep_only) const {
  const Tensor normed = und_.input_norm.forward(stream, rows);
  Tensor k = heads(stream, und_.k, normed, config_.num_key_value_heads);
  const Tensor v = heads(stream, und_.v, normed, config_.num_key_value_heads);
  Tensor k_for_gen = k;
  if (und_.k_norm_for_gen != nullptr && attention.keeps_for_gen()) {
    // Of the keys before the rotation; with a norm of their own, after that.
    if (und_.k_norm != nullptr) {
      und_.k_norm->forward_inplace(stream, k);
    }
    k_for_gen = und_.k_norm_for_gen->forward(stream, k);
    rotate(stream, nullptr, rotary, k_for_gen);
    rotate(stream, nullptr, rotary, k);
  } else {
    rotate(stream, und_.k_norm.get(), rotary, k);
  }
  Tensor q;
  Tensor attended;
  if (!keep_only) {
    q = heads(stream, und_.q, normed, config_.num_attention_heads);
    rotate(stream, und_.q_norm.get(), rotary, q);
    attended = stream.empty(q.shape(), q.dtype());
  }
  attention.attend_und(stream, index_, q, k, k_for_gen, v, attended);
  return keep_only ? Tensor() : finish(stream, und_, rows, attended);
}

Tensor DecoderLayer::forward_gen(Stream& stream,
                                 const Tensor& rows,
                                 const RotaryTable& rotary,
                                 TowerAttention& attention) const {
  const Tensor normed = gen_.input_norm.forward(stream, rows);
  Tensor q = heads(stream, gen_.q, normed, config_.num_attention_heads);
  Tensor k = heads(stream, gen_.k, normed, config_.num_key_value_heads);
  const Tensor v = heads(stream, gen_.v, normed, config_.num_key_value_heads);
  rotate(stream, gen_.q_norm.get(), rotary, q);
  rotate(stream, gen_.k_norm.get(), rotary, k);
  Tensor attended = stream.empty(q.shape(), q.dtype());
  attention.attend_gen(stream, index_, q, k, v, attended);
  return finish(stream, gen_, rows, attended);
}

}  // namespace mstar::cosmos3

#include "mstar/components/cross_attention.h"

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

std::string key_or(const std::string& key, const char* stem, const std::string& source) {
  if (!key.empty()) {
    return key;
  }
  return source == "default" ? std::string(stem) : str_cat(stem, "_", source);
}

}  // namespace

CrossAttention::CrossAttention(const Config& config)
    : config_(config),
      q_proj_(config.hidden_size, config.num_heads * config.head_dim, config.q_bias),
      k_proj_(config.hidden_size, config.num_heads * config.head_dim, config.k_bias),
      v_proj_(config.hidden_size, config.num_heads * config.head_dim, config.v_bias),
      out_proj_(config.num_heads * config.head_dim, config.hidden_size, config.o_bias) {
  config_.cross_key = key_or(config.cross_key, "cross", config.source);
  config_.context_kv_key = key_or(config.context_kv_key, "context_kv", config.source);
  add_module("q_proj", q_proj_);
  add_module("k_proj", k_proj_);
  add_module("v_proj", v_proj_);
  add_module("out_proj", out_proj_);
}

void CrossAttention::bind_resources(const ResourceMap& resources) {
  binding_.bind(resources, config_.cross_key, config_.context_kv_key, "");
}

std::pair<Tensor, Tensor> CrossAttention::compute_kv(Stream& stream,
                                                     const Tensor& encoder_states) const {
  const Shape heads{encoder_states.dim(0), config_.num_heads, config_.head_dim};
  return {k_proj_.forward(stream, encoder_states).view(heads),
          v_proj_.forward(stream, encoder_states).view(heads)};
}

void CrossAttention::write_context(Stream& stream,
                                   const Tensor& encoder_states,
                                   const AttentionContext& context) const {
  MSTAR_CHECK(binding_.attention != nullptr, "no cross-attention resource is bound");
  const auto [k, v] = compute_kv(stream, encoder_states);
  binding_.attention->write_context(stream, context, k, v);
}

Tensor CrossAttention::forward(Stream& stream,
                               const Tensor& hidden_states,
                               const AttentionContext& context,
                               const Tensor& residual) const {
  const int64_t tokens = hidden_states.dim(0);
  Qkv qkv;
  qkv.q =
      q_proj_.forward(stream, hidden_states).view({tokens, config_.num_heads, config_.head_dim});
  const Tensor attended = binding_.attend(stream, context, qkv);
  Epilogue epilogue;
  epilogue.residual = residual;
  return out_proj_.forward(
      stream, attended.view({tokens, config_.num_heads * config_.head_dim}), epilogue);
}

}  // namespace mstar

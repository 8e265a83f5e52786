#include "mstar/components/parallel/attention.h"

namespace mstar {

namespace {

int64_t width_of(const Attention::Config& config) {
  return config.input_hidden_size.value_or(config.hidden_size);
}

}  // namespace

ParallelAttention::ParallelAttention(CommGroup& comm,
                                     const Attention::Config& config,
                                     bool reduce_results)
    : config_(config),
      qkv_proj_(comm,
                {.hidden_size = width_of(config),
                 .head_dim = config.head_dim,
                 .num_heads = config.num_heads,
                 .num_kv_heads = config.num_kv_heads,
                 .bias = config.qkv_bias}),
      o_proj_(comm,
              config.num_heads * config.head_dim,
              width_of(config),
              {.bias = config.o_bias, .reduce_results = reduce_results}) {
  add_module("qkv_proj", qkv_proj_);
  add_module("o_proj", o_proj_);
  if (config.qk_norm) {
    q_norm_.emplace(config.head_dim, config.rms_norm_eps, config.qk_norm_gemma_mode);
    k_norm_.emplace(config.head_dim, config.rms_norm_eps, config.qk_norm_gemma_mode);
    add_module("q_norm", *q_norm_);
    add_module("k_norm", *k_norm_);
  }
}

void ParallelAttention::bind_resources(const ResourceMap& resources) {
  binding_.bind(resources, config_.attn_key, config_.kv_key, config_.pos_key);
}

std::vector<StackedParamRule> ParallelAttention::stacked_rules() {
  return {{"qkv_proj", "q_proj", "q"}, {"qkv_proj", "k_proj", "k"}, {"qkv_proj", "v_proj", "v"}};
}

Tensor ParallelAttention::forward(Stream& stream,
                                  const Tensor& hidden_states,
                                  const AttentionContext& context,
                                  const Tensor& residual) const {
  Qkv qkv = split_qkv(qkv_proj_.forward(stream, hidden_states),
                      local_num_heads(),
                      local_num_kv_heads(),
                      config_.head_dim);
  if (q_norm_) {
    norm_heads(stream, *q_norm_, qkv.q);
    norm_heads(stream, *k_norm_, qkv.k);
  }
  const Tensor attended = binding_.attend(stream, context, qkv);
  return o_proj_.forward(
      stream,
      attended.view({hidden_states.dim(0), local_num_heads() * config_.head_dim}),
      residual);
}

}  // namespace mstar

#include "mstar/components/attention.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar {

template <typename T>
T* find_resource(const ResourceMap& resources, const std::string& key, const char* kind) {
  const auto found = resources.find(key);
  if (found == resources.end() || found->second == nullptr) {
    return nullptr;
  }
  auto* resource = dynamic_cast<T*>(found->second);
  if (resource == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[bind_resources] resource \"", key, "\" is not ", kind));
  }
  return resource;
}

template AttentionResource* find_resource(const ResourceMap&, const std::string&, const char*);
template PositionResource* find_resource(const ResourceMap&, const std::string&, const char*);

RopeConfig RopeParameters::config(int64_t head_dim) const {
  RopeConfig config;
  config.head_dim = head_dim;
  config.theta = rope_theta;
  config.scale = rope_scale;
  config.low_freq_factor = rope_low_freq_factor;
  config.high_freq_factor = rope_high_freq_factor;
  config.old_context_len = rope_old_context_len;
  if (rope_low_freq_factor != rope_high_freq_factor) {
    config.scaling = RopeConfig::Scaling::kLlama31;
  } else if (rope_scale != 1.0F) {
    config.scaling = RopeConfig::Scaling::kLinear;
  }
  return config;
}

void AttentionBinding::bind(const ResourceMap& resources,
                            const std::string& attn_key,
                            const std::string& kv_key,
                            const std::string& pos_key) {
  attention = find_resource<AttentionResource>(resources, attn_key, "an attention resource");
  positions = pos_key.empty()
                  ? nullptr
                  : find_resource<PositionResource>(resources, pos_key, "a position resource");
  const auto kv = resources.find(kv_key);
  if (attention != nullptr && kv != resources.end() && kv->second != nullptr) {
    const std::vector<ResourceId> dependencies = attention->depends_on();
    if (!dependencies.empty() &&
        std::ranges::find(dependencies, kv->second->id()) == dependencies.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[bind_resources] attention \"",
                          attn_key,
                          "\" does not read the cache \"",
                          kv_key,
                          "\""));
    }
  }
}

Tensor AttentionBinding::attend(Stream& stream, const AttentionContext& context, Qkv& qkv) const {
  MSTAR_CHECK(attention != nullptr, "no attention resource is bound");
  if (positions != nullptr) {
    positions->apply_qk(stream, context, qkv.q, qkv.k);
  }
  Tensor out = stream.empty(qkv.q.shape(), qkv.q.dtype());
  attention->attend(stream, context, qkv.q, qkv.k, qkv.v, out);
  return out;
}

Qkv split_qkv(const Tensor& qkv, int64_t num_heads, int64_t num_kv_heads, int64_t head_dim) {
  const Tensor heads = qkv.view({qkv.dim(0), num_heads + 2 * num_kv_heads, head_dim});
  return {heads.slice(1, 0, num_heads),
          heads.slice(1, num_heads, num_heads + num_kv_heads),
          heads.slice(1, num_heads + num_kv_heads, num_heads + 2 * num_kv_heads)};
}

void norm_heads(Stream& stream, const RMSNorm& norm, Tensor& x) {
  if (!x.is_contiguous()) {
    Tensor dense = stream.empty(x.shape(), x.dtype());
    ops::copy(stream, x, dense);
    x = dense;
  }
  norm.forward_inplace(stream, x);
}

Attention::Attention(const Config& config)
    : config_(config),
      q_proj_(config.input_hidden_size.value_or(config.hidden_size),
              config.num_heads * config.head_dim,
              config.qkv_bias),
      k_proj_(config.input_hidden_size.value_or(config.hidden_size),
              config.num_kv_heads * config.head_dim,
              config.qkv_bias),
      v_proj_(config.input_hidden_size.value_or(config.hidden_size),
              config.num_kv_heads * config.head_dim,
              config.qkv_bias),
      o_proj_(config.num_heads * config.head_dim,
              config.input_hidden_size.value_or(config.hidden_size),
              config.o_bias) {
  if (config.num_kv_heads <= 0 || config.num_heads % config.num_kv_heads != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[Attention] num_heads ",
                        config.num_heads,
                        " is no multiple of num_kv_heads ",
                        config.num_kv_heads));
  }
  add_module("q_proj", q_proj_);
  add_module("k_proj", k_proj_);
  add_module("v_proj", v_proj_);
  add_module("o_proj", o_proj_);
  if (config.qk_norm) {
    q_norm_.emplace(config.head_dim, config.rms_norm_eps, config.qk_norm_gemma_mode);
    k_norm_.emplace(config.head_dim, config.rms_norm_eps, config.qk_norm_gemma_mode);
    add_module("q_norm", *q_norm_);
    add_module("k_norm", *k_norm_);
  }
}

void Attention::bind_resources(const ResourceMap& resources) {
  binding_.bind(resources, config_.attn_key, config_.kv_key, config_.pos_key);
}

void Attention::consolidate_qkv_weight() {
  if (config_.qkv_bias) {
    throw Error(ErrorCode::kUnsupported,
                "[Attention] projections with biases cannot be consolidated");
  }
  if (q_proj_.gave_up_weight()) {
    return;
  }
  qkv_proj_weight_ = stack_rows(
      {&q_proj_.weight_parameter(), &k_proj_.weight_parameter(), &v_proj_.weight_parameter()});
  if (qkv_proj_weight_.defined()) {
    q_proj_.give_up_weight();
    k_proj_.give_up_weight();
    v_proj_.give_up_weight();
  }
}

void Attention::pack(const FinalizeOptions& options) {
  if (qkv_proj_weight_.defined()) {
    qkv_proj_ = PackedWeight::pack(
        qkv_proj_weight_.parts, options.pool, options.weight_format, options.activations);
    qkv_proj_weight_ = {};
  }
}

Qkv Attention::project(Stream& stream, const Tensor& hidden_states) const {
  const int64_t tokens = hidden_states.dim(0);
  Qkv qkv;
  if (qkv_proj_.defined()) {
    qkv = split_qkv(linear_rows(stream, hidden_states, qkv_proj_, {}, hidden_states.dtype()),
                    config_.num_heads,
                    config_.num_kv_heads,
                    config_.head_dim);
  } else {
    const auto heads = [&](const Linear& proj, int64_t count) {
      return proj.forward(stream, hidden_states).view({tokens, count, config_.head_dim});
    };
    qkv.q = heads(q_proj_, config_.num_heads);
    qkv.k = heads(k_proj_, config_.num_kv_heads);
    qkv.v = heads(v_proj_, config_.num_kv_heads);
  }
  if (q_norm_) {
    norm_heads(stream, *q_norm_, qkv.q);
    norm_heads(stream, *k_norm_, qkv.k);
  }
  return qkv;
}

Tensor Attention::forward(Stream& stream,
                          const Tensor& hidden_states,
                          const AttentionContext& context,
                          const Tensor& residual) const {
  Qkv qkv = project(stream, hidden_states);
  const Tensor attended = binding_.attend(stream, context, qkv);
  Epilogue epilogue;
  epilogue.residual = residual;
  return o_proj_.forward(
      stream,
      attended.view({hidden_states.dim(0), config_.num_heads * config_.head_dim}),
      epilogue);
}

}  // namespace mstar

#include "mstar/models/whisper/layers.h"

namespace mstar::whisper {

Conv1d::Conv1d(int64_t in, int64_t out, int32_t stride)
    : out_(out),
      stride_(stride),
      weight_parameter_(&add_parameter("weight", {out, in, 3}, ParameterKind::kFloating)),
      bias_parameter_(&add_parameter("bias", {out}, ParameterKind::kFloating)) {}

void Conv1d::pack(const FinalizeOptions& options) {
  conv_ = PackedConv::pack(weight_parameter_->join(), bias_parameter_->join(), options.pool);
  weight_parameter_->release();
  bias_parameter_->release();
}

Tensor Conv1d::forward(Stream& stream, const Tensor& x) const {
  ConvOptions options;
  options.stride[2] = stride_;
  options.pad_before[2] = 1;
  options.pad_after[2] = 1;
  options.activation = Activation::kGelu;
  Tensor out = stream.empty({x.dim(0), (x.dim(1) - 1) / stride_ + 1, out_}, DType::kF32);
  ops::conv1d(stream, x, conv_, options, out);
  return out;
}

WhisperAttention::WhisperAttention(int64_t d_model,
                                   int64_t num_heads,
                                   std::string attn_key,
                                   std::string kv_key)
    : num_heads_(num_heads),
      head_dim_(d_model / num_heads),
      attn_key_(std::move(attn_key)),
      kv_key_(std::move(kv_key)),
      q_proj_(d_model, d_model, true),
      k_proj_(d_model, d_model, false),
      v_proj_(d_model, d_model, true),
      out_proj_(d_model, d_model, true) {
  add_module("q_proj", q_proj_);
  add_module("k_proj", k_proj_);
  add_module("v_proj", v_proj_);
  add_module("out_proj", out_proj_);
}

void WhisperAttention::bind_resources(const ResourceMap& resources) {
  binding_.bind(resources, attn_key_, kv_key_, "");
}

Tensor WhisperAttention::forward(Stream& stream,
                                 const Tensor& hidden_states,
                                 const AttentionContext& context,
                                 const Tensor& residual) const {
  const Shape heads{hidden_states.dim(0), num_heads_, head_dim_};
  Qkv qkv{q_proj_.forward(stream, hidden_states).view(heads),
          k_proj_.forward(stream, hidden_states).view(heads),
          v_proj_.forward(stream, hidden_states).view(heads)};
  const Tensor attended = binding_.attend(stream, context, qkv);
  Epilogue epilogue;
  epilogue.residual = residual;
  return out_proj_.forward(stream, attended.view(hidden_states.shape()), epilogue);
}

WhisperLayer::WhisperLayer(const Config& config)
    : activation_(config.activation),
      self_attn_(config.d_model, config.num_heads, config.attn_key, config.kv_key),
      self_attn_layer_norm_(config.d_model),
      fc1_(config.d_model, config.ffn_dim, true),
      fc2_(config.ffn_dim, config.d_model, true),
      final_layer_norm_(config.d_model) {
  add_module("self_attn", self_attn_);
  add_module("self_attn_layer_norm", self_attn_layer_norm_);
  if (config.cross_attention) {
    encoder_attn_.emplace(CrossAttention::Config{.hidden_size = config.d_model,
                                                 .num_heads = config.num_heads,
                                                 .head_dim = config.d_model / config.num_heads,
                                                 .cross_key = kCrossAttention,
                                                 .context_kv_key = kCrossKv});
    encoder_attn_layer_norm_.emplace(config.d_model);
    add_module("encoder_attn", *encoder_attn_);
    add_module("encoder_attn_layer_norm", *encoder_attn_layer_norm_);
  }
  add_module("fc1", fc1_);
  add_module("fc2", fc2_);
  add_module("final_layer_norm", final_layer_norm_);
}

void WhisperLayer::bind_resources(const ResourceMap& resources) {
  self_attn_.bind_resources(resources);
  if (encoder_attn_) {
    encoder_attn_->bind_resources(resources);
  }
}

void WhisperLayer::write_context(Stream& stream,
                                 const Tensor& states,
                                 const AttentionContext& context) const {
  encoder_attn_->write_context(stream, states, context);
}

Tensor WhisperLayer::forward(Stream& stream, Tensor hidden, const AttentionContext& context) const {
  Tensor normed = self_attn_layer_norm_.forward(stream, hidden);
  hidden = self_attn_.forward(stream, normed, context, hidden);
  if (encoder_attn_) {
    normed = encoder_attn_layer_norm_->forward(stream, hidden);
    hidden = encoder_attn_->forward(stream, normed, context, hidden);
  }
  normed = final_layer_norm_.forward(stream, hidden);
  Epilogue first;
  first.activation = activation_;
  Epilogue second;
  second.residual = hidden;
  return fc2_.forward(stream, fc1_.forward(stream, normed, first), second);
}

}  // namespace mstar::whisper

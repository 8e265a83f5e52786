#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "mstar/components/attention.h"
#include "mstar/components/cross_attention.h"
#include "mstar/components/linear.h"
#include "mstar/components/norm.h"
#include "mstar/kernels/ops/conv.h"

namespace mstar::whisper {

// A convolution along time with three taps and its gelu. Checkpoint names: weight [out, in, 3],
// bias [out].
class Conv1d : public Module {
 public:
  Conv1d(int64_t in, int64_t out, int32_t stride);

  // x [n, l, in] f32 -> [n, ceil(l / stride), out] f32
  Tensor forward(Stream& stream, const Tensor& x) const;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  int64_t out_;
  int32_t stride_;
  Parameter* weight_parameter_;
  Parameter* bias_parameter_;
  PackedConv conv_;
};

// Multi-head attention without rotation whose keys have no bias. Checkpoint names: q_proj, k_proj,
// v_proj, out_proj. What sees what is the bound attention resource's and the step's to say.
class WhisperAttention : public SelfAttention {
 public:
  WhisperAttention(int64_t d_model, int64_t num_heads, std::string attn_key, std::string kv_key);

  void bind_resources(const ResourceMap& resources) override;

  Tensor forward(Stream& stream,
                 const Tensor& hidden_states,
                 const AttentionContext& context,
                 const Tensor& residual = {}) const override;

 private:
  int64_t num_heads_;
  int64_t head_dim_;
  std::string attn_key_;
  std::string kv_key_;
  Linear q_proj_;
  Linear k_proj_;
  Linear v_proj_;
  Linear out_proj_;
  AttentionBinding binding_;
};

// A pre-norm layer of either stack: self-attention, cross-attention (decoder), two linear layers.
class WhisperLayer : public Module {
 public:
  struct Config {
    int64_t d_model = 0;
    int64_t num_heads = 0;
    int64_t ffn_dim = 0;
    Activation activation = Activation::kGelu;
    std::string attn_key{};
    std::string kv_key{};  // empty: the attention keeps no cache
    bool cross_attention = false;
  };

  explicit WhisperLayer(const Config& config);

  void bind_resources(const ResourceMap& resources);

  // The encoder's rows [context tokens, d_model] as this layer's keys and values; in the step that
  // grows the context.
  void write_context(Stream& stream, const Tensor& states, const AttentionContext& context) const;

  // hidden_states [tokens, d_model] f32 or bf16 -> the same
  Tensor forward(Stream& stream, Tensor hidden, const AttentionContext& context) const;

 private:
  Activation activation_;
  WhisperAttention self_attn_;
  LayerNorm self_attn_layer_norm_;
  std::optional<CrossAttention> encoder_attn_;
  std::optional<LayerNorm> encoder_attn_layer_norm_;
  Linear fc1_;
  Linear fc2_;
  LayerNorm final_layer_norm_;
};

// Keys of the resources, as the model declares them.
inline constexpr const char* kEncoderAttention = "encoder_attn";
inline constexpr const char* kKv = "kv";
inline constexpr const char* kAttention = "attn";
inline constexpr const char* kCrossKv = "cross_kv";
inline constexpr const char* kCrossAttention = "cross_attn";
inline constexpr const char* kPositions = "pos";
inline constexpr const char* kSampler = "sampler";

}  // namespace mstar::whisper

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "mstar/components/linear.h"
#include "mstar/components/norm.h"
#include "mstar/kernels/ops/rope.h"
#include "mstar/resources/attention.h"

namespace mstar {

// The resources of one node by key, as the engine hands them to a submodule.
using ResourceMap = std::unordered_map<std::string, Resource*>;

// Self-attention as a decoder layer calls it.
class SelfAttention : public Module {
 public:
  // Finds the resources this layer calls by their keys. Keys that the map lacks stay unbound: a
  // node may own only some of them. Throws Error(kInvalidArgument) when a key names a resource of
  // another kind.
  virtual void bind_resources(const ResourceMap& resources) = 0;

  // hidden_states [tokens, input_hidden_size], packed as `context`'s step planned it -> the same
  // shape and type, plus `residual` of that shape when given. The attention resource must be bound.
  virtual Tensor forward(Stream& stream,
                         const Tensor& hidden_states,
                         const AttentionContext& context,
                         const Tensor& residual = {}) const = 0;
};

// Angles of the rotary embedding, as attention layers name them. With different frequency factors
// the scale is Llama 3.1's, else it divides the positions.
struct RopeParameters {
  float rope_theta = 10000.0F;
  float rope_scale = 1.0F;
  float rope_low_freq_factor = 1.0F;
  float rope_high_freq_factor = 1.0F;
  int64_t rope_old_context_len = 8192;

  // For PositionSpec::rope.
  RopeConfig config(int64_t head_dim) const;
};

// The three tensors of one attention call.
struct Qkv {
  Tensor q;  // [tokens, num_heads, head_dim]; any token stride
  Tensor k;  // [tokens, num_kv_heads, head_dim]
  Tensor v;  // likewise
};

// What an attention layer calls between its projections; the part that all variants share.
struct AttentionBinding {
  AttentionResource* attention = nullptr;
  PositionResource* positions = nullptr;  // null: no rotation

  // `attn_key` must not be empty; an empty `kv_key` or `pos_key` asks for none. When both are
  // there, the attention must be one over that KV resource.
  void bind(const ResourceMap& resources,
            const std::string& attn_key,
            const std::string& kv_key,
            const std::string& pos_key);

  // Rotates q and k in place, then attends: [tokens, num_heads, head_dim] of q's type.
  Tensor attend(Stream& stream, const AttentionContext& context, Qkv& qkv) const;
};

// Multi-head attention with grouped queries, per-head q/k norms before the rotation, and rotary
// positions. Checkpoint names: q_proj, k_proj, v_proj, o_proj, q_norm, k_norm.
class Attention : public SelfAttention {
 public:
  struct Config {
    int64_t hidden_size = 0;
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    bool qkv_bias = false;
    bool o_bias = false;
    bool qk_norm = false;
    float rms_norm_eps = 1e-6F;
    RopeParameters rope{};  // read by who builds the position resource (rope.config)
    std::optional<int64_t> input_hidden_size{};  // width of what comes in and goes out, when it
                                                 // is not hidden_size
    std::string attn_key = "attn";
    std::string kv_key = "kv";
    std::string pos_key = "rope";  // empty: no rotary positions
    bool qk_norm_gemma_mode = false;
  };

  explicit Attention(const Config& config);

  void bind_resources(const ResourceMap& resources) override;

  // Fuses the loaded q, k and v weights into one matrix and drops the originals; between loading
  // and finalize(). Calling again does nothing. Weights of different block types stay apart.
  // Throws Error(kUnsupported) with biases.
  void consolidate_qkv_weight();

  Tensor forward(Stream& stream,
                 const Tensor& hidden_states,
                 const AttentionContext& context,
                 const Tensor& residual = {}) const override;

  // Projections and norms, before the rotation.
  Qkv project(Stream& stream, const Tensor& hidden_states) const;

  const Config& config() const { return config_; }

  // [(num_heads + 2 num_kv_heads) head_dim, width] between consolidation and finalize(), else
  // undefined.
  const StackedRows& qkv_proj_weight() const { return qkv_proj_weight_; }

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  Config config_;
  Linear q_proj_;
  Linear k_proj_;
  Linear v_proj_;
  Linear o_proj_;
  std::optional<RMSNorm> q_norm_;
  std::optional<RMSNorm> k_norm_;
  StackedRows qkv_proj_weight_;
  PackedWeight qkv_proj_;
  AttentionBinding binding_;
};

// q, k and v as heads of one projection's result [tokens, (num_heads + 2 num_kv_heads) head_dim].
Qkv split_qkv(const Tensor& qkv, int64_t num_heads, int64_t num_kv_heads, int64_t head_dim);

// Normalizes every head of x [tokens, heads, head_dim]; x becomes contiguous if it was not.
void norm_heads(Stream& stream, const RMSNorm& norm, Tensor& x);

// The resource of that key as a T; null when absent. Throws Error(kInvalidArgument) when it is
// something else.
template <typename T>
T* find_resource(const ResourceMap& resources, const std::string& key, const char* kind);

}  // namespace mstar

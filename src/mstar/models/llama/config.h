#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/checkpoint/gguf.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/rope.h"

namespace mstar::llama {

// Everything that tells one decoder-only model of the family from another, read from the
// checkpoint's own files. Architecture fields have no default: a missing one is an error.
struct LlamaConfig {
  std::string model_type;  // llama, mistral, qwen2, qwen3, qwen2_moe, qwen3_moe, gemma
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 0.0F;
  Activation hidden_act = Activation::kSilu;
  bool tie_word_embeddings = false;

  // What differs between the models of the family.
  bool qkv_bias = false;
  bool o_bias = false;
  bool qk_norm = false;        // a norm per head of q and k, before the rotation
  bool gemma_mode = false;     // embeddings times sqrt(hidden_size), norms rounded once
  bool unit_offset = false;    // norms multiply by 1 + weight (Gemma, except in GGUF files)
  int64_t sliding_window = 0;  // 0: none
  RopeConfig rope;

  // Mixture of experts; num_experts 0: dense layers only.
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;
  int64_t shared_expert_intermediate_size = 0;  // 0: no shared expert
  bool norm_topk_prob = true;
  std::vector<bool> is_sparse;  // [num_hidden_layers]

  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;

  // From a Hugging Face config.json; `where` starts error messages. Both spellings of rope and
  // expert fields are read (rope_parameters or rope_theta and rope_scaling).
  static LlamaConfig from_hugging_face(const Json& json, const std::string& where);

  // From a GGUF file's metadata.
  static LlamaConfig from_gguf(const GgufFile& file);

  // For `mstar inspect`.
  Json to_json() const;

  // Throws Error(kInvalidArgument) when sizes do not fit together.
  void validate(const std::string& where) const;
};

// Whether the family knows this `model_type` of a config.json, or this GGUF architecture.
bool is_known_model_type(const std::string& model_type);

}  // namespace mstar::llama

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/kernels/ops/attention.h"
#include "mstar/kernels/ops/rope.h"
#include "mstar/resources/names.h"
#include "mstar/tensor/dtype.h"

namespace mstar {

// What a model declares about the resources of its nodes, and what a request brings for them.
// Plain data; resources are built from it by build_resource().

// How the sum of promises of admitted requests is counted, and who may go first.
enum class AdmissionFit : uint8_t { kSum, kPeak };
enum class AdmissionOrder : uint8_t { kFifo, kBackfill };

struct AdmissionSpec {
  AdmissionFit fit = AdmissionFit::kSum;
  AdmissionOrder order = AdmissionOrder::kFifo;
  int32_t backfill_window = 128;  // how far behind the head a smaller request is looked for
};

// Paged keys and values: memory, pages and streams.
struct KVSpec {
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;  // of this rank
  int64_t head_dim = 0;
  int64_t page_size = 128;           // tokens
  int64_t max_num_pages = 2048;      // with the sink page
  DType dtype = DType::kBF16;        // f32 or bf16
  bool follows_activations = false;  // bf16 where the engine's activations are, else `dtype`
  int64_t max_seq_len = 0;           // tokens of one stream; 0: what the pages hold
  int64_t cpu_offload_pages = 0;
  bool prefix_cache = false;
  std::string prefix_cache_salt{};
  AdmissionSpec admission{};
};

enum class AttentionKind : uint8_t {
  kPaged,   // rows written to pages, then read from them
  kDense,   // [frozen prefix | fresh rows], fresh ones never written; eager only
  kRagged,  // no cache: rows of a segment see each other
  kCross,   // rows read a context stream; it is written once
};

struct AttentionSpec {
  AttentionKind kind = AttentionKind::kPaged;
  std::string kv{};  // key of the KV resource; empty for kRagged
  // Scale, window and soft cap; `causal` comes with each step.
  AttentionOptions options{};
};

enum class PositionScheme : uint8_t {
  kSequential,  // a segment's tokens count on one by one
  kBlock,       // all tokens of a segment share the position, which then advances by block_step
};

struct PositionSpec {
  std::string
      kv{};  // key of the KV resource whose plan groups and forks are followed; may be empty
  PositionScheme scheme = PositionScheme::kSequential;
  int64_t block_step = 1;
  int32_t num_axes = 1;    // 1 or 3
  bool use_rope = true;    // false: learned positions, only pos_ids() is used
  bool float_ids = false;  // positions are f32 (fractional frames), else i32
  RopeConfig rope{};
  bool round_table = false;  // bf16 arithmetic of Hugging Face in apply_qk
};

struct SamplerSpec {
  std::vector<std::string> samplers{"main"};  // named configurations of one node
  int64_t vocab_size = 0;
  bool enable_repetition_penalty = false;  // needs vocab / 8 bytes per resident request
  bool enable_count_penalty = false;       // presence and frequency: 4 * vocab bytes
  bool enable_logit_bias = false;
};

using ResourceSpec = std::variant<KVSpec, AttentionSpec, PositionSpec, SamplerSpec>;

struct NodeResourceSpec {
  std::string resource_key;
  std::vector<std::string> nodes;  // that use it; all of one tensor-parallel group
  ResourceSpec spec;
};

// Keys and values that follow the activations take bf16 from them: what is written is rounded to
// it already.
void follow_activations(DType activation_dtype, ResourceSpec& spec);

// Overrides of a deployment's `resources.{key}` section. Throws Error(kInvalidArgument) on
// unknown keys and on values out of range.
void apply_overrides(ResourceSpec& spec, const Json& overrides, std::string_view where);

// Stream keys of one label: one number per token that says what the token is (its id, or the hash
// of the media behind it). Equal keys and equal position mean equal keys and values.
struct PrefixKeys {
  LabelId label = kMainLabel;
  std::vector<uint64_t> keys;
};

struct KVRequestConfig {
  std::vector<LabelId> needed_labels{kMainLabel};
  std::vector<LabelId> publish_labels{};
  int64_t max_tokens = 0;  // upper bound of what one stream will hold, prompt included; 0: unknown
  std::vector<PrefixKeys> prefix_keys{};
};

struct SamplingParams {
  float temperature = 0.6F;
  int32_t top_k = 0;
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  bool ignore_eos = false;
  std::vector<std::pair<int32_t, float>> logit_bias{};  // token, added to its logit
};

struct SamplingRequestConfig {
  uint64_t seed = 0;
  std::vector<SamplingParams> params{};  // one per named sampler; missing ones take the first
};

struct PositionRequestConfig {
  int64_t start = 0;  // first position of every stream
};

// What a request brings for one resource; monostate: the defaults.
using RequestResourceConfig =
    std::variant<std::monostate, KVRequestConfig, SamplingRequestConfig, PositionRequestConfig>;

}  // namespace mstar

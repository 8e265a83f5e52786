#include "mstar/models/llama/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar::llama {

namespace {

constexpr int64_t kMostHeadDim = 1024;

constexpr std::array kModelTypes =
    {"llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma"};

bool is_moe(const std::string& model_type) {
  return model_type == "qwen2_moe" || model_type == "qwen3_moe";
}

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[", where, "] ", what));
}

// What a model type fixes without saying so in its config.
void apply_model_type(LlamaConfig& config) {
  const std::string& type = config.model_type;
  config.qkv_bias = config.qkv_bias || type == "qwen2" || type == "qwen2_moe";
  config.qk_norm = type == "qwen3" || type == "qwen3_moe";
  config.gemma_mode = type == "gemma";
  config.unit_offset = config.gemma_mode;
}

RopeConfig read_rope(JsonReader& reader, int64_t head_dim, const std::string& where) {
  RopeConfig rope;
  rope.head_dim = head_dim;
  const Json* parameters = reader.find("rope_parameters");  // the current spelling
  const Json* scaling = reader.find("rope_scaling");        // the older one
  if (parameters == nullptr) {
    rope.theta = static_cast<float>(reader.get_double("rope_theta"));
    parameters = scaling;
  } else {
    rope.theta = static_cast<float>(parameters->at("rope_theta").get_double());
    reader.ignore("rope_theta");
  }
  if (parameters == nullptr) {
    return rope;
  }
  const Json* named = parameters->find("rope_type");
  if (named == nullptr) {
    named = parameters->find("type");
  }
  const std::string type = named != nullptr ? named->get_string() : "default";
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    rope.scale = static_cast<float>(parameters->at("factor").get_double());
  } else if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama31;
    rope.scale = static_cast<float>(parameters->at("factor").get_double());
    rope.low_freq_factor = static_cast<float>(parameters->at("low_freq_factor").get_double());
    rope.high_freq_factor = static_cast<float>(parameters->at("high_freq_factor").get_double());
    rope.old_context_len = parameters->at("original_max_position_embeddings").get_int();
  } else if (type != "default") {
    fail(where, str_cat("rope type \"", type, "\", expected default, linear or llama3"));
  }
  return rope;
}

// The window that all layers share, 0 for none. Qwen's configs name the first layer with one.
int64_t read_window(JsonReader& reader, const LlamaConfig& config, const std::string& where) {
  const bool windowed = reader.get_bool("use_sliding_window", config.model_type == "mistral");
  const int64_t window = reader.get_int("sliding_window", 0);
  const int64_t first = reader.get_int("max_window_layers", 0);
  if (!windowed || window == 0 || first >= config.num_hidden_layers) {
    return 0;
  }
  if (first > 0) {
    fail(where,
         str_cat("max_window_layers is ",
                 first,
                 ": a sliding window in some layers only is not supported"));
  }
  return window;
}

// The first of two spellings that is there.
int64_t get_either(JsonReader& reader, std::string_view first, std::string_view second) {
  if (reader.has(first)) {
    reader.ignore(second);
    return reader.get_int(first);
  }
  reader.ignore(first);
  return reader.get_int(second);
}

void read_experts(JsonReader& reader, LlamaConfig& config) {
  config.is_sparse.assign(static_cast<size_t>(config.num_hidden_layers), false);
  if (!is_moe(config.model_type)) {
    return;
  }
  config.num_experts = get_either(reader, "num_experts", "num_local_experts");
  config.num_experts_per_tok = reader.get_int("num_experts_per_tok");
  config.moe_intermediate_size = reader.get_int("moe_intermediate_size");
  config.norm_topk_prob = reader.get_bool("norm_topk_prob");
  if (config.model_type == "qwen2_moe") {
    config.shared_expert_intermediate_size = reader.get_int("shared_expert_intermediate_size");
  }
  const int64_t step = reader.get_int("decoder_sparse_step", 1);
  std::vector<int64_t> dense;
  if (const Json* list = reader.find("mlp_only_layers")) {
    for (const Json& layer : list->get_array()) {
      dense.push_back(layer.get_int());
    }
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.is_sparse[static_cast<size_t>(layer)] =
        std::ranges::find(dense, layer) == dense.end() && step > 0 && (layer + 1) % step == 0;
  }
}

std::vector<int32_t> token_ids(const Json* value) {
  std::vector<int32_t> ids;
  if (value == nullptr) {
    return ids;
  }
  if (value->is_array()) {
    for (const Json& id : value->get_array()) {
      ids.push_back(static_cast<int32_t>(id.get_int()));
    }
  } else {
    ids.push_back(static_cast<int32_t>(value->get_int()));
  }
  return ids;
}

// GGUF writes Llama 3.1's rule out as one divisor a frequency. Its parameters are the same in all
// published models but for the factor, which the lowest frequency shows; whether they are meant is
// checked frequency by frequency.
void read_rope_factors(const Tensor& factors, LlamaConfig& config, const std::string& where) {
  RopeConfig& rope = config.rope;
  const RopeConfig plain = rope;
  if (factors.dtype() != DType::kF32 || rope.rotary_dim < 2 || rope.rotary_dim > kMostHeadDim ||
      rope.rotary_dim % 2 != 0 || factors.num_elements() != rope.rotary_dim / 2) {
    fail(where,
         str_cat("rope_freqs.weight is ",
                 factors.to_string(),
                 ", expected one f32 for each of ",
                 rope.rotary_dim / 2,
                 " frequencies"));
  }
  const std::vector<float> divisors = factors.to_floats();
  rope.scaling = RopeConfig::Scaling::kLlama31;
  rope.scale = divisors.back();
  rope.low_freq_factor = 1.0F;
  rope.high_freq_factor = 4.0F;
  rope.old_context_len = 8192;
  const std::vector<float> unscaled = rope_inv_freq(plain).to_floats();
  const std::vector<float> scaled = rope_inv_freq(rope).to_floats();
  for (size_t index = 0; index < divisors.size(); ++index) {
    const float wanted = unscaled[index] / divisors[index];
    // Written so that a NaN fails too.
    if (!(std::abs(scaled[index] - wanted) <= 1e-3F * std::abs(wanted))) {
      fail(where,
           str_cat("rope_freqs.weight[",
                   index,
                   "] is ",
                   divisors[index],
                   ", which Llama 3.1's rule (factor ",
                   rope.scale,
                   ", context 8192) does not give"));
    }
  }
}

}  // namespace

bool is_known_model_type(const std::string& model_type) {
  return std::ranges::find(kModelTypes, model_type) != kModelTypes.end();
}

LlamaConfig LlamaConfig::from_hugging_face(const Json& json, const std::string& where) {
  JsonReader reader(json, where);
  LlamaConfig config;
  config.model_type = reader.get_string("model_type");
  if (!is_known_model_type(config.model_type)) {
    fail(where,
         str_cat("model_type \"",
                 config.model_type,
                 "\", expected one of ",
                 str_join(kModelTypes, ", ")));
  }
  config.hidden_size = reader.get_int("hidden_size");
  config.intermediate_size = reader.get_int("intermediate_size");
  config.num_hidden_layers = reader.get_int("num_hidden_layers");
  config.num_attention_heads = reader.get_int("num_attention_heads");
  // Written by every checkpoint since grouped queries exist; the first Llama left it out.
  config.num_key_value_heads = reader.get_int("num_key_value_heads", config.num_attention_heads);
  config.head_dim = reader.get_int(
      "head_dim",
      config.num_attention_heads > 0 ? config.hidden_size / config.num_attention_heads : 0);
  config.vocab_size = reader.get_int("vocab_size");
  config.max_position_embeddings = reader.get_int("max_position_embeddings");
  config.rms_norm_eps = static_cast<float>(reader.get_double("rms_norm_eps"));
  // Gemma's older configs name the activation twice; the newer name holds.
  config.hidden_act = parse_activation(
      reader.get_string(reader.has("hidden_activation") ? "hidden_activation" : "hidden_act"));
  // transformers' default for a config that does not say so; Gemma's is true.
  config.tie_word_embeddings = reader.get_bool("tie_word_embeddings", config.model_type == "gemma");
  config.qkv_bias = reader.get_bool("attention_bias", false);
  config.o_bias = config.qkv_bias;
  apply_model_type(config);
  if (config.model_type == "qwen2_moe") {
    config.qkv_bias = reader.get_bool("qkv_bias", true);
  }
  config.sliding_window = read_window(reader, config, where);
  config.rope = read_rope(reader, config.head_dim, where);
  read_experts(reader, config);
  config.eos_token_ids = token_ids(reader.find("eos_token_id"));
  if (reader.has("bos_token_id")) {
    config.bos_token_id = static_cast<int32_t>(reader.get_int("bos_token_id"));
  }
  // Further keys of a config.json (training, other frameworks) change nothing that is computed.
  config.validate(where);
  return config;
}

LlamaConfig LlamaConfig::from_gguf(const GgufFile& file) {
  const std::string where = file.file_paths().front();
  const std::string arch = file.get_string("general.architecture");
  const auto key = [&](const char* name) { return str_cat(arch, ".", name); };
  LlamaConfig config;
  config.model_type = arch == "qwen2moe" ? "qwen2_moe" : arch == "qwen3moe" ? "qwen3_moe" : arch;
  if (!is_known_model_type(config.model_type)) {
    fail(where,
         str_cat("general.architecture \"",
                 arch,
                 "\", expected llama, qwen2, qwen3, qwen2moe, qwen3moe or gemma"));
  }
  config.hidden_size = file.get_int(key("embedding_length"));
  config.intermediate_size = file.get_int(key("feed_forward_length"));
  config.num_hidden_layers = file.get_int(key("block_count"));
  config.num_attention_heads = file.get_int(key("attention.head_count"));
  config.num_key_value_heads =
      file.find_int(key("attention.head_count_kv")).value_or(config.num_attention_heads);
  config.head_dim =
      file.find_int(key("attention.key_length"))
          .value_or(config.num_attention_heads > 0 ? config.hidden_size / config.num_attention_heads
                                                   : 0);
  const TensorInfo& table = file.info("token_embd.weight");
  config.vocab_size = table.shape[0];
  config.max_position_embeddings = file.get_int(key("context_length"));
  config.rms_norm_eps =
      static_cast<float>(file.get_double(key("attention.layer_norm_rms_epsilon")));
  config.hidden_act = arch == "gemma" ? Activation::kGeluTanh : Activation::kSilu;
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
  config.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr;
  config.o_bias = file.find("blk.0.attn_output.bias") != nullptr;
  config.qk_norm = file.find("blk.0.attn_q_norm.weight") != nullptr;
  // GGUF stores Gemma's norms with the 1 added; the embedding is still scaled.
  config.gemma_mode = arch == "gemma";
  config.unit_offset = false;
  config.rope.head_dim = config.head_dim;
  config.rope.rotary_dim = file.find_int(key("rope.dimension_count")).value_or(config.head_dim);
  config.rope.theta = static_cast<float>(file.find_double(key("rope.freq_base")).value_or(10000.0));
  config.rope.interleave = arch == "llama";  // q and k rows are stored pair by pair
  const std::string scaling = file.find_string(key("rope.scaling.type")).value_or("none");
  if (scaling == "linear") {
    config.rope.scaling = RopeConfig::Scaling::kLinear;
    config.rope.scale = static_cast<float>(file.get_double(key("rope.scaling.factor")));
  } else if (scaling != "none") {
    fail(where, str_cat("rope scaling \"", scaling, "\", expected none or linear"));
  }
  if (const TensorInfo* factors = file.find("rope_freqs.weight")) {
    read_rope_factors(file.get(*factors), config, where);
  }
  config.is_sparse.assign(static_cast<size_t>(std::max<int64_t>(0, config.num_hidden_layers)),
                          false);
  if (is_moe(config.model_type)) {
    config.num_experts = file.get_int(key("expert_count"));
    config.num_experts_per_tok = file.get_int(key("expert_used_count"));
    config.moe_intermediate_size = file.get_int(key("expert_feed_forward_length"));
    config.shared_expert_intermediate_size =
        file.find_int(key("expert_shared_feed_forward_length")).value_or(0);
    config.norm_topk_prob = config.model_type == "qwen3_moe";
    config.is_sparse.assign(config.is_sparse.size(), true);
  }
  for (const char* end : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (const auto id = file.find_int(end)) {
      config.eos_token_ids.push_back(static_cast<int32_t>(*id));
    }
  }
  if (const auto bos = file.find_int("tokenizer.ggml.bos_token_id")) {
    config.bos_token_id = static_cast<int32_t>(*bos);
  }
  config.validate(where);
  return config;
}

void LlamaConfig::validate(const std::string& where) const {
  const auto positive = [&](int64_t value, const char* name, int64_t most) {
    if (value < 1 || value > most) {
      fail(where, str_cat(name, " is ", value, ", expected 1 to ", most));
    }
  };
  positive(hidden_size, "hidden_size", 1 << 20);
  positive(intermediate_size, "intermediate_size", 1 << 22);
  positive(num_hidden_layers, "num_hidden_layers", 1024);
  positive(num_attention_heads, "num_attention_heads", 4096);
  positive(num_key_value_heads, "num_key_value_heads", 4096);
  positive(head_dim, "head_dim", kMostHeadDim);
  positive(vocab_size, "vocab_size", 1 << 24);
  positive(max_position_embeddings, "max_position_embeddings", int64_t{1} << 31);
  if (num_attention_heads % num_key_value_heads != 0) {
    fail(where,
         str_cat(num_attention_heads,
                 " attention heads over ",
                 num_key_value_heads,
                 " key-value heads do not divide"));
  }
  if (head_dim % 2 != 0) {
    fail(where, str_cat("head_dim ", head_dim, " is odd"));
  }
  if (rope.rotary_dim < 0 || rope.rotary_dim > head_dim || rope.rotary_dim % 2 != 0) {
    fail(where,
         str_cat("rope turns ", rope.rotary_dim, " dims, expected an even number to ", head_dim));
  }
  if (sliding_window < 0 || sliding_window > std::numeric_limits<int32_t>::max()) {
    fail(where, str_cat("sliding_window is ", sliding_window));
  }
  if (!(rope.theta > 0.0F) || !(rope.scale > 0.0F) || !(rms_norm_eps > 0.0F)) {
    fail(where,
         str_cat("rope_theta ",
                 rope.theta,
                 ", rope factor ",
                 rope.scale,
                 " and rms_norm_eps ",
                 rms_norm_eps,
                 " must be above 0"));
  }
  if (num_experts > 0) {
    positive(num_experts_per_tok, "num_experts_per_tok", num_experts);
    positive(moe_intermediate_size, "moe_intermediate_size", 1 << 22);
  }
}

Json LlamaConfig::to_json() const {
  Json json = Json::object({{"model_type", model_type},
                            {"hidden_size", hidden_size},
                            {"intermediate_size", intermediate_size},
                            {"num_hidden_layers", num_hidden_layers},
                            {"num_attention_heads", num_attention_heads},
                            {"num_key_value_heads", num_key_value_heads},
                            {"head_dim", head_dim},
                            {"vocab_size", vocab_size},
                            {"max_position_embeddings", max_position_embeddings},
                            {"rms_norm_eps", static_cast<double>(rms_norm_eps)},
                            {"rope_theta", static_cast<double>(rope.theta)},
                            {"tie_word_embeddings", tie_word_embeddings}});
  if (num_experts > 0) {
    json.set("num_experts", num_experts).set("num_experts_per_tok", num_experts_per_tok);
  }
  return json;
}

}  // namespace mstar::llama

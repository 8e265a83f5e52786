#include "mstar/models/llama/model.h"

#include <algorithm>
#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/kernels/cpu/isa.h"
#include "mstar/models/common/answer_format.h"
#include "mstar/models/common/token_logprobs.h"
#include "mstar/models/common/token_node.h"
#include "mstar/models/llama/submodule.h"

namespace mstar::llama {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int64_t kDefaultMaxTokens = 1024;
constexpr int64_t kPageSize = 64;
constexpr std::string_view kPromptIds = "prompt_token_ids";

// The .gguf file that `path` is or holds alone; "" when there is none, or when the folder has
// safetensors, which then are the checkpoint.
std::string gguf_path(const std::string& path) {
  if (path.ends_with(".gguf")) {
    return path;
  }
  std::string found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().extension() == ".safetensors") {
      return "";
    }
    if (entry.path().extension() == ".gguf") {
      if (!found.empty()) {
        return "";
      }
      found = entry.path().string();
    }
  }
  return found;
}

Json read_json(const std::string& path) {
  return Json::parse(read_text_file(path, kMaxConfigBytes), path);
}

// Sampling defaults and further stop tokens of a checkpoint's generation_config.json.
void read_generation_config(const std::string& folder,
                            SamplingParams& sampling,
                            std::vector<int32_t>& stop_token_ids) {
  const std::string path = folder + "/generation_config.json";
  const auto text = read_text_file_if_there(path, kMaxConfigBytes);
  if (!text) {
    return;
  }
  const Json json = Json::parse(*text, path);
  const auto number = [&](const char* name, float& field) {
    if (const Json* value = json.find(name); value != nullptr && value->is_number()) {
      field = static_cast<float>(value->get_double());
    }
  };
  number("temperature", sampling.temperature);
  number("top_p", sampling.top_p);
  number("min_p", sampling.min_p);
  number("repetition_penalty", sampling.repetition_penalty);
  if (const Json* top_k = json.find("top_k"); top_k != nullptr && top_k->is_number()) {
    sampling.top_k = static_cast<int32_t>(top_k->get_int());
  }
  if (const Json* greedy = json.find("do_sample"); greedy != nullptr && *greedy == Json(false)) {
    sampling.temperature = 0.0F;
  }
  const Json* eos = json.find("eos_token_id");
  if (eos != nullptr && !eos->is_null()) {
    const Json list = eos->is_array() ? *eos : Json(Json::Array{*eos});
    for (const Json& id : list.get_array()) {
      stop_token_ids.push_back(static_cast<int32_t>(id.get_int()));
    }
  }
}

}  // namespace

bool LlamaModel::recognizes(const std::string& path) {
  const std::string config = path + "/config.json";
  if (!path.ends_with(".gguf") && fs::is_regular_file(config)) {
    const Json json = read_json(config);
    const Json* type = json.find("model_type");
    return type != nullptr && type->is_string() && is_known_model_type(type->get_string());
  }
  return !gguf_path(path).empty();
}

std::unique_ptr<Model> LlamaModel::open(const std::string& path, const Json& model_kwargs) {
  std::unique_ptr<LlamaModel> model(new LlamaModel);
  model->path_ = path;
  model->default_sampling_.temperature = 1.0F;
  if (const std::string gguf = gguf_path(path); !gguf.empty()) {
    auto file = GgufFile::open(gguf);
    model->config_ = LlamaConfig::from_gguf(*file);
    model->text_ = TextFrontEnd::from_gguf(*file);
    model->reader_ = std::move(file);
  } else {
    const std::string where = path + "/config.json";
    model->config_ = LlamaConfig::from_hugging_face(read_json(where), where);
    model->text_ = TextFrontEnd::load(path);
    model->reader_ = open_checkpoint(path);
    read_generation_config(path, model->default_sampling_, model->stop_token_ids_);
  }
  for (const int32_t id : model->config_.eos_token_ids) {
    model->stop_token_ids_.push_back(id);
  }
  // Chat templates end a turn with a token that older configs do not list.
  for (const char* turn_end : {"<|im_end|>", "<|eot_id|>", "<end_of_turn>"}) {
    if (const auto id = model->text_.tokenizer->find_token(turn_end)) {
      model->stop_token_ids_.push_back(*id);
    }
  }
  std::ranges::sort(model->stop_token_ids_);
  model->stop_token_ids_.erase(
      std::unique(model->stop_token_ids_.begin(), model->stop_token_ids_.end()),
      model->stop_token_ids_.end());
  model->grammars_ = std::make_unique<TokenGrammars>(
      model->text_.tokenizer, model->config_.vocab_size, model->stop_token_ids_);
  model->describe(model_kwargs);
  return model;
}

void LlamaModel::describe(const Json& model_kwargs) {
  JsonReader kwargs(model_kwargs, "model_kwargs");
  max_model_len_ =
      kwargs.get_int("max_model_len", std::min<int64_t>(config_.max_position_embeddings, 8192));
  kwargs.finish();
  if (max_model_len_ < 2 || max_model_len_ > config_.max_position_embeddings) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[model_kwargs] \"max_model_len\": found ",
                        max_model_len_,
                        ", expected 2 to ",
                        config_.max_position_embeddings));
  }
  description_.name = fs::path(path_).filename().string();
  if (description_.name.empty()) {
    description_.name = fs::path(path_).parent_path().filename().string();
  }
  description_.family = "llama";
  description_.input_modalities = {Modality::kText};
  description_.output_modalities = {Modality::kText};
  std::vector<RequestParameter> parameters =
      language_parameters(default_sampling_, kDefaultMaxTokens);
  parameters.push_back({.name = std::string(kPromptIds),
                        .type = RequestParameter::Type::kIntList,
                        .min = 0.0,
                        .max = static_cast<double>(config_.vocab_size - 1),
                        .help = "the prompt as token ids, instead of its text",
                        .max_length = static_cast<int>(max_model_len_)});
  description_.parameters = ParameterTable(std::move(parameters));
  description_.max_model_len = max_model_len_;
  description_.config = config_.to_json();
}

graph::ModelGraph LlamaModel::get_graph_walk_graphs() const {
  using namespace graph;  // NOLINT: the words of a declaration
  return {
      .walks = {
          walk("prefill",
               {"text_inputs"},
               node("LLM")
                   .needs({"text_inputs"})
                   .makes(edge(std::string(kLogprobsEdge)).to_client(Modality::kText))
                   .makes(edge("new_token").to_client(Modality::kText).counts_as_token())
                   .makes(edge("new_token").kept())),
          walk("decode",
               {"text_inputs"},
               loop("decode_loop",
                    kUntilStopped,
                    node("LLM")
                        .needs({"text_inputs"})
                        .makes(edge(std::string(kLogprobsEdge)).to_client(Modality::kText))
                        .makes(edge("new_token").to("LLM", "text_inputs"))
                        .makes(edge("new_token").to_client(Modality::kText).counts_as_token()))),
      }};
}

std::vector<NodeResourceSpec> LlamaModel::get_node_resources() const {
  const KVSpec kv{.num_layers = config_.num_hidden_layers,
                  .num_kv_heads = config_.num_key_value_heads,
                  .head_dim = config_.head_dim,
                  .page_size = kPageSize,
                  // One request of full length, or many short ones.
                  .max_num_pages = (max_model_len_ + kPageSize - 1) / kPageSize * 4 + 64,
                  .dtype = DType::kF32,
                  .follows_activations = true,
                  .max_seq_len = max_model_len_};
  AttentionOptions attention;
  attention.window = static_cast<int32_t>(config_.sliding_window);
  return {
      {"kv", {"LLM"}, kv},
      {"attn", {"LLM"}, AttentionSpec{.kv = "kv", .options = attention}},
      {"rope", {"LLM"}, PositionSpec{.kv = "kv", .rope = config_.rope}},
      {"sampler",
       {"LLM"},
       SamplerSpec{.vocab_size = config_.vocab_size,
                   .enable_repetition_penalty = true,
                   .enable_count_penalty = true,
                   .enable_logit_bias = true}},
  };
}

std::unique_ptr<NodeSubmodule> LlamaModel::get_submodule(std::string_view node,
                                                         const LoadContext& context) {
  if (node != "LLM") {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[llama] no node \"", node, "\""));
  }
  auto transformer = std::make_unique<LlamaTransformer>(config_);
  if (context.progress) {
    context.progress("weights", 0, static_cast<int64_t>(reader_->total_bytes()));
  }
  FinalizeOptions options{context.pool};
  if (context.quantization == "int8") {
    options.weight_format = WeightFormat::kInt8;
  }
  // As other readers of these files do: three times faster, and as far from exact products as they
  // are (docs/performance.md, "Language models").
  if (context.quantization != "exact") {
    options.activations = Activations::kInt8;
  }
  transformer->load(*reader_, options);
  if (context.progress) {
    context.progress("weights",
                     static_cast<int64_t>(reader_->total_bytes()),
                     static_cast<int64_t>(reader_->total_bytes()));
  }
  return std::make_unique<LlamaSubmodule>(std::move(transformer), context.activation_dtype);
}

// As the checkpoint's, where that is faster and the model no toy: recorded ones stay exact.
DType LlamaModel::default_activation_dtype() const {
  constexpr int64_t kSmallestWorthIt = 1024;  // hidden size
  uint64_t bf16_bytes = 0;
  for (const TensorInfo& tensor : reader_->tensors()) {
    bf16_bytes += tensor.dtype == DType::kBF16 ? tensor.size_bytes : 0;
  }
  const bool fits =
      config_.hidden_size >= kSmallestWorthIt && 2 * bf16_bytes > reader_->total_bytes();
  return fits && active_isa() >= Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

void LlamaModel::check_weights(const LoadContext&) {
  LlamaTransformer(config_).map_weights(*reader_);
}

std::vector<MemoryItem> LlamaModel::memory_plan(const std::vector<std::string>&,
                                                const LoadContext&) const {
  const int64_t row_floats =
      config_.vocab_size + 3 * config_.intermediate_size + 6 * config_.hidden_size;
  return {{"weights", static_cast<int64_t>(reader_->total_bytes())},
          {"captured steps", kCapturedTokenRows * row_floats * 4}};
}

PreparedRequest LlamaModel::process_prompt(const ModelRequest& request) const {
  const Json parameters = description_.parameters.resolve(request.parameters);
  if (!request.media.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "[request] this model takes text only");
  }
  Json variables = Json::object();
  if (const Json* thinking = parameters.find("enable_thinking")) {
    variables.set("enable_thinking", *thinking);
  }
  if (const Json* kwargs = parameters.find("chat_template_kwargs")) {
    for (const auto& [key, value] : kwargs->get_object()) {
      variables.set(key, value);
    }
  }
  std::vector<int32_t> ids;
  if (const Json* given = parameters.find(kPromptIds)) {
    for (const Json& id : given->get_array()) {
      ids.push_back(static_cast<int32_t>(id.get_int()));
    }
  } else if (request.raw_prompt) {
    std::string text;
    for (const ChatMessage& message : request.messages) {
      for (const ContentPart& part : message.content) {
        text += part.text;
      }
    }
    ids = text_.encode_text(text);
  } else {
    ids = text_.encode_chat(request.messages, variables);
  }
  if (ids.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "[request] the prompt is empty");
  }
  // A tokenizer may know more tokens than the checkpoint has embeddings for.
  for (const int32_t id : ids) {
    if (id < 0 || id >= config_.vocab_size) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[request] the prompt has token ",
                          id,
                          " (\"",
                          text_.tokenizer->token(id),
                          "\"), this checkpoint has embeddings for ",
                          config_.vocab_size));
    }
  }
  const auto num_prompt = static_cast<int64_t>(ids.size());
  if (num_prompt >= max_model_len_) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[request] the prompt has ",
                        num_prompt,
                        " tokens, this model reads ",
                        max_model_len_ - 1,
                        " at most"));
  }
  PreparedRequest out;
  out.request_id = request.request_id;
  out.inputs.set("text_inputs", Tensor::from(ids, {num_prompt}));
  out.input_modalities = {Modality::kText};
  out.output_modalities = request.output_modalities;
  out.random_seed = request_seed(parameters, request.request_id);
  out.num_prompt_tokens = num_prompt;
  out.max_tokens = std::min(parameters.at("max_tokens").get_int(), max_model_len_ - num_prompt);
  out.stop_strings = stop_strings(parameters);
  const SamplingParams sampling = sampling_params(parameters);
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0 || token >= config_.vocab_size) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[request] \"logit_bias\": token ",
                          token,
                          ", expected 0 to ",
                          config_.vocab_size - 1));
    }
  }
  out.values.set(kStopTokenIds, sampling.ignore_eos ? std::vector<int32_t>() : stop_token_ids_);
  if (const Json* top = parameters.find("logprobs")) {
    out.values.set(kNumLogprobs, static_cast<int32_t>(top->get_int()));
  }
  if (AnswerRules rules = answer_rules(parameters, *grammars_)) {
    out.values.set(kAnswerRules, std::move(rules));
  }
  KVRequestConfig kv;
  kv.max_tokens = num_prompt + out.max_tokens;
  PrefixKeys keys;
  keys.keys.assign(ids.begin(), ids.end());
  kv.prefix_keys.push_back(std::move(keys));
  out.resource_configs["kv"] = std::move(kv);
  out.resource_configs["sampler"] =
      SamplingRequestConfig{.seed = out.random_seed, .params = {sampling}};
  return out;
}

ForwardPassArgs LlamaModel::get_initial_forward_pass_args(RequestProgress& progress) const {
  ForwardPassArgs args;
  args.graph_walk = "prefill";
  args.inputs.set("text_inputs", progress.persist_signals.at("text_inputs"));
  args.unpersist = {"text_inputs"};
  return args;
}

ForwardPassArgs LlamaModel::get_partition_forward_pass_args(RequestProgress& progress) const {
  ForwardPassArgs args;
  args.unpersist = {"new_token"};
  if (progress.graph_walk == "decode" || progress.request.max_tokens <= 1) {
    args.request_done = true;
    return args;
  }
  const Tensor first = progress.persist_signals.tensor("new_token");
  const auto& stops = progress.request.values.at<std::vector<int32_t>>(kStopTokenIds);
  if (std::ranges::find(stops, *first.data<int32_t>()) != stops.end()) {
    args.request_done = true;
    return args;
  }
  args.graph_walk = "decode";
  args.inputs.set("text_inputs", first);
  args.loop_limits = {{"decode_loop", progress.request.max_tokens - 1}};
  return args;
}

std::unique_ptr<OutputStream> LlamaModel::make_output_stream(const PreparedRequest& request) const {
  const Tensor prompt = request.inputs.tensor("text_inputs");
  return std::make_unique<TextOutputStream>(
      text_.tokenizer,
      TextOutputStream::Config{
          .stop_token_ids = request.values.at<std::vector<int32_t>>(kStopTokenIds),
          .stop_strings = request.stop_strings,
          .max_tokens = request.max_tokens},
      std::span(prompt.data<int32_t>(), static_cast<size_t>(prompt.num_elements())));
}

std::vector<int32_t> LlamaModel::tokenize(std::string_view text, bool add_special_tokens) const {
  EncodeOptions options;
  options.add_template = add_special_tokens;
  return text_.tokenizer->encode(text, options);
}

std::string LlamaModel::detokenize(const std::vector<int32_t>& ids) const {
  return text_.tokenizer->decode(ids);
}

std::string LlamaModel::prompt_text(const std::vector<int32_t>& ids) const {
  return mstar::prompt_text(text_.tokenizer, ids);
}

}  // namespace mstar::llama

#include "mstar/models/whisper/model.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/models/whisper/submodules.h"

namespace mstar::whisper {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int64_t kPageSize = 64;
constexpr int64_t kContexts = 16;        // of full length that the pools hold
constexpr int64_t kSparePages = 64;      // and what captured rows keep
constexpr float kSuppressed = -1000.0F;  // added to a logit: more than any two differ by
constexpr std::string_view kPromptTail = "prompt_tail";
constexpr const char* kEncoderNode = "audio_encoder";
constexpr const char* kDecoderNode = "decoder";

Json read_json(const std::string& path) {
  return Json::parse(read_text_file(path, kMaxConfigBytes), path);
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[request] ", what));
}

int64_t pages(int64_t num_tokens) {
  return (num_tokens + kPageSize - 1) / kPageSize;
}

Tensor ids_tensor(const std::vector<int32_t>& ids) {
  return Tensor::from(ids, {static_cast<int64_t>(ids.size())});
}

}  // namespace

bool WhisperModel::recognizes(const std::string& path) {
  const std::string config = path + "/config.json";
  if (!fs::is_regular_file(config)) {
    return false;
  }
  const Json json = read_json(config);
  const Json* type = json.find("model_type");
  return type != nullptr && *type == Json("whisper");
}

WhisperModel::WhisperModel(const std::string& path, const Json& model_kwargs) : path_(path) {
  const std::string where = path + "/config.json";
  const Json json = read_json(where);
  config_ = WhisperConfig::from_hugging_face(json, where);
  generation_ = GenerationConfig::read(path, json, config_.vocab_size);
  log_mel_ = std::make_unique<LogMel>(read_feature_config(path, config_));
  text_ = TextFrontEnd::load(path);
  reader_ = open_checkpoint(path);
  JsonReader kwargs(model_kwargs, "model_kwargs");
  max_audio_seconds_ = kwargs.get_double("max_audio_seconds", max_audio_seconds_);
  kwargs.finish();
  if (!(max_audio_seconds_ > 0.0 && max_audio_seconds_ <= 86400.0)) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[model_kwargs] \"max_audio_seconds\": found ",
                        max_audio_seconds_,
                        ", expected more than 0, at most 86400"));
  }
  describe();
}

std::unique_ptr<Model> WhisperModel::open(const std::string& path, const Json& model_kwargs) {
  return std::unique_ptr<Model>(new WhisperModel(path, model_kwargs));
}

void WhisperModel::describe() {
  using Type = RequestParameter::Type;
  description_.name = fs::path(path_).filename().string();
  if (description_.name.empty()) {
    description_.name = fs::path(path_).parent_path().filename().string();
  }
  description_.family = "whisper";
  description_.input_modalities = {Modality::kAudio, Modality::kText};
  description_.output_modalities = {Modality::kText};
  description_.max_model_len = config_.max_target_positions;
  description_.config = config_.to_json();
  std::vector<RequestParameter> parameters = {
      {.name = "max_tokens",
       .fallback = config_.max_target_positions,
       .min = 1,
       .unit = "tokens",
       .help = "most tokens to generate",
       .aliases = {"max_new_tokens"}},
      {.name = "temperature",
       .type = Type::kFloat,
       .fallback = 0.0,
       .min = 0.0,
       .max = 100.0,
       .help = "spread of sampling; 0 takes the likeliest token"},
      {.name = "seed",
       .type = Type::kInt,
       .min = 0.0,
       .help = "same seed, same request: same answer"},
      {.name = "ignore_eos",
       .type = Type::kBool,
       .fallback = false,
       .help = "go on until max_tokens"},
  };
  // A checkpoint without tables knows one of each; clients that name it are right.
  RequestParameter language{.name = "language",
                            .type = Type::kString,
                            .help = "what is spoken, as a code such as en; heard when not given"};
  for (const auto& [code, token] : generation_.lang_to_id) {
    language.choices.push_back(code);
  }
  if (language.choices.empty()) {
    language.choices.push_back("en");
  }
  parameters.push_back(std::move(language));
  RequestParameter task{.name = "task",
                        .type = Type::kString,
                        .fallback = "transcribe",
                        .choices = {"transcribe"},
                        .help = "write what is said, or translate it into English"};
  for (const auto& [name, token] : generation_.task_to_id) {
    if (name != "transcribe") {
      task.choices.push_back(name);
    }
  }
  parameters.push_back(std::move(task));
  description_.parameters = ParameterTable(std::move(parameters));
}

graph::ModelGraph WhisperModel::get_graph_walk_graphs() const {
  using namespace graph;  // NOLINT: the words of a declaration
  const auto encoder = [] {
    return node(kEncoderNode)
        .needs({"audio_features"})
        .makes(edge("audio_embeds").to(kDecoderNode));
  };
  const auto decoder = [](std::vector<std::string> inputs) {
    return node(kDecoderNode)
        .needs(std::move(inputs))
        .makes(edge("new_token").to_client(Modality::kText).counts_as_token())
        .makes(edge("new_token").kept());
  };
  ModelGraph graph{
      .walks = {
          walk("prefill",
               {"audio_features", "text_inputs"},
               encoder(),
               decoder({"text_inputs", "audio_embeds"})),
          walk(std::string(kDecode),
               {"text_inputs"},
               loop("decode_loop",
                    kUntilStopped,
                    node(kDecoderNode)
                        .needs({"text_inputs"})
                        .makes(edge("new_token").to(kDecoderNode, "text_inputs"))
                        .makes(edge("new_token").to_client(Modality::kText).counts_as_token()))),
      }};
  if (!generation_.lang_to_id.empty()) {
    graph.walks.push_back(walk(std::string(kDetect),
                               {"audio_features", "text_inputs"},
                               encoder(),
                               node(kDecoderNode)
                                   .needs({"text_inputs", "audio_embeds"})
                                   .makes(edge("language_token").to_client(Modality::kText))
                                   .makes(edge("language_token").kept())));
    graph.walks.push_back(walk("prefill_text", {"text_inputs"}, decoder({"text_inputs"})));
  }
  return graph;
}

std::vector<NodeResourceSpec> WhisperModel::get_node_resources() const {
  const int64_t heads = config_.decoder_attention_heads;
  const KVSpec kv{.num_layers = config_.decoder_layers,
                  .num_kv_heads = heads,
                  .head_dim = config_.d_model / heads,
                  .page_size = kPageSize,
                  .max_num_pages = pages(config_.max_target_positions) * kContexts + kSparePages,
                  .dtype = DType::kF32,
                  .max_seq_len = config_.max_target_positions};
  KVSpec cross = kv;
  cross.max_num_pages = pages(config_.max_source_positions) * kContexts + kSparePages;
  cross.max_seq_len = config_.max_source_positions;
  return {
      {kKv, {kDecoderNode}, kv},
      {kCrossKv, {kDecoderNode}, cross},
      {kEncoderAttention, {kEncoderNode}, AttentionSpec{.kind = AttentionKind::kRagged}},
      {kAttention, {kDecoderNode}, AttentionSpec{.kv = kKv}},
      {kCrossAttention,
       {kDecoderNode},
       AttentionSpec{.kind = AttentionKind::kCross, .kv = kCrossKv}},
      {kPositions, {kDecoderNode}, PositionSpec{.kv = kKv, .use_rope = false}},
      {kSampler,
       {kDecoderNode},
       SamplerSpec{.samplers = {"first", "main", "language"},
                   .vocab_size = config_.vocab_size,
                   .enable_logit_bias = true}},
  };
}

std::unique_ptr<NodeSubmodule> WhisperModel::get_submodule(std::string_view node,
                                                           const LoadContext& context) {
  FinalizeOptions options{context.pool};
  if (context.quantization == "int8") {
    options.weight_format = WeightFormat::kInt8;
  }
  const auto report = [&](int64_t done) {
    if (context.progress) {
      context.progress(node, done, static_cast<int64_t>(reader_->total_bytes()));
    }
  };
  report(0);
  std::unique_ptr<NodeSubmodule> submodule;
  if (node == kEncoderNode) {
    auto encoder = std::make_unique<WhisperEncoder>(config_);
    encoder->load(*reader_, options);
    submodule =
        std::make_unique<AudioEncoderSubmodule>(std::move(encoder), context.activation_dtype);
  } else if (node == kDecoderNode) {
    std::vector<int32_t> languages;
    for (const auto& [code, token] : generation_.lang_to_id) {
      languages.push_back(token);
    }
    auto decoder = std::make_unique<WhisperDecoder>(config_);
    decoder->load(*reader_, options);
    submodule = std::make_unique<DecoderSubmodule>(
        std::move(decoder), std::move(languages), context.activation_dtype);
  } else {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[whisper] no node \"", node, "\""));
  }
  report(static_cast<int64_t>(reader_->total_bytes()));
  return submodule;
}

void WhisperModel::check_weights(const LoadContext&) {
  WhisperEncoder(config_).map_weights(*reader_);
  WhisperDecoder(config_).map_weights(*reader_);
}

std::vector<MemoryItem> WhisperModel::memory_plan(const std::vector<std::string>&,
                                                  const LoadContext&) const {
  const int64_t encoder_row = 8 * config_.d_model + 2 * config_.encoder_ffn_dim;
  const int64_t encoder_rows = kEncoderWindows * config_.max_source_positions;
  const int64_t decoder_row =
      config_.vocab_size + 2 * config_.decoder_ffn_dim + 8 * config_.d_model;
  return {{"weights", static_cast<int64_t>(reader_->total_bytes())},
          {"encoder activations", encoder_rows * encoder_row * 4},
          {"captured steps", kCapturedTokenRows * decoder_row * 4}};
}

// The request's only file, in mono at the model's rate.
AudioClip WhisperModel::read_sound(const ModelRequest& request, double max_seconds) const {
  if (request.media.size() != 1 || request.media.front().modality != Modality::kAudio) {
    refuse(str_cat("found ", request.media.size(), " files, expected one of sound"));
  }
  const MediaItem& item = request.media.front();
  const std::string where = item.name.empty() ? "audio" : item.name;
  const double told = read_audio_info(*item.bytes, where).seconds();
  if (told > max_seconds) {
    refuse(str_cat("the sound lasts ",
                   told,
                   " seconds, at most ",
                   max_seconds,
                   " are heard; send it in pieces"));
  }
  const AudioClip clip = read_audio(*item.bytes, {.max_seconds = max_seconds}, where);
  return resample(to_mono(clip), log_mel_->config().sampling_rate);
}

// What was said before, from the request's text, as the decoder is told: its end, at most half of
// what the decoder reads.
std::vector<int32_t> WhisperModel::text_before(const ModelRequest& request) const {
  std::string text;
  for (const ChatMessage& message : request.messages) {
    for (const ContentPart& part : message.content) {
      text += part.text;
    }
  }
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return {};
  }
  const auto start = text_.tokenizer->find_token("<|startofprev|>");
  if (!start) {
    refuse("this model takes no text besides the sound");
  }
  EncodeOptions options;
  options.added_tokens = AddedTokens::kSpecialsAsText;
  options.no_special_ids = true;
  std::vector<int32_t> ids =
      text_.tokenizer->encode(text.starts_with(' ') ? text : " " + text, options);
  const auto most = static_cast<size_t>(config_.max_target_positions / 2 - 1);
  if (ids.size() > most) {
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(most));
  }
  ids.insert(ids.begin(), *start);
  return ids;
}

WhisperModel::Prompt WhisperModel::make_prompt(const Json& parameters,
                                               std::vector<int32_t> before) const {
  Prompt prompt;
  prompt.head = std::move(before);
  prompt.head.push_back(generation_.decoder_start_token_id);
  std::vector<int32_t> rest;
  if (generation_.lang_to_id.empty()) {
    rest = generation_.forced_tokens;
  } else if (const Json* language = parameters.find("language")) {
    rest.push_back(generation_.lang_to_id.at(language->get_string()));
  } else {
    prompt.detects_language = true;
  }
  const auto task = generation_.task_to_id.find(parameters.at("task").get_string());
  if (task != generation_.task_to_id.end()) {
    rest.push_back(task->second);
  }
  if (generation_.no_timestamps_token_id &&
      std::ranges::find(rest, *generation_.no_timestamps_token_id) == rest.end()) {
    rest.push_back(*generation_.no_timestamps_token_id);
  }
  auto& end = prompt.detects_language ? prompt.tail : prompt.head;
  end.insert(end.end(), rest.begin(), rest.end());
  return prompt;
}

SamplingRequestConfig WhisperModel::sampling_config(const Json& parameters, uint64_t seed) const {
  const SamplingParams base = sampling_params(parameters);
  SamplingParams main = base;
  for (const int32_t token : generation_.suppress_tokens) {
    main.logit_bias.emplace_back(token, kSuppressed);
  }
  SamplingParams first = main;
  for (const int32_t token : generation_.begin_suppress_tokens) {
    if (std::ranges::find(generation_.suppress_tokens, token) ==
        generation_.suppress_tokens.end()) {
      first.logit_bias.emplace_back(token, kSuppressed);
    }
  }
  SamplingParams language = base;
  language.temperature = 0.0F;
  return {.seed = seed, .params = {std::move(first), std::move(main), std::move(language)}};
}

PreparedRequest WhisperModel::process_prompt(const ModelRequest& request) const {
  const AudioClip clip = read_sound(request, log_mel_->seconds());
  return prepare(request,
                 {clip.samples.data<float>(), static_cast<size_t>(clip.num_frames())},
                 text_before(request));
}

std::vector<PreparedRequest> WhisperModel::process_parts(const ModelRequest& request) const {
  const AudioClip clip = read_sound(request, max_audio_seconds_);
  const std::span<const float> sound(clip.samples.data<float>(),
                                     static_cast<size_t>(clip.num_frames()));
  const auto rate = static_cast<double>(clip.sample_rate);
  std::vector<PreparedRequest> parts;
  size_t begin = 0;
  for (const size_t end : log_mel_->pieces(sound)) {
    parts.push_back(prepare(request,
                            sound.subspan(begin, end - begin),
                            begin == 0 ? text_before(request) : std::vector<int32_t>()));
    parts.back().chunk_metadata = Json::object(
        {{"start", static_cast<double>(begin) / rate}, {"end", static_cast<double>(end) / rate}});
    begin = end;
  }
  return parts;
}

PreparedRequest WhisperModel::prepare(const ModelRequest& request,
                                      std::span<const float> sound,
                                      std::vector<int32_t> before) const {
  const Json parameters = description_.parameters.resolve(request.parameters);
  const Prompt prompt = make_prompt(parameters, std::move(before));
  const int64_t left = config_.max_target_positions - prompt.num_tokens();
  if (left < 1) {
    refuse("the text before the sound leaves no room for an answer");
  }
  PreparedRequest out;
  out.request_id = request.request_id;
  out.inputs.set("audio_features", (*log_mel_)(sound));
  out.inputs.set("text_inputs", ids_tensor(prompt.head));
  out.input_modalities = {Modality::kAudio};
  out.output_modalities = request.output_modalities;
  out.random_seed = request_seed(parameters, request.request_id);
  out.num_prompt_tokens = prompt.num_tokens();
  out.max_tokens = std::min(parameters.at("max_tokens").get_int(), left);
  const bool ignore_eos = parameters.at("ignore_eos").get_bool();
  out.values.set(kStopTokenIds, ignore_eos ? std::vector<int32_t>() : generation_.eos_token_ids);
  if (prompt.detects_language) {
    out.values.set(kPromptTail, prompt.tail);
  } else if (const Json* language = parameters.find("language")) {
    out.step_metadata.set("language", *language);
  }
  KVRequestConfig kv;
  kv.max_tokens = prompt.num_tokens() + out.max_tokens;
  KVRequestConfig cross;
  cross.max_tokens = config_.max_source_positions;
  out.resource_configs[kKv] = std::move(kv);
  out.resource_configs[kCrossKv] = std::move(cross);
  out.resource_configs[kSampler] = sampling_config(parameters, out.random_seed);
  return out;
}

ForwardPassArgs WhisperModel::get_initial_forward_pass_args(RequestProgress& progress) const {
  ForwardPassArgs args;
  args.graph_walk =
      progress.request.values.contains(kPromptTail) ? std::string(kDetect) : "prefill";
  args.inputs.set("audio_features", progress.persist_signals.at("audio_features"));
  args.inputs.set("text_inputs", progress.persist_signals.at("text_inputs"));
  args.unpersist = {"audio_features", "text_inputs"};
  return args;
}

ForwardPassArgs WhisperModel::get_partition_forward_pass_args(RequestProgress& progress) const {
  ForwardPassArgs args;
  const ValueMap& values = progress.request.values;
  if (progress.graph_walk == kDetect) {
    std::vector<int32_t> rest{*progress.persist_signals.tensor("language_token").data<int32_t>()};
    const auto& tail = values.at<std::vector<int32_t>>(kPromptTail);
    rest.insert(rest.end(), tail.begin(), tail.end());
    args.graph_walk = "prefill_text";
    args.inputs.set("text_inputs", ids_tensor(rest));
    args.unpersist = {"language_token"};
    return args;
  }
  args.unpersist = {"new_token"};
  if (progress.graph_walk == kDecode || progress.request.max_tokens <= 1) {
    args.request_done = true;
    return args;
  }
  const Tensor first = progress.persist_signals.tensor("new_token");
  const auto& stops = values.at<std::vector<int32_t>>(kStopTokenIds);
  if (std::ranges::find(stops, *first.data<int32_t>()) != stops.end()) {
    args.request_done = true;
    return args;
  }
  args.graph_walk = kDecode;
  args.inputs.set("text_inputs", first);
  args.loop_limits = {{"decode_loop", progress.request.max_tokens - 1}};
  return args;
}

namespace {

// Text, with the language that was heard or asked for in its metadata.
class TranscriptStream final : public TextOutputStream {
 public:
  // `languages` outlives the stream; `language` is the code asked for, or "".
  TranscriptStream(std::shared_ptr<const Tokenizer> tokenizer,
                   Config config,
                   const std::map<std::string, int32_t>& languages,
                   std::string language)
      : TextOutputStream(std::move(tokenizer), std::move(config)),
        languages_(languages),
        language_(std::move(language)) {}

  std::vector<OutputChunk> write(Modality modality,
                                 std::string_view edge,
                                 const TensorList& tensors) override {
    if (edge == "language_token") {
      const auto token = static_cast<int32_t>(tensors.at(0).to_ints().at(0));
      for (const auto& [code, id] : languages_) {
        language_ = id == token ? code : language_;
      }
      return {};
    }
    return told(TextOutputStream::write(modality, edge, tensors));
  }

  std::vector<OutputChunk> finish() override { return told(TextOutputStream::finish()); }

 private:
  std::vector<OutputChunk> told(std::vector<OutputChunk> chunks) const {
    for (OutputChunk& chunk : chunks) {
      if (!language_.empty()) {
        chunk.metadata.set("language", language_);
      }
    }
    return chunks;
  }

  const std::map<std::string, int32_t>& languages_;
  std::string language_;
};

}  // namespace

std::unique_ptr<OutputStream> WhisperModel::make_output_stream(
    const PreparedRequest& request) const {
  const Json* language = request.step_metadata.find("language");
  return std::make_unique<TranscriptStream>(
      text_.tokenizer,
      TextOutputStream::Config{
          .stop_token_ids = request.values.at<std::vector<int32_t>>(kStopTokenIds),
          .stop_strings = {},
          .max_tokens = request.max_tokens},
      generation_.lang_to_id,
      language != nullptr ? language->get_string() : "");
}

std::vector<int32_t> WhisperModel::tokenize(std::string_view text, bool add_special_tokens) const {
  EncodeOptions options;
  options.add_template = add_special_tokens;
  return text_.tokenizer->encode(text, options);
}

std::string WhisperModel::detokenize(const std::vector<int32_t>& ids) const {
  return text_.tokenizer->decode(ids);
}

}  // namespace mstar::whisper

#include "mstar/models/common/text_front_end.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/common/token_logprobs.h"
#include "mstar/text/gguf_vocab.h"

namespace mstar {

namespace {

// One message as templates read it. Text-only content is a string; with media it is the list of
// parts that multimodal templates walk over.
Json message_json(const ChatMessage& message, bool knows_developer) {
  const bool text_only = std::ranges::all_of(
      message.content, [](const ContentPart& part) { return part.modality == Modality::kText; });
  Json content;
  if (text_only) {
    std::string text;
    for (const ContentPart& part : message.content) {
      text += part.text;
    }
    content = std::move(text);
  } else {
    for (const ContentPart& part : message.content) {
      if (part.modality == Modality::kText) {
        content.push_back(Json::object({{"type", "text"}, {"text", part.text}}));
      } else {
        content.push_back(Json::object({{"type", to_string(part.modality)}}));
      }
    }
  }
  const bool as_system = message.role == "developer" && !knows_developer;
  return Json::object(
      {{"role", as_system ? "system" : message.role}, {"content", std::move(content)}});
}

void load_template(TextFrontEnd& front_end) {
  const std::string& source = front_end.config.template_for(false);
  if (!source.empty()) {
    front_end.chat_template = std::make_shared<const ChatTemplate>(source);
    front_end.knows_developer = source.find("developer") != std::string::npos;
  }
}

}  // namespace

TextFrontEnd TextFrontEnd::load(const std::string& folder) {
  TextFrontEnd front_end;
  front_end.tokenizer = Tokenizer::load(folder);
  front_end.config = TokenizerConfig::load(folder);
  load_template(front_end);
  return front_end;
}

TextFrontEnd TextFrontEnd::from_gguf(const GgufFile& file) {
  const auto id = [&](const char* key) {
    return static_cast<int32_t>(file.find_int(str_cat("tokenizer.ggml.", key)).value_or(-1));
  };
  const auto flag = [&](const char* key) {
    const auto value = file.find_bool(str_cat("tokenizer.ggml.", key));
    return value.has_value() ? static_cast<int>(*value) : -1;
  };
  GgufVocab vocab;
  vocab.model = file.get_string("tokenizer.ggml.model");
  vocab.pre = file.find_string("tokenizer.ggml.pre").value_or("");
  vocab.tokens = file.get_strings("tokenizer.ggml.tokens");
  if (file.has("tokenizer.ggml.scores")) {
    vocab.scores = file.get_floats("tokenizer.ggml.scores");
  }
  if (file.has("tokenizer.ggml.token_type")) {
    for (const int64_t type : file.get_ints("tokenizer.ggml.token_type")) {
      vocab.token_types.push_back(static_cast<int32_t>(type));
    }
  }
  if (file.has("tokenizer.ggml.merges")) {
    vocab.merges = file.get_strings("tokenizer.ggml.merges");
  }
  vocab.bos_id = id("bos_token_id");
  vocab.eos_id = id("eos_token_id");
  vocab.unk_id = id("unknown_token_id");
  vocab.add_bos = flag("add_bos_token");
  vocab.add_eos = flag("add_eos_token");
  vocab.add_space_prefix = flag("add_space_prefix");

  TextFrontEnd front_end;
  front_end.tokenizer = make_gguf_tokenizer(vocab);
  const auto text_of = [&](int32_t token) {
    return token >= 0 ? std::string(front_end.tokenizer->token(token)) : std::string();
  };
  front_end.config.bos_token = text_of(vocab.bos_id);
  front_end.config.eos_token = text_of(vocab.eos_id);
  front_end.config.chat_template = file.find_string("tokenizer.chat_template").value_or("");
  front_end.config.variables.set("bos_token", front_end.config.bos_token);
  front_end.config.variables.set("eos_token", front_end.config.eos_token);
  load_template(front_end);
  return front_end;
}

std::vector<int32_t> TextFrontEnd::encode_chat(const std::vector<ChatMessage>& messages,
                                               const Json& variables) const {
  if (chat_template == nullptr) {
    std::string text;
    for (const ChatMessage& message : messages) {
      for (const ContentPart& part : message.content) {
        text += part.text;
      }
      text += '\n';
    }
    if (!text.empty()) {
      text.pop_back();
    }
    return encode_text(text);
  }
  return tokenizer->encode(render_chat(messages, variables));
}

MarkedText TextFrontEnd::render_chat(const std::vector<ChatMessage>& messages,
                                     const Json& variables) const {
  if (chat_template == nullptr) {
    throw Error(ErrorCode::kUnsupported, "[chat template] the checkpoint has none");
  }
  ChatInput input;
  for (const ChatMessage& message : messages) {
    input.messages.push_back(message_json(message, knows_developer));
  }
  input.add_generation_prompt = true;
  input.variables = variables;
  input.tokens = config.variables;
  return chat_template->render(input);
}

std::vector<int32_t> TextFrontEnd::encode_text(std::string_view text) const {
  EncodeOptions options;
  options.added_tokens = AddedTokens::kSpecialsAsText;
  options.add_template = true;
  return tokenizer->encode(text, options);
}

std::vector<RequestParameter> language_parameters(const SamplingParams& defaults,
                                                  int64_t default_max_tokens) {
  using Type = RequestParameter::Type;
  return {
      {.name = "max_tokens",
       .fallback = default_max_tokens,
       .min = 1,
       .unit = "tokens",
       .help = "most tokens to generate",
       .aliases = {"max_completion_tokens", "max_output_tokens", "max_new_tokens"}},
      {.name = "temperature",
       .type = Type::kFloat,
       .fallback = static_cast<double>(defaults.temperature),
       .min = 0.0,
       .max = 100.0,
       .help = "spread of sampling; 0 takes the likeliest token"},
      {.name = "top_k",
       .fallback = defaults.top_k,
       .min = -1,
       .help = "sample from the k likeliest tokens; 0 or -1: all"},
      {.name = "top_p",
       .type = Type::kFloat,
       .fallback = static_cast<double>(defaults.top_p),
       .min = 0.0,
       .max = 1.0,
       .help = "sample from the likeliest tokens that make up this probability"},
      {.name = "min_p",
       .type = Type::kFloat,
       .fallback = static_cast<double>(defaults.min_p),
       .min = 0.0,
       .max = 1.0,
       .help = "leave out tokens below this share of the likeliest one's probability"},
      {.name = "repetition_penalty",
       .type = Type::kFloat,
       .fallback = static_cast<double>(defaults.repetition_penalty),
       .min = 0.01,
       .max = 10.0,
       .help = "above 1: tokens seen before become less likely"},
      {.name = "presence_penalty",
       .type = Type::kFloat,
       .fallback = 0.0,
       .min = -2.0,
       .max = 2.0,
       .help = "subtracted from the logit of every generated token"},
      {.name = "frequency_penalty",
       .type = Type::kFloat,
       .fallback = 0.0,
       .min = -2.0,
       .max = 2.0,
       .help = "the same, times how often the token was generated"},
      {.name = "logit_bias",
       .type = Type::kObject,
       .help = "token id to a number added to its logit"},
      {.name = "seed",
       .type = Type::kInt,
       .min = 0.0,
       .help = "same seed, same request: same answer"},
      {.name = "logprobs",
       .type = Type::kInt,
       .min = 0.0,
       .max = kMaxTopLogprobs,
       .help = "tell each token's log-probability, and those of so many likeliest ones"},
      {.name = "response_format",
       .type = Type::kObject,
       .help = "the answer's form: {\"type\": \"json_object\"}, or json_schema with a schema"},
      {.name = "stop", .type = Type::kAny, .help = "one string or up to 16 that end the text"},
      {.name = "ignore_eos",
       .type = Type::kBool,
       .fallback = false,
       .help = "go on until max_tokens"},
      {.name = "enable_thinking", .type = Type::kBool, .help = "given to the chat template"},
      {.name = "chat_template_kwargs",
       .type = Type::kObject,
       .help = "further variables for the chat template"},
  };
}

SamplingParams sampling_params(const Json& parameters) {
  SamplingParams out;
  const auto number = [&](const char* name, float fallback) {
    const Json* value = parameters.find(name);
    return value != nullptr ? static_cast<float>(value->get_double()) : fallback;
  };
  out.temperature = number("temperature", out.temperature);
  out.top_p = number("top_p", out.top_p);
  out.min_p = number("min_p", out.min_p);
  out.top_k = std::max(0, static_cast<int32_t>(number("top_k", 0.0F)));
  out.repetition_penalty = number("repetition_penalty", out.repetition_penalty);
  out.presence_penalty = number("presence_penalty", 0.0F);
  out.frequency_penalty = number("frequency_penalty", 0.0F);
  const Json* ignore_eos = parameters.find("ignore_eos");
  out.ignore_eos = ignore_eos != nullptr && ignore_eos->get_bool();
  if (const Json* bias = parameters.find("logit_bias")) {
    for (const auto& [token, value] : bias->get_object()) {
      try {
        out.logit_bias.emplace_back(std::stoi(token), static_cast<float>(value.get_double()));
      } catch (const std::logic_error&) {
        throw Error(ErrorCode::kInvalidArgument,
                    str_cat("[request] \"logit_bias\": key \"", token, "\" is not a token id"));
      }
    }
  }
  return out;
}

std::vector<std::string> stop_strings(const Json& parameters) {
  constexpr size_t kMostStops = 16;
  std::vector<std::string> stops;
  const Json* stop = parameters.find("stop");
  if (stop == nullptr) {
    return stops;
  }
  if (stop->is_string()) {
    stops.push_back(stop->get_string());
  } else if (stop->is_array() && stop->size() <= kMostStops) {
    for (const Json& one : stop->get_array()) {
      if (!one.is_string()) {
        throw Error(ErrorCode::kInvalidArgument,
                    str_cat("[request] \"stop\": found ", one.type_name(), ", expected strings"));
      }
      stops.push_back(one.get_string());
    }
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[request] \"stop\": found ",
                        stop->type_name(),
                        ", expected a string or a list of at most ",
                        kMostStops));
  }
  return stops;
}

uint64_t request_seed(const Json& parameters, std::string_view request_id) {
  if (const Json* seed = parameters.find("seed")) {
    return seed->get_uint();
  }
  uint64_t hash = 14695981039346656037ULL;
  for (const char letter : request_id) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  return hash >> 1;  // a positive JSON integer
}

TextOutputStream::TextOutputStream(std::shared_ptr<const Tokenizer> tokenizer,
                                   Config config,
                                   std::span<const int32_t> prompt)
    : detokenizer_(std::move(tokenizer), config.skip_special_tokens),
      stops_(config.stop_strings),
      config_(std::move(config)) {
  detokenizer_.follow(prompt);
}

// What the logprobs edge brought for the token that comes next.
void TextOutputStream::keep_logprobs(const TensorList& tensors) {
  const std::vector<int64_t> ids = tensors.at(0).to_ints();
  const std::vector<float> values = tensors.at(1).to_floats();
  TokenLogprob& kept = logprobs_.emplace_back();
  for (size_t index = 0; index < ids.size(); ++index) {
    const auto id = static_cast<int32_t>(ids[index]);
    TokenLogprob::Candidate candidate{detokenizer_.bytes_of(id),
                                      static_cast<double>(values[index])};
    if (index == 0) {
      kept.is_shown = !detokenizer_.skips(id);
      kept.token = std::move(candidate);
    } else {
      kept.top.push_back(std::move(candidate));
    }
  }
}

std::vector<OutputChunk> TextOutputStream::write(Modality,
                                                 std::string_view edge,
                                                 const TensorList& tensors) {
  std::vector<OutputChunk> chunks;
  if (edge == kLogprobsEdge) {
    keep_logprobs(tensors);
    return chunks;
  }
  for (const Tensor& tensor : tensors) {
    for (const int64_t value : tensor.to_ints()) {
      if (is_finished()) {
        return chunks;
      }
      const auto id = static_cast<int32_t>(value);
      ++num_tokens_;
      OutputChunk chunk;
      chunk.num_tokens = 1;
      if (std::ranges::find(config_.stop_token_ids, id) != config_.stop_token_ids.end()) {
        chunk.data = stops_.push(detokenizer_.finish()) + stops_.finish();
        finish_reason_ = "stop";
      } else {
        chunk.data = stops_.push(detokenizer_.push(id));
        chunk.logprobs = std::move(logprobs_);
        if (stops_.stopped()) {
          finish_reason_ = "stop";
        } else if (config_.max_tokens > 0 && num_tokens_ >= config_.max_tokens) {
          chunk.data += stops_.push(detokenizer_.finish());
          chunk.data += stops_.finish();
          finish_reason_ = stops_.stopped() ? "stop" : "length";
        }
      }
      logprobs_.clear();
      chunk.finish_reason = finish_reason_;
      chunks.push_back(std::move(chunk));
    }
  }
  return chunks;
}

std::vector<OutputChunk> TextOutputStream::finish() {
  if (is_finished()) {
    return {};
  }
  finish_reason_ = "stop";
  OutputChunk chunk;
  chunk.data = stops_.push(detokenizer_.finish()) + stops_.finish();
  chunk.finish_reason = finish_reason_;
  return {std::move(chunk)};
}

}  // namespace mstar

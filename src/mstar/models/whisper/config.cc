#include "mstar/models/whisper/config.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"

namespace mstar::whisper {

namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int64_t kMaxSize = int64_t{1} << 24;  // of anything in a config

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[", where, "] ", what));
}

int64_t get_size(JsonReader& reader, std::string_view key) {
  const int64_t value = reader.get_int(key);
  if (value < 1 || value > kMaxSize) {
    fail(reader.where(), str_cat("\"", key, "\": found ", value, ", expected 1 to ", kMaxSize));
  }
  return value;
}

// The checkpoint's ids: one, a list, or none.
class TokenReader {
 public:
  TokenReader(std::string where, int64_t vocab_size)
      : where_(std::move(where)), vocab_size_(vocab_size) {}

  int32_t id(const Json& value, std::string_view key) const {
    const int64_t number = value.get_int();
    if (number < 0 || number >= vocab_size_) {
      fail(where_, str_cat("\"", key, "\": token ", number, ", expected 0 to ", vocab_size_ - 1));
    }
    return static_cast<int32_t>(number);
  }

  std::vector<int32_t> list(const Json* value, std::string_view key) const {
    std::vector<int32_t> ids;
    if (value == nullptr || value->is_null()) {
      return ids;
    }
    if (!value->is_array()) {
      ids.push_back(id(*value, key));
      return ids;
    }
    for (const Json& one : value->get_array()) {
      ids.push_back(id(one, key));
    }
    return ids;
  }

  std::map<std::string, int32_t> table(const Json* value, std::string_view key) const {
    std::map<std::string, int32_t> out;
    if (value == nullptr || value->is_null()) {
      return out;
    }
    for (const auto& [name, token] : value->get_object()) {
      std::string_view word = name;  // "<|en|>"
      if (word.starts_with("<|") && word.ends_with("|>") && word.size() >= 4) {
        word = word.substr(2, word.size() - 4);
      }
      out[std::string(word)] = id(token, key);
    }
    return out;
  }

 private:
  std::string where_;
  int64_t vocab_size_;
};

}  // namespace

WhisperConfig WhisperConfig::from_hugging_face(const Json& json, const std::string& where) {
  JsonReader reader(json, where);
  WhisperConfig config;
  config.d_model = get_size(reader, "d_model");
  config.encoder_layers = get_size(reader, "encoder_layers");
  config.encoder_attention_heads = get_size(reader, "encoder_attention_heads");
  config.encoder_ffn_dim = get_size(reader, "encoder_ffn_dim");
  config.decoder_layers = get_size(reader, "decoder_layers");
  config.decoder_attention_heads = get_size(reader, "decoder_attention_heads");
  config.decoder_ffn_dim = get_size(reader, "decoder_ffn_dim");
  config.num_mel_bins = get_size(reader, "num_mel_bins");
  config.max_source_positions = get_size(reader, "max_source_positions");
  config.max_target_positions = get_size(reader, "max_target_positions");
  config.vocab_size = get_size(reader, "vocab_size");
  config.activation_function = parse_activation(reader.get_string("activation_function"));
  config.scale_embedding = reader.get_bool("scale_embedding");
  config.tie_word_embeddings = reader.get_bool("tie_word_embeddings", true);
  if (config.d_model % config.encoder_attention_heads != 0 ||
      config.d_model % config.decoder_attention_heads != 0) {
    fail(where,
         str_cat("\"d_model\": found ",
                 config.d_model,
                 ", expected a multiple of ",
                 config.encoder_attention_heads,
                 " and ",
                 config.decoder_attention_heads,
                 " heads"));
  }
  if (config.max_target_positions < 8) {
    fail(where, str_cat("\"max_target_positions\": found ", config.max_target_positions));
  }
  return config;
}

Json WhisperConfig::to_json() const {
  return Json::object({{"d_model", d_model},
                       {"encoder_layers", encoder_layers},
                       {"encoder_attention_heads", encoder_attention_heads},
                       {"encoder_ffn_dim", encoder_ffn_dim},
                       {"decoder_layers", decoder_layers},
                       {"decoder_attention_heads", decoder_attention_heads},
                       {"decoder_ffn_dim", decoder_ffn_dim},
                       {"num_mel_bins", num_mel_bins},
                       {"max_source_positions", max_source_positions},
                       {"max_target_positions", max_target_positions},
                       {"vocab_size", vocab_size},
                       {"tie_word_embeddings", tie_word_embeddings}});
}

GenerationConfig GenerationConfig::read(const std::string& folder,
                                        const Json& config,
                                        int64_t vocab_size) {
  const std::string path = folder + "/generation_config.json";
  Json own = Json::object();
  if (const auto text = read_text_file_if_there(path, kMaxConfigBytes)) {
    own = Json::parse(*text, path);
  }
  const auto find = [&](std::string_view key) {
    const Json* value = own.find(key);
    return value != nullptr && !value->is_null() ? value : config.find(key);
  };
  const TokenReader tokens(path, vocab_size);
  GenerationConfig out;
  const std::vector<int32_t> start =
      tokens.list(find("decoder_start_token_id"), "decoder_start_token_id");
  if (start.size() != 1) {
    fail(path, "\"decoder_start_token_id\" is missing");
  }
  out.decoder_start_token_id = start.front();
  out.eos_token_ids = tokens.list(find("eos_token_id"), "eos_token_id");
  if (out.eos_token_ids.empty()) {
    fail(path, "\"eos_token_id\" is missing");
  }
  out.suppress_tokens = tokens.list(find("suppress_tokens"), "suppress_tokens");
  out.begin_suppress_tokens = tokens.list(find("begin_suppress_tokens"), "begin_suppress_tokens");
  const Json* multilingual = own.find("is_multilingual");
  if (multilingual == nullptr || !(*multilingual == Json(false))) {
    out.lang_to_id = tokens.table(find("lang_to_id"), "lang_to_id");
    out.task_to_id = tokens.table(find("task_to_id"), "task_to_id");
  }
  const std::vector<int32_t> plain =
      tokens.list(find("no_timestamps_token_id"), "no_timestamps_token_id");
  if (!plain.empty()) {
    out.no_timestamps_token_id = plain.front();
  }
  const Json* forced = find("forced_decoder_ids");
  if (forced != nullptr && !forced->is_null()) {
    for (const Json& pair : forced->get_array()) {  // [place, token or null]
      if (pair.size() == 2 && !pair[1].is_null()) {
        out.forced_tokens.push_back(tokens.id(pair[1], "forced_decoder_ids"));
      }
    }
  }
  return out;
}

LogMel::Config read_feature_config(const std::string& folder, const WhisperConfig& config) {
  LogMel::Config out;
  out.num_mel_bins = config.num_mel_bins;
  out.num_frames = config.num_frames();
  const std::string path = folder + "/preprocessor_config.json";
  const auto text = read_text_file_if_there(path, kMaxConfigBytes);
  if (!text) {
    return out;
  }
  const Json json = Json::parse(*text, path);
  JsonReader reader(json, path);
  const auto size = [&](std::string_view key, int64_t fallback) {
    return reader.has(key) ? get_size(reader, key) : fallback;
  };
  const auto expect = [&](std::string_view key, int64_t expected) {
    if (const int64_t found = size(key, expected); found != expected) {
      fail(path, str_cat("\"", key, "\": found ", found, ", the model reads ", expected));
    }
  };
  expect("feature_size", out.num_mel_bins);
  out.sampling_rate = size("sampling_rate", out.sampling_rate);
  out.n_fft = size("n_fft", out.n_fft);
  out.hop_length = size("hop_length", out.hop_length);
  if (out.sampling_rate < 1000 || out.sampling_rate > 192000 || out.n_fft < 2 ||
      out.n_fft > 16384 || out.n_fft / 2 >= out.num_frames * out.hop_length) {
    fail(path, "sampling_rate, n_fft and hop_length do not fit together");
  }
  expect("n_samples", out.num_frames * out.hop_length);
  return out;
}

}  // namespace mstar::whisper

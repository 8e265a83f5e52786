// Reads a tokenizer.json into the parts of a tokenizer.

#include <charconv>
#include <cmath>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/text/tokenizer.h"
#include "mstar/text/tokenizer_parts.h"

namespace mstar {

namespace {

[[noreturn]] void throw_bad(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[tokenizer.json] ", what));
}

std::string text_or_empty(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value == nullptr || value->is_null() ? "" : value->get_string();
}

bool flag_or_false(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && !value->is_null() && value->get_bool();
}

int32_t checked_id(int64_t id, std::string_view token) {
  if (id < 0 || id > kMaxTokenId) {
    throw_bad(str_cat("token \"", token, "\" has id ", id, ", expected 0 to ", kMaxTokenId));
  }
  return static_cast<int32_t>(id);
}

// The "vocab" object of a model; fills parts.tokens as well.
VocabularyEntries read_vocabulary(const Json& model, TokenizerParts& parts) {
  VocabularyEntries entries;
  const auto& members = model.at("vocab").get_object();
  entries.reserve(members.size());
  for (const auto& [text, id] : members) {
    entries.emplace_back(text, checked_id(id.get_int(), text));
    const auto index = static_cast<size_t>(entries.back().second);
    if (index >= parts.tokens.size()) {
      parts.tokens.resize(index + 1);
    }
    parts.tokens[index] = text;
  }
  return entries;
}

// Merges are pairs ["a", "b"], in older files texts "a b".
std::vector<BpeConfig::Merge> read_merges(const Json& model) {
  std::vector<BpeConfig::Merge> merges;
  for (const Json& item : model.at("merges").get_array()) {
    const auto rank = static_cast<uint32_t>(merges.size());
    if (item.is_array()) {
      if (item.size() != 2) {
        throw_bad(str_cat("merge ", rank, " has ", item.size(), " parts, expected two"));
      }
      merges.push_back({item[0].get_string(), item[1].get_string(), rank});
      continue;
    }
    const std::string_view text = item.get_string();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) {
      throw_bad(str_cat("merge ", rank, " is \"", text, "\", expected two parts and a space"));
    }
    merges.push_back({text.substr(0, space), text.substr(space + 1), rank});
  }
  return merges;
}

void read_bpe(const Json& model, bool words_are_bytes, TokenizerParts& parts) {
  BpeConfig config;
  config.vocabulary = read_vocabulary(model, parts);
  config.merges = read_merges(model);
  config.unk_token = text_or_empty(model, "unk_token");
  config.continuing_subword_prefix = text_or_empty(model, "continuing_subword_prefix");
  config.end_of_word_suffix = text_or_empty(model, "end_of_word_suffix");
  config.fuse_unk = flag_or_false(model, "fuse_unk");
  config.byte_fallback = flag_or_false(model, "byte_fallback");
  config.ignore_merges = flag_or_false(model, "ignore_merges");
  config.words_are_bytes = words_are_bytes;
  parts.model = make_bpe(config);
}

// A score as the library reads it: all digits as an integer, divided by a power of ten, each step
// rounded. It differs from the nearest double in the last bit, and such bits decide between ways to
// cut a text that are equally likely.
double library_score(double score) {
  char text[64];
  const auto end =
      std::to_chars(text, text + sizeof(text), std::abs(score), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  const char* at = text;
  for (bool behind_point = false; at != end && *at != 'e'; ++at) {
    if (*at == '.') {
      behind_point = true;
    } else {
      digits = digits * 10 + static_cast<uint64_t>(*at - '0');
      exponent -= behind_point ? 1 : 0;
    }
  }
  int shift = 0;
  if (at != end) {
    at += at[1] == '+' ? 2 : 1;
    std::from_chars(at, end, shift);
  }
  exponent += shift;
  const double value = static_cast<double>(digits);
  const double scaled =
      exponent < 0 ? value / std::pow(10.0, -exponent) : value * std::pow(10.0, exponent);
  return std::signbit(score) ? -scaled : scaled;
}

void read_unigram(const Json& model, TokenizerParts& parts) {
  UnigramConfig config;
  for (const Json& item : model.at("vocab").get_array()) {
    if (item.size() != 2) {
      throw_bad(str_cat(
          "piece ", config.pieces.size(), " has ", item.size(), " parts, expected text and score"));
    }
    config.pieces.emplace_back(item[0].get_string(), library_score(item[1].get_double()));
    parts.tokens.push_back(item[0].get_string());
  }
  if (config.pieces.empty() || static_cast<int64_t>(config.pieces.size()) > kMaxTokenId) {
    throw_bad(str_cat(config.pieces.size(), " pieces, expected 1 to ", kMaxTokenId));
  }
  const Json* unk = model.find("unk_id");
  if (unk != nullptr && !unk->is_null()) {
    config.unk_id = checked_id(unk->get_int(), "unk_id");
  }
  config.byte_fallback = flag_or_false(model, "byte_fallback");
  parts.model = make_unigram(config);
}

void read_word_piece(const Json& model, TokenizerParts& parts) {
  WordPieceConfig config;
  config.vocabulary = read_vocabulary(model, parts);
  config.unk_token = model.at("unk_token").get_string();
  config.continuing_subword_prefix = model.at("continuing_subword_prefix").get_string();
  const int64_t max_chars = model.at("max_input_chars_per_word").get_int();
  if (max_chars < 1 || max_chars > 10'000) {
    throw_bad(str_cat("max_input_chars_per_word is ", max_chars, ", expected 1 to 10000"));
  }
  config.max_input_chars_per_word = static_cast<size_t>(max_chars);
  parts.model = make_word_piece(config);
}

// Files of early versions do not name the type.
std::string model_type(const Json& model) {
  if (const Json* type = model.find("type"); type != nullptr && !type->is_null()) {
    return type->get_string();
  }
  if (model.contains("merges")) return "BPE";
  if (model.at("vocab").is_array()) return "Unigram";
  return model.contains("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

void read_model(const Json& model, const std::string& type, TokenizerParts& parts) {
  if (type == "BPE") {
    const bool bytes = parts.pre_tokenizer != nullptr && parts.pre_tokenizer->ends_in_bytes();
    read_bpe(model, bytes, parts);
  } else if (type == "Unigram") {
    read_unigram(model, parts);
  } else if (type == "WordPiece") {
    read_word_piece(model, parts);
  } else if (type == "WordLevel") {
    parts.model = make_word_level(read_vocabulary(model, parts), text_or_empty(model, "unk_token"));
  } else {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[tokenizer.json model] type \"",
                        type,
                        "\" is not known here, expected BPE, Unigram, WordPiece or WordLevel"));
  }
}

void read_added_tokens(const Json& root, TokenizerParts& parts) {
  const Json* list = root.find("added_tokens");
  if (list == nullptr || list->is_null()) {
    return;
  }
  Vocabulary of_model;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    of_model.add(parts.tokens[id], static_cast<int32_t>(id));
  }
  for (const Json& item : list->get_array()) {
    AddedToken token;
    token.content = item.at("content").get_string();
    if (token.content.empty()) {
      continue;
    }
    const int32_t in_model = of_model.find(token.content);
    token.id = in_model >= 0 ? in_model : checked_id(item.at("id").get_int(), token.content);
    token.special = flag_or_false(item, "special");
    token.normalized =
        item.contains("normalized") ? flag_or_false(item, "normalized") : !token.special;
    token.single_word = flag_or_false(item, "single_word");
    token.lstrip = flag_or_false(item, "lstrip");
    token.rstrip = flag_or_false(item, "rstrip");
    parts.added.push_back(std::move(token));
  }
}

const Json& member_or_null(const Json& root, std::string_view key) {
  static const Json kNull;
  const Json* value = root.find(key);
  return value == nullptr ? kNull : *value;
}

std::unique_ptr<TokenizerParts> read_parts(const Json& root) {
  auto parts = std::make_unique<TokenizerParts>();
  const Json& model = root.at("model");
  const std::string type = model_type(model);
  parts->normalizer = make_normalizer(member_or_null(root, "normalizer"));
  parts->pre_tokenizer = make_pre_tokenizer(member_or_null(root, "pre_tokenizer"), type == "BPE");
  read_model(model, type, *parts);
  read_added_tokens(root, *parts);
  parts->post_processor = read_post_processor(member_or_null(root, "post_processor"));
  parts->decoder = make_token_decoder(member_or_null(root, "decoder"));
  return parts;
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view text) {
  if (text.size() > kMaxFileBytes) {
    throw Error(
        ErrorCode::kTooLarge,
        str_cat("[tokenizer.json] ", text.size(), " bytes, at most ", kMaxFileBytes, " are read"));
  }
  const Json root = Json::parse(text, "tokenizer.json");
  try {
    return std::make_shared<const Tokenizer>(read_parts(root));
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with("[")) {
      throw;
    }
    // A member of the wrong type, which the JSON reader reports without a place.
    throw Error(error.code(), str_cat("[tokenizer.json] ", what));
  }
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& folder) {
  return from_json(read_text_file(str_cat(folder, "/tokenizer.json"), kMaxFileBytes));
}

}  // namespace mstar

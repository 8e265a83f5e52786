#include "mstar/text/gguf_vocab.h"

#include <algorithm>
#include <limits>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/tokenizer_parts.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

constexpr std::string_view kWordMark = "\u2581";

enum TokenType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

[[noreturn]] void throw_bad(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[gguf tokenizer] ", what));
}

void check(const GgufVocab& vocab) {
  const size_t count = vocab.tokens.size();
  if (count == 0 || static_cast<int64_t>(count) > kMaxTokenId) {
    throw_bad(str_cat(count, " tokens, expected 1 to ", kMaxTokenId));
  }
  if (!vocab.token_types.empty() && vocab.token_types.size() != count) {
    throw_bad(str_cat(vocab.token_types.size(), " token types for ", count, " tokens"));
  }
  const bool needs_scores = vocab.model == "llama" || vocab.model == "t5";
  if ((needs_scores || !vocab.scores.empty()) && vocab.scores.size() != count) {
    throw_bad(str_cat(vocab.scores.size(), " scores for ", count, " tokens"));
  }
  for (const int32_t id : {vocab.bos_id, vocab.eos_id, vocab.unk_id, vocab.sep_id, vocab.cls_id}) {
    if (id < -1 || id >= static_cast<int32_t>(count)) {
      throw_bad(str_cat("a token id ", id, " with ", count, " tokens"));
    }
  }
  for (size_t id = 0; id < count; ++id) {
    if (!is_valid_utf8(vocab.tokens[id])) {
      throw_bad(str_cat("token ", id, " is not UTF-8"));
    }
  }
}

int32_t type_of(const GgufVocab& vocab, size_t id) {
  return vocab.token_types.empty() ? static_cast<int32_t>(kNormal) : vocab.token_types[id];
}

// Control tokens, and those the user defined, are found in the text before the model sees it.
void add_tokens(const GgufVocab& vocab, TokenizerParts& parts) {
  parts.tokens = vocab.tokens;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const int32_t type = type_of(vocab, id);
    const bool special = type == kControl || type == kUnknown;
    if ((special || type == kUserDefined) && !vocab.tokens[id].empty()) {
      AddedToken token;
      token.content = vocab.tokens[id];
      token.id = static_cast<int32_t>(id);
      token.special = special;
      parts.added.push_back(std::move(token));
    }
  }
}

VocabularyEntries entries_of(const GgufVocab& vocab) {
  VocabularyEntries entries;
  entries.reserve(vocab.tokens.size());
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    entries.emplace_back(vocab.tokens[id], static_cast<int32_t>(id));
  }
  return entries;
}

void add_template(bool bos, int32_t bos_id, bool eos, int32_t eos_id, TokenizerParts& parts) {
  if (bos && bos_id >= 0) {
    parts.post_processor.prefix.push_back(bos_id);
  }
  if (eos && eos_id >= 0) {
    parts.post_processor.suffix.push_back(eos_id);
  }
}

bool flag(int value, bool fallback) {
  return value < 0 ? fallback : value != 0;
}

Json object(std::initializer_list<Json::Member> members) {
  return Json::object(members);
}

// Byte-level BPE with merges.
void make_gpt2(const GgufVocab& vocab, TokenizerParts& parts) {
  const GgufPattern* pattern = find_gguf_pattern(vocab.pre);
  if (pattern == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[gguf tokenizer] word pattern \"", vocab.pre, "\" is not known here"));
  }
  Json steps = Json::array();
  for (const std::string& regex : pattern->patterns) {
    steps.push_back(object(
        {{"type", "Split"}, {"pattern", object({{"Regex", regex}})}, {"behavior", "Isolated"}}));
  }
  steps.push_back(
      object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}));
  parts.pre_tokenizer =
      make_pre_tokenizer(object({{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}), true);
  BpeConfig config;
  config.vocabulary = entries_of(vocab);
  config.ignore_merges = pattern->ignore_merges;
  config.words_are_bytes = true;
  for (const std::string_view merge : vocab.merges) {
    const auto rank = static_cast<uint32_t>(config.merges.size());
    const size_t space = merge.find(' ', 1);  // a part is never empty
    if (space == std::string_view::npos) {
      throw_bad(str_cat("merge \"", merge, "\", expected two parts and a space"));
    }
    config.merges.push_back({merge.substr(0, space), merge.substr(space + 1), rank});
  }
  parts.model = make_bpe(config);
  parts.decoder = make_token_decoder(object({{"type", "ByteLevel"}}));
  add_template(
      flag(vocab.add_bos, false), vocab.bos_id, flag(vocab.add_eos, false), vocab.eos_id, parts);
}

// SentencePiece BPE keeps no merges: any two neighbours join that make a token, the token of the
// highest score first. All such pairs are listed here once. `ranks`: by id, from the scores.
std::vector<BpeConfig::Merge> merges_by_score(const GgufVocab& vocab,
                                              const std::vector<uint32_t>& ranks) {
  Vocabulary lookup;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const int32_t type = type_of(vocab, id);
    if (type == kNormal || type == kUserDefined || type == kUnused) {
      lookup.add(vocab.tokens[id], static_cast<int32_t>(id));
    }
  }
  std::vector<BpeConfig::Merge> merges;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string_view token = vocab.tokens[id];
    if (lookup.find(token) != static_cast<int32_t>(id)) {
      continue;
    }
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (!is_utf8_continuation(token[cut]) && lookup.find(token.substr(0, cut)) >= 0 &&
          lookup.find(token.substr(cut)) >= 0) {
        merges.push_back({token.substr(0, cut), token.substr(cut), ranks[id]});
      }
    }
  }
  return merges;
}

std::vector<uint32_t> ranks_by_score(const std::vector<float>& scores) {
  std::vector<uint32_t> order(scores.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  const auto score = [&](uint32_t id) {
    return scores[id] == scores[id] ? scores[id] : -std::numeric_limits<float>::infinity();
  };
  std::stable_sort(
      order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return score(a) > score(b); });
  std::vector<uint32_t> ranks(scores.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    rank += i > 0 && score(order[i]) != score(order[i - 1]) ? 1 : 0;
    ranks[order[i]] = rank;  // equal scores join from the left
  }
  return ranks;
}

void make_llama(const GgufVocab& vocab, TokenizerParts& parts) {
  const bool prefix = flag(vocab.add_space_prefix, true);
  Json steps = Json::array();
  if (prefix) {
    steps.push_back(object({{"type", "Prepend"}, {"prepend", kWordMark}}));
  }
  steps.push_back(object(
      {{"type", "Replace"}, {"pattern", object({{"String", " "}})}, {"content", kWordMark}}));
  parts.normalizer =
      make_normalizer(object({{"type", "Sequence"}, {"normalizers", std::move(steps)}}));
  BpeConfig config;
  config.vocabulary = entries_of(vocab);
  config.merges = merges_by_score(vocab, ranks_by_score(vocab.scores));
  config.unk_token = vocab.unk_id >= 0 ? vocab.tokens[static_cast<size_t>(vocab.unk_id)] : "";
  config.fuse_unk = true;
  config.byte_fallback = true;
  parts.model = make_bpe(config);
  Json decoders = Json::array();
  decoders.push_back(object(
      {{"type", "Replace"}, {"pattern", object({{"String", kWordMark}})}, {"content", " "}}));
  decoders.push_back(object({{"type", "ByteFallback"}}));
  decoders.push_back(object({{"type", "Fuse"}}));
  if (prefix) {
    decoders.push_back(object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
  }
  parts.decoder =
      make_token_decoder(object({{"type", "Sequence"}, {"decoders", std::move(decoders)}}));
  add_template(
      flag(vocab.add_bos, true), vocab.bos_id, flag(vocab.add_eos, false), vocab.eos_id, parts);
}

// GGUF marks words that begin ("▁word") instead of those that go on ("##ing"); undone here.
void make_bert(const GgufVocab& vocab, TokenizerParts& parts) {
  WordPieceConfig config;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    std::string& text = parts.tokens[id];
    if (text.starts_with(kWordMark)) {
      text.erase(0, kWordMark.size());
    } else if (type_of(vocab, id) == kNormal && !text.starts_with('[')) {
      text.insert(0, "##");
    }
    config.vocabulary.emplace_back(text, static_cast<int32_t>(id));
  }
  const int32_t unk = vocab.unk_id;
  config.unk_token = unk >= 0 ? parts.tokens[static_cast<size_t>(unk)] : "[UNK]";
  parts.model = make_word_piece(config);
  parts.normalizer = make_normalizer(object({{"type", "BertNormalizer"}, {"lowercase", true}}));
  parts.pre_tokenizer = make_pre_tokenizer(object({{"type", "BertPreTokenizer"}}), false);
  parts.decoder =
      make_token_decoder(object({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}));
  const int32_t cls = vocab.cls_id >= 0 ? vocab.cls_id : vocab.bos_id;
  const int32_t sep = vocab.sep_id >= 0 ? vocab.sep_id : vocab.eos_id;
  add_template(flag(vocab.add_bos, true), cls, flag(vocab.add_eos, true), sep, parts);
}

void make_t5(const GgufVocab& vocab, TokenizerParts& parts) {
  UnigramConfig config;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    config.pieces.emplace_back(vocab.tokens[id], static_cast<double>(vocab.scores[id]));
  }
  config.unk_id = vocab.unk_id;
  config.byte_fallback =
      std::find(vocab.token_types.begin(), vocab.token_types.end(), static_cast<int32_t>(kByte)) !=
      vocab.token_types.end();
  parts.model = make_unigram(config);
  if (!vocab.precompiled_charsmap.empty()) {
    parts.normalizer = make_precompiled_normalizer(vocab.precompiled_charsmap);
  }
  Json steps = Json::array();
  if (vocab.remove_extra_whitespaces) {
    steps.push_back(object({{"type", "WhitespaceSplit"}}));
  }
  steps.push_back(
      object({{"type", "Metaspace"},
              {"replacement", kWordMark},
              {"prepend_scheme", flag(vocab.add_space_prefix, true) ? "always" : "never"}}));
  parts.pre_tokenizer = make_pre_tokenizer(
      object({{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}), false);
  parts.decoder = make_token_decoder(object({{"type", "Metaspace"}, {"replacement", kWordMark}}));
  add_template(
      flag(vocab.add_bos, false), vocab.bos_id, flag(vocab.add_eos, true), vocab.eos_id, parts);
}

}  // namespace

std::shared_ptr<const Tokenizer> make_gguf_tokenizer(const GgufVocab& vocab) {
  check(vocab);
  auto parts = std::make_unique<TokenizerParts>();
  add_tokens(vocab, *parts);
  if (vocab.model == "gpt2") {
    make_gpt2(vocab, *parts);
  } else if (vocab.model == "llama") {
    make_llama(vocab, *parts);
  } else if (vocab.model == "bert") {
    make_bert(vocab, *parts);
  } else if (vocab.model == "t5") {
    make_t5(vocab, *parts);
  } else {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[gguf tokenizer] model \"",
                        vocab.model,
                        "\" is not known here, expected gpt2, llama, bert or t5"));
  }
  return std::make_shared<const Tokenizer>(std::move(parts));
}

}  // namespace mstar

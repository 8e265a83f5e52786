#include "mstar/text/constrain/token_trie.h"

#include <algorithm>
#include <array>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/constrain/json_string.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

using Entries = std::vector<std::pair<std::string, int32_t>>;

void set_bit(TokenMask& mask, int32_t token) {
  mask[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
}

// The number of characters of a token that is whole text inside a string, else 0.
uint32_t text_characters(std::string_view bytes) {
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x20 || byte == '"' || byte == '\\') {
      return 0;
    }
  }
  return is_valid_utf8(bytes) ? static_cast<uint32_t>(count_code_points(bytes)) : 0;
}

Entries entries_of(const std::vector<std::string>& bytes, bool without_text) {
  Entries entries;
  for (size_t id = 0; id < bytes.size(); ++id) {
    const uint32_t characters = without_text ? text_characters(bytes[id]) : 0;
    if (!bytes[id].empty() && (characters == 0 || characters > WrittenTokens::kMaxCharacters)) {
      entries.emplace_back(bytes[id], static_cast<int32_t>(id));
    }
  }
  return entries;
}

}  // namespace

TokenTrie::TokenTrie(std::vector<std::pair<std::string, int32_t>> tokens) {
  std::ranges::sort(tokens);
  std::vector<uint32_t> open;  // nodes from the root to the token before
  std::string_view before;
  for (const auto& [bytes, id] : tokens) {
    size_t shared = 0;
    while (shared < std::min(before.size(), bytes.size()) && before[shared] == bytes[shared]) {
      ++shared;
    }
    while (open.size() > shared) {
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
      open.pop_back();
    }
    for (size_t depth = shared; depth < bytes.size(); ++depth) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(bytes[depth]),
                        .depth = static_cast<uint16_t>(depth + 1),
                        .end = 0,
                        .first_token = static_cast<uint32_t>(tokens_.size()),
                        .num_tokens = 0});
    }
    ++nodes_[open.back()].num_tokens;
    tokens_.push_back(id);
    max_depth_ = std::max(max_depth_, static_cast<uint32_t>(bytes.size()));
    before = bytes;
  }
  for (const uint32_t node : open) {
    nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  }
}

WrittenTokens::WrittenTokens(const Tokenizer& tokenizer,
                             int64_t vocab_size,
                             const std::vector<int32_t>& stop_tokens)
    : num_words_(static_cast<size_t>((vocab_size + 31) / 32)),
      stops_(num_words_),
      not_first_(num_words_),
      bytes_(read(tokenizer, vocab_size, stop_tokens)),
      all_(entries_of(bytes_, false)),
      not_text_(entries_of(bytes_, true)) {
  if (std::ranges::all_of(stops_, [](uint32_t word) { return word == 0; })) {
    throw Error(ErrorCode::kUnsupported,
                "[response_format] this model has no token that ends an answer; answers cannot be "
                "constrained");
  }
  check_bytes();
  uint32_t most = 0;
  std::vector<std::pair<uint32_t, int32_t>> texts;
  for (size_t id = 0; id < bytes_.size(); ++id) {
    const uint32_t characters = text_characters(bytes_[id]);
    if (characters > 0 && characters <= kMaxCharacters) {
      texts.emplace_back(characters, static_cast<int32_t>(id));
      most = std::max(most, characters);
    }
  }
  text_.assign(most + 1, TokenMask(num_words_));
  for (const auto& [characters, id] : texts) {
    for (uint32_t length = characters; length <= most; ++length) {
      set_bit(text_[length], id);
    }
  }
}

// Bytes by token; none for tokens that are no part of an answer. Fills stops_ and not_first_.
std::vector<std::string> WrittenTokens::read(const Tokenizer& tokenizer,
                                             int64_t vocab_size,
                                             const std::vector<int32_t>& stop_tokens) {
  if (!tokenizer.can_stream()) {
    throw Error(
        ErrorCode::kUnsupported,
        "[response_format] tokens of this model's tokenizer do not stand for bytes of their "
        "own; answers cannot be constrained");
  }
  for (const int32_t token : stop_tokens) {
    if (token >= 0 && token < vocab_size) {
      set_bit(stops_, token);
    }
  }
  const size_t size = std::min(tokenizer.vocab_size(), static_cast<size_t>(vocab_size));
  std::vector<std::string> bytes(size);
  std::string first;
  for (size_t index = 0; index < size; ++index) {
    const auto id = static_cast<int32_t>(index);
    if (tokenizer.is_special(id) || is_stop(id) || tokenizer.token(id).empty()) {
      continue;
    }
    tokenizer.append_token_bytes(id, false, bytes[index]);
    if (bytes[index].size() > kMaxTokenBytes) {
      bytes[index].clear();
    }
    first.clear();
    tokenizer.append_token_bytes(id, true, first);
    if (first != bytes[index]) {
      set_bit(not_first_, id);
    }
  }
  return bytes;
}

// From every state of an automaton one byte at least leads on, so one token must: the single
// characters of ASCII, and of the bytes behind a leading one some of each range that it may ask
// for.
void WrittenTokens::check_bytes() {
  std::array<bool, 256> has{};
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (bytes_[id].size() == 1) {
      has[static_cast<unsigned char>(bytes_[id][0])] = true;
    }
  }
  for (int byte = 0x20; byte < 0x7F; ++byte) {
    if (!has[static_cast<size_t>(byte)]) {
      throw Error(
          ErrorCode::kUnsupported,
          str_cat("[response_format] this model's vocabulary has no token for the character '",
                  std::string(1, static_cast<char>(byte)),
                  "'; answers cannot be constrained"));
    }
  }
  const auto some = [&](size_t first, size_t last) {
    return std::any_of(has.begin() + static_cast<std::ptrdiff_t>(first),
                       has.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                       [](bool one) { return one; });
  };
  const auto all = [&](size_t first, size_t last) {
    return std::all_of(has.begin() + static_cast<std::ptrdiff_t>(first),
                       has.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                       [](bool one) { return one; });
  };
  has_all_bytes_ = all(0x80, 0xBF) && all(0xC2, 0xF4);
  if (some(0x80, 0x8F) && some(0x90, 0x9F) && some(0xA0, 0xBF)) {
    return;
  }
  // No way to finish a character that a token leaves open: such tokens are not used.
  for (std::string& bytes : bytes_) {
    if (!is_valid_utf8(bytes)) {
      bytes.clear();
    }
  }
  all_ = TokenTrie(entries_of(bytes_, false));
  not_text_ = TokenTrie(entries_of(bytes_, true));
}

bool WrittenTokens::is_stop(int32_t token) const {
  return token >= 0 && static_cast<size_t>(token) / 32 < stops_.size() &&
         (stops_[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) != 0;
}

}  // namespace mstar

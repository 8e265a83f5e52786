#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mstar/text/tokenizer.h"

namespace mstar {

// A set of tokens, one bit each: token t is bit t % 32 of word t / 32.
using TokenMask = std::vector<uint32_t>;

// The bytes of tokens as a prefix tree, its nodes in the order of a walk: a walk that finds no way
// into a node goes on behind everything below it.
class TokenTrie {
 public:
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;        // bytes from the root, this one included
    uint32_t end = 0;          // the node behind all that lies below
    uint32_t first_token = 0;  // of `tokens`; those that end here
    uint32_t num_tokens = 0;
  };

  // `tokens`: bytes and id; none is empty.
  explicit TokenTrie(std::vector<std::pair<std::string, int32_t>> tokens);

  const std::vector<Node>& nodes() const { return nodes_; }

  std::span<const int32_t> tokens_at(const Node& node) const {
    return {tokens_.data() + node.first_token, node.num_tokens};
  }

  uint32_t max_depth() const { return max_depth_; }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  uint32_t max_depth_ = 0;
};

// What a vocabulary can write: the bytes of its tokens, in tries, and which of them are nothing but
// text inside a string. Immutable, thread-safe.
class WrittenTokens {
 public:
  // Tokens that are longer are not followed: none is text that an answer needs.
  static constexpr size_t kMaxTokenBytes = 256;
  static constexpr uint32_t kMaxCharacters = 64;  // of tokens that text_of_length() tells apart

  // `vocab_size`: of the model, whose logits may have more or fewer tokens than the tokenizer.
  // `stop_tokens` end an answer; they and special tokens are never part of one. Throws
  // Error(kUnsupported) when the vocabulary cannot write every JSON document: a tokenizer of whole
  // words, or a model without a token that ends its answers.
  WrittenTokens(const Tokenizer& tokenizer,
                int64_t vocab_size,
                const std::vector<int32_t>& stop_tokens);

  size_t num_words() const { return num_words_; }  // of a mask

  const TokenTrie& all() const { return all_; }

  // What is not text of at most kMaxCharacters whole characters without quotes, backslashes and
  // control characters.
  const TokenTrie& not_text() const { return not_text_; }

  // Text tokens of at most so many characters.
  const TokenMask& text_of_length(uint32_t num_characters) const {
    return text_[std::min<size_t>(num_characters, text_.size() - 1)];
  }

  const TokenMask& stops() const { return stops_; }

  // Tokens that are written otherwise when they come first: SentencePiece loses a space there.
  const TokenMask& not_first() const { return not_first_; }

  // Bytes of a token as it stands inside an answer; empty for those that cannot.
  std::string_view bytes(int32_t token) const {
    return token >= 0 && static_cast<size_t>(token) < bytes_.size()
               ? std::string_view(bytes_[static_cast<size_t>(token)])
               : std::string_view();
  }

  bool is_stop(int32_t token) const;

  // Whether each byte that UTF-8 uses is a token of its own.
  bool has_all_bytes() const { return has_all_bytes_; }

 private:
  std::vector<std::string> read(const Tokenizer& tokenizer,
                                int64_t vocab_size,
                                const std::vector<int32_t>& stop_tokens);
  void check_bytes();

  size_t num_words_;
  TokenMask stops_;
  TokenMask not_first_;
  std::vector<std::string> bytes_;
  std::vector<TokenMask> text_;
  TokenTrie all_;
  TokenTrie not_text_;
  bool has_all_bytes_ = true;
};

}  // namespace mstar

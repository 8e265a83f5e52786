#pragma once

// Text to token ids and back, as the Hugging Face tokenizers library does it for the same
// tokenizer.json. Owns the vocabulary and the pipeline; immutable, thread-safe.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/text/added_tokens.h"
#include "mstar/text/text_range.h"

namespace mstar {

struct TokenizerParts;

// What happens to added tokens that stand in the text.
enum class AddedTokens : uint8_t {
  kRecognised,      // each becomes its id
  kSpecialsAsText,  // those marked special are plain text: the library's rule for foreign text
  kAllAsText,       // all are plain text
};

struct EncodeOptions {
  AddedTokens added_tokens = AddedTokens::kRecognised;
  bool add_template = false;  // the tokenizer's own begin and end tokens around the ids
  // Ids of special tokens never come out, not even where the model itself would write one (the
  // unigram model does). Set for text from outside.
  bool no_special_ids = false;
};

class Tokenizer {
 public:
  // Bytes of a tokenizer.json that are read, and texts that are encoded; more is Error(kTooLarge).
  static constexpr size_t kMaxFileBytes = size_t{256} << 20;
  static constexpr size_t kMaxTextBytes = size_t{64} << 20;

  // Reads the text of a tokenizer.json. Throws Error(kInvalidArgument | kUnsupported | kTooLarge)
  // saying what in the file is wrong.
  static std::shared_ptr<const Tokenizer> from_json(std::string_view text);

  // Reads tokenizer.json in `folder`. Throws Error(kNotFound) when there is none.
  static std::shared_ptr<const Tokenizer> load(const std::string& folder);

  // From parts made elsewhere (gguf_vocab.cc).
  explicit Tokenizer(std::unique_ptr<TokenizerParts> parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of a text. Bytes that are not UTF-8 count as U+FFFD (sanitize_utf8).
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Ids of a rendered conversation: special tokens are recognised where the template wrote every
  // byte of them, and nowhere else; user text never yields the id of a special token.
  std::vector<int32_t> encode(const MarkedText& text) const;

  // Text of ids. Ids outside the vocabulary are left out, bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // One more than the largest id.
  size_t vocab_size() const;

  // Text of a token as the file writes it (byte-level tokens in the byte alphabet); "" when the id
  // is not used.
  std::string_view token(int32_t id) const;

  // Id of the token written so, added tokens first.
  std::optional<int32_t> find_token(std::string_view text) const;

  bool is_special(int32_t id) const;
  const std::vector<AddedToken>& added_tokens() const;

  // Tokens that add_template puts before and behind.
  const std::vector<int32_t>& template_prefix() const;
  const std::vector<int32_t>& template_suffix() const;

  // For Detokenizer: whether the bytes of a token can be told one by one, and these bytes.
  bool can_stream() const;
  void append_token_bytes(int32_t id, bool is_first, std::string& out) const;

 private:
  struct Scratch;
  struct Job;
  class Lease;

  std::string_view checked(std::string_view text, std::string& mended) const;
  void encode_part(std::string_view text, bool at_start, const Job& job) const;
  void encode_words(std::string_view text, bool at_start, const Job& job) const;

  std::unique_ptr<TokenizerParts> parts_;
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace mstar

#pragma once

// The pre-tokenizer step of tokenizer.json: cuts a stretch of normalised text in words that the
// model then encodes one by one.

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/text/regex.h"

namespace mstar {

// A word: never empty, valid UTF-8.
struct Word {
  std::string_view text;
  bool at_start = false;  // begins where the whole input begins
};

// Words under way. Views point into the caller's text or into `storage`. One thread.
struct WordList {
  std::vector<Word> words;
  std::vector<Word> next;           // where a step puts its result, then swapped
  std::deque<std::string> storage;  // texts that steps made

  std::string_view keep(std::string text) { return storage.emplace_back(std::move(text)); }
};

// Immutable, may be shared by threads; list and matcher belong to the calling thread.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  virtual void apply(WordList& list, Regex::Matcher& matcher) const = 0;

  // True when the words that come out are raw bytes of a byte-level vocabulary: the last step
  // writes the byte alphabet, which is left undone because the model looks bytes up directly.
  virtual bool ends_in_bytes() const { return false; }
};

// Builds the pre-tokenizer a tokenizer.json describes. Null JSON gives a null pointer: one word.
// `leave_bytes`: the model looks bytes up, so a last ByteLevel step need not write its alphabet.
// Throws Error(kInvalidArgument) on wrong members, Error(kUnsupported) on an unknown type.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json, bool leave_bytes);

}  // namespace mstar

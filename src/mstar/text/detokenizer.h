#pragma once

// Turns the ids of one answer into text while they arrive. Text that is certain comes out at once,
// a character is never cut. An answer's text is what it adds to the text of its prompt, as vLLM and
// Hugging Face's streamers have it: a word that follows another one keeps the space before it. One
// thread; one per sequence.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mstar/text/tokenizer.h"
#include "mstar/text/utf8.h"

namespace mstar {

class Detokenizer {
 public:
  // `skip_special`: special tokens give no text.
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);

  // Says what the ids to be pushed go on from; before the first of them. No text comes out for it.
  void follow(std::span<const int32_t> prompt);

  // The text that this id makes certain, often "" in the middle of a character.
  std::string push(int32_t id);

  // The text that the end of the sequence releases: an unfinished character becomes U+FFFD.
  std::string finish();

  // What the id adds to the text when it is the next one pushed: may be a part of a character.
  // Special tokens as they are written.
  std::string bytes_of(int32_t id) const;

  bool skips(int32_t id) const;

 private:
  std::string push_whole();

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  bool is_first_ = true;
  Utf8Stream stream_;
  std::string bytes_;
  // Only for decoders whose tokens depend on each other: the prompt's last ids and all of the
  // answer's, and how much of their text is out.
  std::vector<int32_t> ids_;
  std::string released_;
};

// The text that an answer to this prompt goes on from (see Detokenizer::follow): without special
// tokens, and without a character that the prompt's end cuts, for the answer may begin with its
// rest.
std::string prompt_text(const std::shared_ptr<const Tokenizer>& tokenizer,
                        std::span<const int32_t> prompt);

}  // namespace mstar

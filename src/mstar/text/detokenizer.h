#pragma once

// Turns the ids of one answer into text while they arrive. Text that is certain comes out at once,
// a character is never cut. One thread; one per sequence.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mstar/text/tokenizer.h"
#include "mstar/text/utf8.h"

namespace mstar {

class Detokenizer {
 public:
  // `skip_special`: special tokens give no text.
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);

  // The text that this id makes certain, often "" in the middle of a character.
  std::string push(int32_t id);

  // The text that the end of the sequence releases: an unfinished character becomes U+FFFD.
  std::string finish();

 private:
  std::string push_whole();

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  bool is_first_ = true;
  Utf8Stream stream_;
  std::string bytes_;
  // Only for decoders whose tokens depend on each other: all ids, and how much text is out.
  std::vector<int32_t> ids_;
  std::string released_;
};

}  // namespace mstar

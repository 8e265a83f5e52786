#pragma once

// Tokens of a tokenizer that stand outside its model: control tokens and words added later. They
// are found in the text before the model sees it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/text/byte_trie.h"
#include "mstar/text/text_range.h"

namespace mstar {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // control token: dropped by skip_special, never found in user text
  bool normalized = false;   // found in normalised text instead of the text as given
  bool single_word = false;  // only between characters that are no word characters
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // swallows white space behind it
};

// A piece of text between added tokens, or an added token.
struct TextPart {
  TextRange range;
  int32_t id = -1;  // of the added token; -1: text
};

// Finds one set of tokens in texts. Immutable, may be shared by threads.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Which tokens count. With `user`, special tokens that touch a range do not, shorter ones that
  // end before it do. With `specials_are_text` a special token found is passed over as text.
  struct Rules {
    bool specials_are_text = false;
    const std::vector<TextRange>* user = nullptr;  // null: no user text
  };

  // Cuts `text` at the leftmost longest tokens and appends the parts in order.
  void split(std::string_view text, const Rules& rules, std::vector<TextPart>& parts) const;

 private:
  const AddedToken* find_at(std::string_view text, size_t position, const Rules& rules) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;
};

// True when `range` shares a byte with one of `ranges`.
bool overlaps(TextRange range, const std::vector<TextRange>& ranges);

}  // namespace mstar

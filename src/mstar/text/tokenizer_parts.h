#pragma once

// What a tokenizer is made of, before it works. Private to text/.

#include <memory>
#include <string>
#include <vector>

#include "mstar/text/added_tokens.h"
#include "mstar/text/normalizer.h"
#include "mstar/text/post_processor.h"
#include "mstar/text/pre_tokenizer.h"
#include "mstar/text/token_decoder.h"
#include "mstar/text/token_model.h"
#include "mstar/text/vocabulary.h"

namespace mstar {

// Largest id a vocabulary may use; tables are indexed by id.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;

struct TokenizerParts {
  std::vector<std::string> tokens;              // text by id; "" where the id is not used
  std::vector<AddedToken> added;                // in the order of the file
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<TokenModel> model;
  PostProcessor post_processor;
  std::unique_ptr<TokenDecoder> decoder;

  // Made by the Tokenizer from the above.
  Vocabulary lookup;                   // ids by text
  std::vector<bool> is_special;        // by id
  AddedTokenFinder raw_finder;         // tokens found in the text as given
  AddedTokenFinder normalized_finder;  // tokens found in normalised text
  AddedTokenFinder marked_finder;      // as raw_finder, and all special tokens
};

}  // namespace mstar

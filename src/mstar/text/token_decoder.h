#pragma once

// The decoder step of tokenizer.json: turns the texts of tokens into text for people.

#include <memory>
#include <string>
#include <vector>

#include "mstar/base/json.h"

namespace mstar {

// Immutable, may be shared by threads.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;

  // Rewrites the texts of a whole sequence; joined without anything between they are the result.
  virtual void apply(std::vector<std::string>& tokens) const = 0;

  // True when the bytes of a token depend on nothing but the token and whether it is the first.
  virtual bool can_stream() const = 0;

  // Rewrites one token's text to its bytes, which may be part of a character. Only when can_stream.
  virtual void stream(std::string& token, bool is_first) const = 0;
};

// Builds the decoder a tokenizer.json describes; null JSON: tokens are joined by spaces.
// Throws Error(kInvalidArgument) on wrong members, Error(kUnsupported) on an unknown type.
std::unique_ptr<TokenDecoder> make_token_decoder(const Json& json);

}  // namespace mstar

#pragma once

// The normalizer step of tokenizer.json: rewrites a stretch of text before it is cut in words.

#include <memory>
#include <string>

#include "mstar/base/json.h"
#include "mstar/text/regex.h"

namespace mstar {

// Immutable, may be shared by threads; the matcher belongs to the calling thread.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // Rewrites `text` (valid UTF-8) in place.
  virtual void apply(std::string& text, Regex::Matcher& matcher) const = 0;
};

// Builds the normalizer a tokenizer.json describes. Null JSON gives a null pointer: no change.
// Throws Error(kInvalidArgument) on wrong or missing members, Error(kUnsupported) on an unknown
// type.
std::unique_ptr<Normalizer> make_normalizer(const Json& json);

// SentencePiece's character map: replaces the longest stretch of a grapheme that the map knows.
// `blob` is the binary form stored in models. Throws Error(kInvalidArgument) when it is damaged.
std::unique_ptr<Normalizer> make_precompiled_normalizer(std::string blob);

}  // namespace mstar

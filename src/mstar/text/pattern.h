#pragma once

// What normalizers and pre-tokenizers search for: a literal text or a regular expression, in the
// JSON form {"String": …} or {"Regex": …}. Immutable.

#include <memory>
#include <string>
#include <string_view>

#include "mstar/base/json.h"
#include "mstar/text/regex.h"

namespace mstar {

class Pattern {
 public:
  // Throws Error(kInvalidArgument) when `json` is neither form or the expression is not valid.
  Pattern(const Json& json, std::string_view where);

  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}

  // The first match at or after `start`; false when there is none.
  bool find(std::string_view text, size_t start, Regex::Matcher& matcher, MatchRange& match) const;

  // Every match replaced by `content`, literally.
  std::string replace_all(std::string_view text,
                          std::string_view content,
                          Regex::Matcher& matcher) const;

 private:
  std::string literal_;
  std::unique_ptr<Regex> regex_;  // null for a literal
};

}  // namespace mstar

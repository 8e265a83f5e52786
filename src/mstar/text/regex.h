#pragma once

// Regular expressions of tokenizer files. They are written for Oniguruma; this class translates
// them and runs them with PCRE2's compiler to machine code.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace mstar {

// The same pattern for PCRE2 (in UTF and Unicode-property mode): nested classes and intersections
// are unfolded, \s \w \d \h get Oniguruma's meaning. Throws Error on what cannot be expressed.
std::string translate_regex(std::string_view pattern);

// Where a match lies, in bytes.
struct MatchRange {
  size_t begin = 0;
  size_t end = 0;
};

// A compiled pattern; immutable, may be shared by threads. Each thread brings its own Matcher.
class Regex {
 public:
  // Working memory of one thread for any number of patterns.
  class Matcher {
   public:
    Matcher();
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
    friend class Regex;
  };

  // Throws Error(kInvalidArgument) naming `where` when the pattern is not valid.
  Regex(std::string_view pattern, std::string_view where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // The first match at or after `start`; false when there is none. `text` must be valid UTF-8.
  // Throws Error(kTooLarge) when a pattern needs more steps or stack than any sane text does.
  bool find(std::string_view text, size_t start, Matcher& matcher, MatchRange& match) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mstar

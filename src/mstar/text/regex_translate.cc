// Oniguruma's syntax to PCRE2's. What differs and occurs in tokenizer files: classes nest and
// intersect ([a[bc]], [a&&[^b]]), \s \w \d \h mean other sets.

#include <vector>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/regex.h"

namespace mstar {

namespace {

constexpr int kMaxClassDepth = 32;

// Contents of a class with Oniguruma's meaning. White_Space is not what PCRE2 calls \s: that
// includes U+180E.
constexpr std::string_view kSpace =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
// Of the numbers that are no digits only those of Latin-1 count as word characters.
constexpr std::string_view kWord =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view kDigit = "\\p{Nd}";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

std::string_view shorthand(char letter) {
  switch (letter) {
    case 's':
    case 'S': return kSpace;
    case 'w':
    case 'W': return kWord;
    case 'd':
    case 'D': return kDigit;
    case 'h':
    case 'H': return kHexDigit;
    default: return {};
  }
}

bool is_upper_letter(char letter) {
  return letter >= 'A' && letter <= 'Z';
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    std::string out;
    while (position_ < pattern_.size()) {
      const char c = pattern_[position_];
      if (c == '\\') {
        out += escape_outside();
      } else if (c == '[') {
        out += char_class(0);
      } else {
        out.push_back(c);
        ++position_;
      }
    }
    return out;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[regex] ", what, " in pattern \"", pattern_, "\""));
  }

  // The escape at position_, whole: "\p{L}", "\x{41}", "\n".
  std::string_view take_escape() {
    const size_t begin = position_;
    if (begin + 1 >= pattern_.size()) {
      fail("a backslash at the end");
    }
    const char letter = pattern_[begin + 1];
    position_ += 2;
    if ((letter == 'p' || letter == 'P' || letter == 'x') && position_ < pattern_.size() &&
        pattern_[position_] == '{') {
      const size_t close = pattern_.find('}', position_);
      if (close == std::string_view::npos) {
        fail("an unclosed brace");
      }
      position_ = close + 1;
    } else if (letter == 'x') {
      for (int digits = 0; digits < 2 && position_ < pattern_.size() && is_hex(pattern_[position_]);
           ++digits) {
        ++position_;
      }
    } else if (letter == 'u') {
      for (int digits = 0; digits < 4 && position_ < pattern_.size() && is_hex(pattern_[position_]);
           ++digits) {
        ++position_;
      }
    }
    return pattern_.substr(begin, position_ - begin);
  }

  static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  }

  // "\u00e9" becomes "\x{00e9}"; everything else stays.
  static std::string common_escape(std::string_view escape) {
    if (escape[1] == 'u') {
      return str_cat("\\x{", escape.substr(2), "}");
    }
    return std::string(escape);
  }

  std::string escape_outside() {
    const std::string_view escape = take_escape();
    const std::string_view set = shorthand(escape[1]);
    if (!set.empty()) {
      return str_cat(is_upper_letter(escape[1]) ? "[^" : "[", set, "]");
    }
    return common_escape(escape);
  }

  // One class from '[' to its ']', as a PCRE2 expression that takes exactly one character.
  std::string char_class(int depth) {
    if (depth > kMaxClassDepth) {
      fail("classes nested too deep");
    }
    ++position_;  // [
    bool negated = false;
    if (position_ < pattern_.size() && pattern_[position_] == '^') {
      negated = true;
      ++position_;
    }
    std::vector<Operand> operands(1);
    bool first = true;
    while (true) {
      if (position_ >= pattern_.size()) {
        fail("an unclosed class");
      }
      if (pattern_[position_] == ']' && !first) {
        ++position_;
        break;
      }
      if (pattern_.substr(position_, 2) == "&&") {
        operands.emplace_back();
        position_ += 2;
      } else {
        class_item(operands.back(), depth);
      }
      first = false;
    }
    return assemble(operands, negated);
  }

  // A union: plain members in one class, and nested classes that cannot be merged into it.
  struct Operand {
    std::string members;
    std::vector<std::string> nested;
  };

  void class_item(Operand& operand, int depth) {
    const char c = pattern_[position_];
    if (c == '\\') {
      const std::string_view escape = take_escape();
      const std::string_view set = shorthand(escape[1]);
      if (set.empty()) {
        operand.members += common_escape(escape);
      } else if (is_upper_letter(escape[1])) {
        operand.nested.push_back(str_cat("[^", set, "]"));
      } else {
        operand.members += set;
      }
      return;
    }
    if (pattern_.substr(position_, 2) == "[:") {
      const size_t close = pattern_.find(":]", position_);
      if (close != std::string_view::npos) {
        operand.members += pattern_.substr(position_, close + 2 - position_);
        position_ = close + 2;
        return;
      }
    }
    if (c == '[') {
      const std::string inner = char_class(depth + 1);
      // A plain inner class melts into its parent.
      if (inner.size() > 2 && inner[0] == '[' && inner[1] != '^') {
        operand.members += inner.substr(1, inner.size() - 2);
      } else {
        operand.nested.push_back(inner);
      }
      return;
    }
    // "[^" first or "]" first in a class would change its meaning when members are joined.
    if (c == '^' || c == ']') {
      operand.members.push_back('\\');
    }
    operand.members.push_back(c);
    ++position_;
  }

  std::string assemble(const std::vector<Operand>& operands, bool negated) {
    if (operands.size() == 1 && operands[0].nested.empty()) {
      if (operands[0].members.empty()) {
        fail("an empty class");
      }
      return str_cat(negated ? "[^" : "[", operands[0].members, "]");
    }
    // Each operand as something that matches one character, all but the last looked ahead.
    std::string all;
    for (size_t i = 0; i < operands.size(); ++i) {
      const std::string one = union_of(operands[i]);
      all += i + 1 < operands.size() ? str_cat("(?=", one, ")") : one;
    }
    return negated ? str_cat("(?:(?!", all, ")(?s:.))") : str_cat("(?:", all, ")");
  }

  std::string union_of(const Operand& operand) {
    std::string out = operand.members.empty() ? "" : str_cat("[", operand.members, "]");
    for (const std::string& nested : operand.nested) {
      out += str_cat(out.empty() ? "" : "|", nested);
    }
    if (out.empty()) {
      fail("an empty class");
    }
    return str_cat("(?:", out, ")");
  }

  std::string_view pattern_;
  size_t position_ = 0;
};

}  // namespace

std::string translate_regex(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace mstar

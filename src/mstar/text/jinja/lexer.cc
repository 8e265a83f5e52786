#include "mstar/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

namespace {

constexpr size_t kMaxSourceBytes = size_t{4} << 20;
constexpr std::string_view kSpaces = " \t\n\r\f\v";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Line ends become "\n"; one at the very end goes away.
std::string normalize_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      i += i + 1 < source.size() && source[i + 1] == '\n' ? 1 : 0;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') {
    out.pop_back();
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_lines(source)) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) {
      const size_t tag = next_tag();
      const char kind = tag < source_.size() ? source_[tag + 1] : '\0';
      add_text(tag, kind);
      if (kind == '\0') {
        break;
      }
      position_ = tag + 2;
      skip_sign();
      if (kind == '#') {
        comment();
      } else if (kind == '%' && raw_begins()) {
        raw();
      } else {
        tag_tokens(kind == '%');
      }
    }
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[chat template] line ", line_, ": ", what));
  }

  void add(TokenType type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  std::string_view rest() const { return std::string_view(source_).substr(position_); }

  // Moves on, counting lines.
  void advance(size_t count) {
    const std::string_view passed = rest().substr(0, count);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    position_ += passed.size();
  }

  size_t next_tag() const {
    for (size_t at = source_.find('{', position_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') {
        return at;
      }
    }
    return source_.size();
  }

  // The text before the tag at `end`, stripped as the tag and the options ask.
  void add_text(size_t end, char kind) {
    std::string text = source_.substr(position_, end - position_);
    strip_before_tag(text, end, kind);
    if (!text.empty()) {
      add(TokenType::kText, std::move(text));
    }
    advance(end - position_);
  }

  void strip_before_tag(std::string& text, size_t tag, char kind) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (kind == '\0') {
      return;
    }
    if (sign == '-') {
      const size_t last = text.find_last_not_of(kSpaces);
      text.resize(last == std::string::npos ? 0 : last + 1);
    } else if (sign != '+' && kind != '{') {
      // Indentation before a block goes away when the block begins its line.
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || line_starting_) &&
          text.find_first_not_of(kSpaces, line) == std::string::npos) {
        text.resize(line);
      }
    }
  }

  void skip_sign() {
    if (position_ < source_.size() && (source_[position_] == '-' || source_[position_] == '+')) {
      ++position_;
    }
  }

  void skip_spaces() {
    const size_t end = source_.find_first_not_of(kSpaces, position_);
    advance((end == std::string::npos ? source_.size() : end) - position_);
  }

  // Behind the end of a tag: "-" takes all white space, a block's plain end one line end.
  void end_tag(bool strip, bool trim_line) {
    const size_t begin = position_;
    if (strip) {
      skip_spaces();
    } else if (trim_line && rest().starts_with('\n')) {
      advance(1);
    }
    line_starting_ = position_ > begin && source_[position_ - 1] == '\n';
  }

  void comment() {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) {
      fail("a comment without end");
    }
    const char sign = end > position_ ? source_[end - 1] : '\0';
    advance(end + 2 - position_);
    end_tag(sign == '-', sign != '+');
  }

  // Whether a block is "raw"; moves behind it if so.
  bool raw_begins() {
    size_t at = source_.find_first_not_of(kSpaces, position_);
    if (at == std::string::npos || source_.compare(at, 3, "raw") != 0) {
      return false;
    }
    at = std::min(source_.find_first_not_of(kSpaces, at + 3), source_.size());
    const bool strip = at < source_.size() && source_[at] == '-';
    at += strip ? 1 : 0;
    if (source_.compare(at, 2, "%}") != 0) {
      return false;
    }
    advance(at + 2 - position_);
    end_tag(strip, false);
    return true;
  }

  void raw() {
    for (size_t at = source_.find("{%", position_); at != std::string::npos;
         at = source_.find("{%", at + 2)) {
      size_t word = at + 2;
      word += word < source_.size() && (source_[word] == '-' || source_[word] == '+') ? 1 : 0;
      word = std::min(source_.find_first_not_of(kSpaces, word), source_.size());
      if (source_.compare(word, 6, "endraw") != 0) {
        continue;
      }
      size_t end = std::min(source_.find_first_not_of(kSpaces, word + 6), source_.size());
      const char sign = end < source_.size() ? source_[end] : '\0';
      end += sign == '-' || sign == '+' ? 1 : 0;
      if (source_.compare(end, 2, "%}") != 0) {
        continue;
      }
      add_text(at, '%');
      advance(end + 2 - position_);
      end_tag(sign == '-', sign != '+');
      return;
    }
    fail("{% raw %} without {% endraw %}");
  }

  void tag_tokens(bool is_block) {
    add(is_block ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    const std::string_view end = is_block ? "%}" : "}}";
    std::string open;  // brackets not closed yet
    while (true) {
      skip_spaces();
      if (position_ >= source_.size()) {
        fail(is_block ? "a block tag without %}" : "an expression without }}");
      }
      const char sign = source_[position_];
      const bool has_sign =
          (sign == '-' || (sign == '+' && is_block)) && rest().substr(1).starts_with(end);
      if (open.empty() && (has_sign || rest().starts_with(end))) {
        add(is_block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
        advance(end.size() + (has_sign ? 1 : 0));
        end_tag(has_sign && sign == '-', is_block && !has_sign);
        return;
      }
      expression_token(open);
    }
  }

  void expression_token(std::string& open) {
    const char c = source_[position_];
    if (is_digit(c)) {
      number();
    } else if (is_name_start(c)) {
      size_t end = position_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) {
        ++end;
      }
      add(TokenType::kName, source_.substr(position_, end - position_));
      advance(end - position_);
    } else if (c == '\'' || c == '"') {
      string(c);
    } else {
      operator_token(open);
    }
  }

  void number() {
    size_t end = position_;
    bool is_float = false;
    const auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) {
        ++end;
      }
    };
    digits();
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      is_float = true;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      exponent +=
          exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-');
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        is_float = true;
        end = exponent;
        digits();
      }
    }
    std::string text = source_.substr(position_, end - position_);
    std::erase(text, '_');
    add(is_float ? TokenType::kFloat : TokenType::kInteger, std::move(text));
    advance(end - position_);
  }

  void string(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size()) {
      fail("a string without end");
    }
    add(TokenType::kString,
        unescape(std::string_view(source_).substr(position_ + 1, end - position_ - 1)));
    advance(end + 1 - position_);
  }

  // Python's escapes; an unknown one stays as it is.
  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out.push_back(text[i]);
        continue;
      }
      const char letter = text[++i];
      static constexpr std::string_view kLetters = "ntr\\'\"abfv\n";
      static constexpr std::string_view kValues = "\n\t\r\\'\"\a\b\f\v";
      const size_t simple = kLetters.find(letter);
      if (simple != std::string_view::npos) {
        out += letter == '\n' ? "" : std::string(1, kValues[simple]);
      } else if (letter == 'x' || letter == 'u' || letter == 'U') {
        append_code(out, text, i, letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
      } else if (letter >= '0' && letter <= '7') {
        uint32_t value = 0;
        size_t digits = 0;
        while (digits < 3 && i + digits < text.size() && text[i + digits] >= '0' &&
               text[i + digits] <= '7') {
          value = value * 8 + static_cast<uint32_t>(text[i + digits++] - '0');
        }
        append_utf8(out, value);
        i += digits - 1;
      } else {
        out.push_back('\\');
        out.push_back(letter);
      }
    }
    return out;
  }

  uint32_t hex_value(std::string_view text, size_t at, size_t count) const {
    uint32_t value = 0;
    const std::string_view digits = at <= text.size() ? text.substr(at, count) : "";
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != count || result.ptr != digits.data() + digits.size()) {
      fail("a string with a broken escape");
    }
    return value;
  }

  // The escape whose letter is at `i`; leaves `i` at its last digit. Surrogate pairs are joined.
  void append_code(std::string& out, std::string_view text, size_t& i, size_t num_digits) const {
    uint32_t value = hex_value(text, i + 1, num_digits);
    i += num_digits;
    if (value >= 0xD800 && value < 0xDC00 && text.substr(i + 1).starts_with("\\u")) {
      const uint32_t low = hex_value(text, i + 3, 4);
      if (low >= 0xDC00 && low < 0xE000) {
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
        i += 6;
      }
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail("a string with an escape that is no character");
    }
    append_utf8(out, value);
  }

  void operator_token(std::string& open) {
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view text : kLong) {
      if (rest().starts_with(text)) {
        add(TokenType::kOperator, std::string(text));
        advance(text.size());
        return;
      }
    }
    const char c = source_[position_];
    if (kShort.find(c) == std::string_view::npos) {
      fail(str_cat("unexpected character '", c, "'"));
    }
    if (c == '(' || c == '[' || c == '{') {
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) {
        fail(str_cat("unexpected '", c, "'"));
      }
      open.pop_back();
    }
    add(TokenType::kOperator, std::string(1, c));
    advance(1);
  }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    throw Error(
        ErrorCode::kTooLarge,
        str_cat(
            "[chat template] ", source.size(), " bytes, at most ", kMaxSourceBytes, " are read"));
  }
  if (!is_valid_utf8(source)) {
    throw Error(ErrorCode::kInvalidArgument, "[chat template] the template is not UTF-8");
  }
  return Lexer(source).run();
}

}  // namespace mstar::jinja

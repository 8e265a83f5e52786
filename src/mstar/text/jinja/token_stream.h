#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/lexer.h"

namespace mstar::jinja {

// The parser's place in the tokens. One thread.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }

  const Token& ahead() const {
    return tokens_[position_ + 1 < tokens_.size() ? position_ + 1 : position_];
  }

  // The current token, after moving past it. The end stays.
  const Token& take() {
    const Token& token = tokens_[position_];
    position_ += position_ + 1 < tokens_.size() ? 1 : 0;
    return token;
  }

  bool is(TokenType type) const { return current().type == type; }

  bool is(TokenType type, std::string_view text) const {
    return current().type == type && current().text == text;
  }

  bool is_operator(std::string_view text) const { return is(TokenType::kOperator, text); }

  bool is_name(std::string_view text) const { return is(TokenType::kName, text); }

  bool skip_operator(std::string_view text) {
    const bool found = is_operator(text);
    if (found) {
      take();
    }
    return found;
  }

  bool skip_name(std::string_view text) {
    const bool found = is_name(text);
    if (found) {
      take();
    }
    return found;
  }

  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) {
      fail(str_cat("expected '", text, "'"));
    }
  }

  std::string expect_name() {
    if (!is(TokenType::kName)) {
      fail("expected a name");
    }
    return take().text;
  }

  void expect(TokenType type, std::string_view what) {
    if (!is(type)) {
      fail(str_cat("expected ", what));
    }
    take();
  }

  // Error(kInvalidArgument) that names the line and the token found.
  [[noreturn]] void fail(const std::string& what) const {
    const Token& token = current();
    const std::string found = token.type == TokenType::kEnd        ? "the end of the template"
                              : token.type == TokenType::kBlockEnd ? "'%}'"
                              : token.type == TokenType::kVariableEnd
                                  ? "'}}'"
                                  : str_cat("'", token.text.substr(0, 40), "'");
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[chat template] line ", token.line, ": found ", found, ", ", what));
  }

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace mstar::jinja

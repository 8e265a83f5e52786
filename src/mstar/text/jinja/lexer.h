#pragma once

// Cuts a template in text and the tokens of its tags, with trim_blocks and lstrip_blocks on as
// transformers sets them.

#include <string>
#include <string_view>
#include <vector>

namespace mstar::jinja {

enum class TokenType {
  kText,           // between tags
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,  // `text` holds the value, escapes resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;
  int line = 1;
};

// Throws Error(kInvalidArgument) with the line of what cannot be read, Error(kTooLarge) for more
// than 4 MiB.
std::vector<Token> tokenize(std::string_view source);

}  // namespace mstar::jinja

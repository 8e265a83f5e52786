#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mstar {

// A stretch of a text, in bytes: [begin, end).
struct TextRange {
  size_t begin = 0;
  size_t end = 0;

  friend bool operator==(const TextRange&, const TextRange&) = default;
};

// A text that knows which of its bytes came from outside: messages, tools, documents, in contrast
// to what the chat template wrote itself. Ranges are in order, apart and not empty.
struct MarkedText {
  std::string text;
  std::vector<TextRange> user;
};

}  // namespace mstar

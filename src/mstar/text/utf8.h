#pragma once

// Reading and mending UTF-8. Everything else in text/ works on valid UTF-8 only; bytes from
// outside pass through sanitize_utf8 or Utf8Stream first. Thread-safe: no state but the stream's.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mstar {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// One code point and the number of bytes it takes.
struct CodePoint {
  uint32_t value = 0;
  uint32_t num_bytes = 1;
};

// Decodes the code point that starts at text[position]; text must be valid UTF-8.
inline CodePoint decode_utf8(std::string_view text, size_t position) {
  const auto byte = [&](size_t offset) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[position + offset]));
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  if (lead < 0xE0) {
    return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  }
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

inline bool is_utf8_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// Start of the code point that ends before text[end]; text must be valid and end > 0.
size_t previous_code_point(std::string_view text, size_t end);

// Appends the UTF-8 form of a code point (not a surrogate, at most 0x10FFFF).
void append_utf8(std::string& out, uint32_t code_point);

// Number of code points of valid UTF-8.
size_t count_code_points(std::string_view text);

// Byte offset of the code point with this index, or text.size() when there are fewer.
size_t code_point_offset(std::string_view text, size_t index);

bool is_ascii(std::string_view text);

// Length of the longest valid prefix, in bytes.
size_t valid_utf8_prefix(std::string_view text);

inline bool is_valid_utf8(std::string_view text) {
  return valid_utf8_prefix(text) == text.size();
}

// The text with each maximal invalid part replaced by one U+FFFD, as the Unicode standard
// recommends (section 3.9) and web browsers do.
std::string sanitize_utf8(std::string_view text);

// Turns bytes that arrive in pieces into whole characters: what is certain comes out at once, an
// unfinished character waits, broken bytes become U+FFFD by the rule of sanitize_utf8. One thread.
class Utf8Stream {
 public:
  // Appends to `out` everything that `bytes` makes certain.
  void push(std::string_view bytes, std::string& out);

  // The end: an unfinished character becomes one U+FFFD.
  void finish(std::string& out);

 private:
  char pending_[4] = {};
  uint32_t num_pending_ = 0;
};

}  // namespace mstar

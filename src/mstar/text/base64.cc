#include "mstar/text/base64.h"

#include <cstdint>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

int value_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::string decode_base64(std::string_view text, std::string_view where) {
  while (!text.empty() && text.back() == '=') {
    text.remove_suffix(1);
  }
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int value = value_of(c);
    if (value < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[", where, "] a character that is not base64 in binary data"));
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      out.push_back(static_cast<char>(bits >> num_bits & 0xFF));
    }
  }
  return out;
}

}  // namespace mstar

#include "mstar/text/byte_alphabet.h"

#include "mstar/text/utf8.h"

namespace mstar {

namespace {

bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Tables {
  std::array<std::string, 256> characters;
  std::array<int16_t, 324> bytes;  // by code point

  Tables() {
    bytes.fill(-1);
    uint32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t code_point = stands_for_itself(byte) ? static_cast<uint32_t>(byte) : next++;
      append_utf8(characters[static_cast<size_t>(byte)], code_point);
      bytes[code_point] = static_cast<int16_t>(byte);
    }
  }
};

const Tables& tables() {
  static const Tables kTables;
  return kTables;
}

}  // namespace

const std::array<std::string, 256>& byte_alphabet() {
  return tables().characters;
}

int byte_of_alphabet(uint32_t code_point) {
  const auto& bytes = tables().bytes;
  return code_point < bytes.size() ? bytes[code_point] : -1;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    out += byte_alphabet()[static_cast<unsigned char>(byte)];
  }
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    const int byte = byte_of_alphabet(point.value);
    if (byte < 0) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(byte));
    i += point.num_bytes;
  }
  return out;
}

}  // namespace mstar

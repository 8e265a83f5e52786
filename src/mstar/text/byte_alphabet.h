#pragma once

// The alphabet of byte-level tokenizers: each byte has a printable character of its own. Bytes that
// print stand for themselves; the other 68 are U+0100 and following, in the order of the bytes.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mstar {

// Character of each byte as UTF-8.
const std::array<std::string, 256>& byte_alphabet();

// Byte of a character of the alphabet, or -1.
int byte_of_alphabet(uint32_t code_point);

// `bytes` written in the alphabet.
std::string to_byte_alphabet(std::string_view bytes);

// The bytes a text in the alphabet stands for; nothing when a character is not in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace mstar

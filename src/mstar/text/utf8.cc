#include "mstar/text/utf8.h"

#include <cstring>

namespace mstar {

namespace {

// What the bytes at the front of a text are.
struct Sequence {
  size_t num_bytes;  // bytes of the character, or of the maximal invalid part
  bool valid;
  bool cut;  // a valid beginning that the end of the text cuts off
};

// Second bytes allowed after a lead byte: the ranges exclude overlong forms and surrogates.
void second_byte_range(unsigned char lead, unsigned char& low, unsigned char& high) {
  low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
}

Sequence first_sequence(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) {
    return {1, true, false};
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return {1, false, false};
  }
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low;
  unsigned char high;
  second_byte_range(lead, low, high);
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) {
      return {i, false, true};
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < low || byte > high) {
      return {i, false, false};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false};
}

// Number of leading ASCII bytes, eight at a time.
size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  while (i + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) {
      break;
    }
    i += 8;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) {
    ++i;
  }
  return i;
}

}  // namespace

size_t previous_code_point(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && is_utf8_continuation(text[start])) {
    --start;
  }
  return start;
}

void append_utf8(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code_point >> 6));
    out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code_point >> 12));
    out.push_back(static_cast<char>(0x80 | (code_point >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | code_point >> 18));
    out.push_back(static_cast<char>(0x80 | (code_point >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code_point >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  }
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) {
    count += is_utf8_continuation(byte) ? 0 : 1;
  }
  return count;
}

size_t code_point_offset(std::string_view text, size_t index) {
  for (size_t offset = 0; offset < text.size(); ++offset) {
    if (!is_utf8_continuation(text[offset]) && index-- == 0) {
      return offset;
    }
  }
  return text.size();
}

bool is_ascii(std::string_view text) {
  return ascii_prefix(text) == text.size();
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    position += ascii_prefix(text.substr(position));
    if (position == text.size()) {
      break;
    }
    const Sequence sequence = first_sequence(text.substr(position));
    if (!sequence.valid) {
      break;
    }
    position += sequence.num_bytes;
  }
  return position;
}

std::string sanitize_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t good = valid_utf8_prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (!text.empty()) {
      out.append(kReplacementCharacter);
      text.remove_prefix(first_sequence(text).num_bytes);
    }
  }
  return out;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  while (num_pending_ > 0 && !bytes.empty()) {
    char joined[4];
    std::memcpy(joined, pending_, num_pending_);
    joined[num_pending_] = bytes[0];
    const Sequence sequence = first_sequence({joined, num_pending_ + 1});
    if (sequence.cut || sequence.valid) {
      bytes.remove_prefix(1);
      pending_[num_pending_] = joined[num_pending_];
      ++num_pending_;
      if (sequence.valid) {
        out.append(pending_, num_pending_);
        num_pending_ = 0;
      }
    } else {
      // The new byte does not continue: what waited is one invalid part, the byte starts afresh.
      out.append(kReplacementCharacter);
      num_pending_ = 0;
    }
  }
  while (!bytes.empty()) {
    const size_t good = valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) {
      break;
    }
    const Sequence sequence = first_sequence(bytes);
    if (sequence.cut) {
      std::memcpy(pending_, bytes.data(), bytes.size());
      num_pending_ = static_cast<uint32_t>(bytes.size());
      break;
    }
    out.append(kReplacementCharacter);
    bytes.remove_prefix(sequence.num_bytes);
  }
}

void Utf8Stream::finish(std::string& out) {
  if (num_pending_ > 0) {
    out.append(kReplacementCharacter);
    num_pending_ = 0;
  }
}

}  // namespace mstar

#include "mstar/text/jinja/string_functions.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/jinja/value.h"
#include "mstar/text/unicode.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 20;

// Python also splits at the information separators U+001C to U+001F.
bool is_python_space(uint32_t c) {
  return is_unicode_space(c) || (c >= 0x1C && c <= 0x1F);
}

size_t length_at(std::string_view text, size_t at) {
  return decode_utf8(text, at).num_bytes;
}

size_t end_of_word(std::string_view text, size_t at, bool of_space) {
  while (at < text.size()) {
    const CodePoint point = decode_utf8(text, at);
    if (is_python_space(point.value) != of_space) {
      break;
    }
    at += point.num_bytes;
  }
  return at;
}

std::vector<MarkedText> split_at_space(const MarkedText& text, int64_t limit) {
  std::vector<MarkedText> out;
  size_t at = end_of_word(text.text, 0, true);
  while (at < text.text.size()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(cut(text, at, text.text.size()));
      break;
    }
    const size_t end = end_of_word(text.text, at, false);
    out.push_back(cut(text, at, end));
    at = end_of_word(text.text, end, true);
  }
  return out;
}

std::vector<MarkedText> split_at_space_from_right(const MarkedText& text, int64_t limit) {
  std::vector<MarkedText> out;
  MarkedText rest = strip(text, nullptr, false, true);
  while (!rest.text.empty()) {
    size_t begin = rest.text.size();
    while (begin > 0) {
      const size_t previous = previous_code_point(rest.text, begin);
      if (is_python_space(decode_utf8(rest.text, previous).value)) {
        break;
      }
      begin = previous;
    }
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(std::move(rest));
      break;
    }
    out.push_back(cut(rest, begin, rest.text.size()));
    rest = strip(cut(rest, 0, begin), nullptr, false, true);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

void check_separator(const std::string& separator) {
  if (separator.empty()) {
    fail("empty separator");
  }
}

template <typename Map>
MarkedText map_characters(const MarkedText& text, Map map) {
  std::string out;
  out.reserve(text.text.size());
  for (size_t i = 0; i < text.text.size();) {
    const CodePoint point = decode_utf8(text.text, i);
    map(out, point.value);
    i += point.num_bytes;
  }
  return derived(std::move(out), text);
}

}  // namespace

MarkedText strip(const MarkedText& text, const std::string* characters, bool left, bool right) {
  const std::string& bytes = text.text;
  const auto goes = [&](size_t at) {
    const size_t length = length_at(bytes, at);
    return characters == nullptr
               ? is_python_space(decode_utf8(bytes, at).value)
               : characters->find(std::string_view(bytes).substr(at, length)) != std::string::npos;
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (left && begin < end && goes(begin)) {
    begin += length_at(bytes, begin);
  }
  while (right && end > begin && goes(previous_code_point(bytes, end))) {
    end = previous_code_point(bytes, end);
  }
  return cut(text, begin, end);
}

std::vector<MarkedText> split(const MarkedText& text, const std::string* separator, int64_t limit) {
  if (separator == nullptr) {
    return split_at_space(text, limit);
  }
  check_separator(*separator);
  std::vector<MarkedText> out;
  size_t begin = 0;
  size_t found = text.text.find(*separator);
  while (found != std::string::npos && (limit < 0 || static_cast<int64_t>(out.size()) < limit)) {
    out.push_back(cut(text, begin, found));
    begin = found + separator->size();
    found = text.text.find(*separator, begin);
  }
  out.push_back(cut(text, begin, text.text.size()));
  return out;
}

std::vector<MarkedText> split_from_right(const MarkedText& text,
                                         const std::string* separator,
                                         int64_t limit) {
  if (separator == nullptr) {
    return split_at_space_from_right(text, limit);
  }
  check_separator(*separator);
  std::vector<MarkedText> out;
  size_t end = text.text.size();
  while (end >= separator->size() && (limit < 0 || static_cast<int64_t>(out.size()) < limit)) {
    const size_t found = text.text.rfind(*separator, end - separator->size());
    if (found == std::string::npos) {
      break;
    }
    out.push_back(cut(text, found + separator->size(), end));
    end = found;
  }
  out.push_back(cut(text, 0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<MarkedText> split_lines(const MarkedText& text, bool keep_ends) {
  std::vector<MarkedText> out;
  const std::string& bytes = text.text;
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint point = decode_utf8(bytes, i);
    const uint32_t c = point.value;
    size_t end = i + point.num_bytes;
    const bool is_end = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                        c == 0x2028 || c == 0x2029;
    if (is_end) {
      end += c == '\r' && end < bytes.size() && bytes[end] == '\n' ? 1 : 0;
      out.push_back(cut(text, begin, keep_ends ? end : i));
      begin = end;
    }
    i = end;
  }
  if (begin < bytes.size()) {
    out.push_back(cut(text, begin, bytes.size()));
  }
  return out;
}

MarkedText replace(const MarkedText& text,
                   const std::string& from,
                   const MarkedText& to,
                   int64_t limit) {
  MarkedText out;
  size_t begin = 0;
  // An empty pattern stands before every character and at the end.
  size_t found = from.empty() ? 0 : text.text.find(from);
  for (int64_t count = 0; found != std::string::npos && (limit < 0 || count < limit); ++count) {
    append(out, cut(text, begin, found));
    append(out, to);
    if (out.text.size() > (size_t{64} << 20)) {
      throw Error(ErrorCode::kTooLarge, "[chat template] a text grows over 64 MiB");
    }
    begin = found + from.size();
    if (!from.empty()) {
      found = text.text.find(from, begin);
    } else if (found >= text.text.size()) {
      break;
    } else {
      found += length_at(text.text, found);
    }
  }
  append(out, cut(text, begin, text.text.size()));
  return out;
}

MarkedText lower(const MarkedText& text) {
  return derived(to_lower(text.text), text);
}

MarkedText upper(const MarkedText& text) {
  return derived(to_upper(text.text), text);
}

MarkedText capitalize(const MarkedText& text) {
  return map_characters(text, [first = true](std::string& out, uint32_t c) mutable {
    first ? append_title(out, c) : append_lower(out, c);
    first = false;
  });
}

MarkedText title(const MarkedText& text) {
  return map_characters(text, [in_word = false](std::string& out, uint32_t c) mutable {
    in_word ? append_lower(out, c) : append_title(out, c);
    in_word = is_unicode_upper(c) || is_unicode_lower(c);
  });
}

MarkedText filter_title(const MarkedText& text) {
  return map_characters(text, [begins = true](std::string& out, uint32_t c) mutable {
    begins ? append_upper(out, c) : append_lower(out, c);
    begins = is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  });
}

MarkedText swap_case(const MarkedText& text) {
  return map_characters(text, [](std::string& out, uint32_t c) {
    is_unicode_upper(c) ? append_lower(out, c) : append_upper(out, c);
  });
}

MarkedText pad(const MarkedText& text, int64_t width, std::string_view fill, Align align) {
  if (width > kMaxWidth) {
    fail(str_cat("a width of ", width, ", at most ", kMaxWidth));
  }
  if (count_code_points(fill) != 1) {
    fail("the fill character must be exactly one character long");
  }
  const auto length = static_cast<int64_t>(count_code_points(text.text));
  const int64_t missing = std::max<int64_t>(width - length, 0);
  // Python puts the odd one of both sides by the parity of the width.
  const int64_t left = align == Align::kRight    ? missing
                       : align == Align::kCenter ? missing / 2 + (missing & width & 1)
                                                 : 0;
  MarkedText out;
  for (int64_t i = 0; i < left; ++i) {
    append(out, fill);
  }
  append(out, text);
  for (int64_t i = left; i < missing; ++i) {
    append(out, fill);
  }
  return out;
}

}  // namespace mstar::jinja

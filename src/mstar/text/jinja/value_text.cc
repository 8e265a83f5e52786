// How values are written: str, repr and JSON as Python writes them.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/jinja/value.h"
#include "mstar/text/unicode.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxBytes = size_t{64} << 20;

void check_size(const MarkedText& out) {
  if (out.text.size() > kMaxBytes) {
    throw Error(ErrorCode::kTooLarge, "[chat template] a text grows over 64 MiB");
  }
}

std::string hex(uint32_t value, int digits) {
  std::string out(static_cast<size_t>(digits), '0');
  for (int i = digits - 1; i >= 0; --i) {
    out[static_cast<size_t>(i)] = "0123456789abcdef"[value & 15];
    value >>= 4;
  }
  return out;
}

bool is_printable(uint32_t c) {
  return c == ' ' || !(is_unicode_control(c) || is_unassigned(c) || is_unicode_space(c));
}

std::string escape_repr(uint32_t c) {
  return c < 0x100     ? str_cat("\\x", hex(c, 2))
         : c < 0x10000 ? str_cat("\\u", hex(c, 4))
                       : str_cat("\\U", hex(c, 8));
}

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    const uint32_t c = point.value;
    if (c == '\\' || c == static_cast<uint32_t>(quote)) {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out.append(text.substr(i, point.num_bytes));
    } else {
      out += escape_repr(c);
    }
    i += point.num_bytes;
  }
  out.push_back(quote);
  return out;
}

void repr(MarkedText& out, const Value& value, int depth);

void repr_list(MarkedText& out,
               const List& items,
               std::string_view open,
               std::string_view close,
               int depth) {
  append(out, open);
  for (size_t i = 0; i < items.size(); ++i) {
    append(out, i > 0 ? ", " : "");
    repr(out, items[i], depth + 1);
  }
  append(out, close);
}

void repr_sequence(MarkedText& out, const Sequence& sequence, int depth) {
  switch (sequence.kind) {
    case SequenceKind::kList: return repr_list(out, sequence.items, "[", "]", depth);
    case SequenceKind::kTuple:
      return repr_list(out, sequence.items, "(", sequence.items.size() == 1 ? ",)" : ")", depth);
    case SequenceKind::kView: return repr_list(out, sequence.items, "dict_view([", "])", depth);
    case SequenceKind::kRange: {
      const auto& items = sequence.items;
      const int64_t first = items.empty() ? 0 : items.front().as_int();
      const int64_t step = items.size() < 2 ? 1 : items[1].as_int() - first;
      const int64_t stop = first + step * static_cast<int64_t>(items.size());
      append(out,
             step == 1 ? str_cat("range(", first, ", ", stop, ")")
                       : str_cat("range(", first, ", ", stop, ", ", step, ")"));
      return;
    }
    case SequenceKind::kGenerator: append(out, "<generator object>");
  }
}

void repr(MarkedText& out, const Value& value, int depth) {
  if (depth > kMaxDepth) {
    fail("a value is nested too deep to be written");
  }
  check_size(out);
  if (value.is_string()) {
    append(out, derived(string_repr(value.bytes()), value.text()));
  } else if (value.is_sequence()) {
    repr_sequence(out, value.sequence(), depth);
  } else if (value.is_dict()) {
    append(out, "{");
    bool first = true;
    for (const auto& [key, item] : value.dict().items) {
      append(out, first ? "" : ", ");
      first = false;
      repr(out, key, depth + 1);
      append(out, ": ");
      repr(out, item, depth + 1);
    }
    append(out, "}");
  } else if (value.is_undefined()) {
    append(out, "Undefined");
  } else if (value.is_none()) {
    append(out, "None");
  } else if (value.is_bool()) {
    append(out, value.get_bool() ? "True" : "False");
  } else if (value.is_int()) {
    append(out, str_cat(value.as_int()));
  } else if (value.is_float()) {
    append(out, float_text(value.get_float()));
  } else {
    append(out, str_cat("<", value.type_name(), ">"));
  }
}

// Writes one JSON document with its line breaks.
class JsonWriter {
 public:
  JsonWriter(const JsonOptions& options, MarkedText& out) : options_(options), out_(out) {}

  void write(const Value& value, int depth) {
    if (depth > kMaxDepth) {
      fail("a value is nested too deep for tojson");
    }
    check_size(out_);
    if (value.is_string()) {
      write_string(value.text());
    } else if (value.is_none()) {
      append(out_, "null");
    } else if (value.is_bool()) {
      append(out_, value.get_bool() ? "true" : "false");
    } else if (value.is_int()) {
      append(out_, str_cat(value.as_int()));
    } else if (value.is_float()) {
      append(out_, json_float(value.get_float()));
    } else if (value.is_dict()) {
      write_dict(value.dict(), depth);
    } else if (value.is_sequence() && value.sequence().kind <= SequenceKind::kTuple) {
      write_list(value.sequence().items, depth);
    } else {
      fail(str_cat("Object of type ", value.type_name(), " is not JSON serializable"));
    }
  }

 private:
  static std::string json_float(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_text(value);
  }

  void new_line(int depth) {
    if (options_.indent) {
      append(out_, "\n");
      for (int i = 0; i < depth; ++i) {
        append(out_, *options_.indent);
      }
    }
  }

  void write_list(const List& items, int depth) {
    if (items.empty()) {
      append(out_, "[]");
      return;
    }
    append(out_, "[");
    for (size_t i = 0; i < items.size(); ++i) {
      append(out_, i > 0 ? std::string_view(options_.item_separator) : "");
      new_line(depth + 1);
      write(items[i], depth + 1);
    }
    new_line(depth);
    append(out_, "]");
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.items.empty()) {
      append(out_, "{}");
      return;
    }
    auto items = dict.items;
    if (options_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
        return compare(a.first, b.first) < 0;
      });
    }
    append(out_, "{");
    for (size_t i = 0; i < items.size(); ++i) {
      append(out_, i > 0 ? std::string_view(options_.item_separator) : "");
      new_line(depth + 1);
      write_key(items[i].first);
      append(out_, options_.key_separator);
      write(items[i].second, depth + 1);
    }
    new_line(depth);
    append(out_, "}");
  }

  void write_key(const Value& key) {
    if (key.is_string()) {
      write_string(key.text());
    } else if (key.is_number() || key.is_none()) {
      append(out_, "\"");
      write(key, 0);
      append(out_, "\"");
    } else {
      fail(str_cat("keys must be str, int, float, bool or None, not ", key.type_name()));
    }
  }

  void write_string(const MarkedText& text) {
    std::string out = "\"";
    for (size_t i = 0; i < text.text.size();) {
      const CodePoint point = decode_utf8(text.text, i);
      append_escaped(out, point, std::string_view(text.text).substr(i, point.num_bytes));
      i += point.num_bytes;
    }
    out.push_back('"');
    append(out_, derived(std::move(out), text));
  }

  void append_escaped(std::string& out, CodePoint point, std::string_view bytes) const {
    const uint32_t c = point.value;
    switch (c) {
      case '"': out += "\\\""; return;
      case '\\': out += "\\\\"; return;
      case '\n': out += "\\n"; return;
      case '\r': out += "\\r"; return;
      case '\t': out += "\\t"; return;
      case '\b': out += "\\b"; return;
      case '\f': out += "\\f"; return;
      default: break;
    }
    if (c < 0x20 || (options_.ensure_ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
      out += str_cat("\\u", hex(c, 4));
    } else if (options_.ensure_ascii && c >= 0x10000) {
      out += str_cat("\\u",
                     hex(0xD800 + ((c - 0x10000) >> 10), 4),
                     "\\u",
                     hex(0xDC00 + ((c - 0x10000) & 0x3FF), 4));
    } else {
      out += bytes;
    }
  }

  const JsonOptions& options_;
  MarkedText& out_;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), end, exponent);
  if (exponent < -4 || exponent >= 16) {
    return std::string(text);  // two digits of exponent at least, as Python
  }
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

MarkedText to_text(const Value& value) {
  if (value.is_string()) {
    return value.text();
  }
  MarkedText out;
  if (!value.is_undefined()) {
    repr(out, value, 0);
  }
  return out;
}

void append_repr(MarkedText& out, const Value& value) {
  repr(out, value, 0);
}

MarkedText to_json(const Value& value, const JsonOptions& options) {
  MarkedText out;
  JsonWriter(options, out).write(value, 0);
  return out;
}

}  // namespace mstar::jinja

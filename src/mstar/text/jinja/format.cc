// Python's two ways to fill values into a text.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/interpreter.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/jinja/string_functions.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

namespace {

constexpr int kMaxPrecision = 60;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^
  char sign = '-';    // - + or space
  bool zero = false;
  bool comma = false;
  int64_t width = 0;
  int precision = -1;
  char type = '\0';
};

int64_t take_number(std::string_view& text) {
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() && result.ptr != text.data()) {
    fail("a number in a format is too large");
  }
  text.remove_prefix(static_cast<size_t>(result.ptr - text.data()));
  return value;
}

int checked_precision(int64_t precision) {
  if (precision < 0 || precision > kMaxPrecision) {
    fail(str_cat("a precision of ", precision, " in a format, at most ", kMaxPrecision));
  }
  return static_cast<int>(precision);
}

std::string printf_float(double value, char type, int precision) {
  const char format[] = {'%', '.', '*', type, '\0'};
  char buffer[512];
  const int size = std::snprintf(buffer, sizeof(buffer), format, precision, value);
  return std::string(buffer, static_cast<size_t>(std::clamp(size, 0, 511)));
}

std::string integer_text(uint64_t value, char type) {
  char buffer[72];
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value, base);
  std::string out(buffer, result.ptr);
  if (type == 'X') {
    std::transform(out.begin(), out.end(), out.begin(), [](char c) {
      return c >= 'a' ? static_cast<char>(c - 32) : c;
    });
  }
  return out;
}

void add_commas(std::string& digits) {
  const size_t end = std::min(digits.find('.'), digits.size());
  for (size_t at = end; at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
}

// Digits and sign of a number as the spec asks.
std::string number_text(const Value& value, const Spec& spec) {
  const bool wants_float =
      std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != '\0';
  std::string digits;
  bool negative;
  if (wants_float || value.is_float()) {
    const double number = value.as_double() * (spec.type == '%' ? 100.0 : 1.0);
    negative = std::signbit(number);
    const double positive = std::abs(number);
    if (!wants_float && spec.precision < 0) {
      digits = float_text(positive);
    } else {
      const char type = spec.type == '%' ? 'f' : wants_float ? spec.type : 'g';
      digits = printf_float(positive, type, spec.precision < 0 ? 6 : spec.precision);
    }
    digits += spec.type == '%' ? "%" : "";
  } else {
    const int64_t number = value.as_int();
    negative = number < 0;
    digits = integer_text(
        negative ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number), spec.type);
  }
  if (spec.comma) {
    add_commas(digits);
  }
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.zero) {
    const auto width = static_cast<int64_t>(sign.size() + digits.size());
    digits.insert(0, static_cast<size_t>(std::clamp<int64_t>(spec.width - width, 0, 1000)), '0');
  }
  return sign + digits;
}

MarkedText format_value(const Value& value, const Spec& spec) {
  const bool as_number =
      value.is_number() && spec.type != 's' && !(value.is_bool() && spec.type == '\0');
  if (!as_number && spec.type != '\0' && spec.type != 's') {
    fail(str_cat("format '", spec.type, "' cannot write a ", value.type_name()));
  }
  MarkedText text = as_number ? MarkedText{number_text(value, spec), {}} : to_text(value);
  if (!as_number && spec.precision >= 0) {
    text = cut(text, 0, code_point_offset(text.text, static_cast<size_t>(spec.precision)));
  }
  const char align = spec.align != '\0' ? spec.align : as_number ? '>' : '<';
  return pad(text,
             spec.width,
             spec.fill,
             align == '>'   ? Align::kRight
             : align == '<' ? Align::kLeft
                            : Align::kCenter);
}

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^';
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  if (!text.empty()) {
    const size_t fill = decode_utf8(text, 0).num_bytes;
    if (text.size() > fill && is_align(text[fill])) {
      spec.fill = text.substr(0, fill);
      spec.align = text[fill];
      text.remove_prefix(fill + 1);
    } else if (is_align(text[0])) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
  }
  if (!text.empty() && (text[0] == '+' || text[0] == '-' || text[0] == ' ')) {
    spec.sign = text[0];
    text.remove_prefix(1);
  }
  if (text.starts_with('0')) {
    spec.zero = true;
    text.remove_prefix(1);
  }
  spec.width = take_number(text);
  if (text.starts_with(',')) {
    spec.comma = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    spec.precision = checked_precision(take_number(text));
  }
  if (!text.empty()) {
    spec.type = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty() || (spec.type != '\0' && std::string_view("sdeEfFgGxXob%").find(spec.type) ==
                                                 std::string_view::npos)) {
    fail("a format with a specification that is not known");
  }
  return spec;
}

// The value "{name.attribute[0]}" names; only plain names and indices have a meaning here.
const Value& braces_value(std::string_view name, const Arguments& arguments, size_t& next) {
  const bool is_index = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
  if (name.empty() || is_index) {
    size_t index = name.empty() ? next++ : 0;
    std::from_chars(name.data(), name.data() + name.size(), index);
    if (index >= arguments.positional.size()) {
      fail(str_cat("format: there is no argument ", index));
    }
    return arguments.positional[index];
  }
  for (const auto& [given, value] : arguments.named) {
    if (given == name) {
      return value;
    }
  }
  fail(str_cat("format: there is no argument '", name, "'"));
}

}  // namespace

MarkedText format_braces(const MarkedText& format, const Arguments& arguments) {
  MarkedText out;
  const std::string_view text = format.text;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const bool doubled = at + 1 < text.size() && text[at + 1] == c;
    if ((c == '{' || c == '}') && doubled) {
      append(out, cut(format, at, at + 1));
      at += 2;
    } else if (c == '{') {
      const size_t close = text.find('}', at);
      if (close == std::string_view::npos) {
        fail("format: a '{' without '}'");
      }
      const std::string_view field = text.substr(at + 1, close - at - 1);
      const size_t colon = std::min(field.find(':'), field.size());
      const Value& value = braces_value(field.substr(0, colon), arguments, next);
      const Spec spec = parse_spec(colon < field.size() ? field.substr(colon + 1) : "");
      append(out, format_value(value, spec));
      at = close + 1;
    } else if (c == '}') {
      fail("format: a '}' without '{'");
    } else {
      const size_t end = std::min(text.find_first_of("{}", at), text.size());
      append(out, cut(format, at, end));
      at = end;
    }
  }
  return out;
}

MarkedText format_percent(const MarkedText& format, const Value& arguments) {
  const bool is_tuple =
      arguments.is_sequence() && arguments.sequence().kind == SequenceKind::kTuple;
  const List values = is_tuple ? arguments.sequence().items : List{arguments};
  MarkedText out;
  const std::string_view text = format.text;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    append(out, cut(format, at, percent));
    if (percent == text.size()) {
      break;
    }
    std::string_view rest = text.substr(percent + 1);
    if (rest.starts_with('%')) {
      append(out, "%");
      at = percent + 2;
      continue;
    }
    Value value;
    if (rest.starts_with('(')) {
      const size_t close = rest.find(')');
      if (close == std::string_view::npos || !arguments.is_dict()) {
        fail("format requires a mapping");
      }
      const Value* found = arguments.dict().find(std::string(rest.substr(1, close - 1)));
      value = found == nullptr ? Value() : *found;
      rest.remove_prefix(close + 1);
    } else {
      if (next >= values.size()) {
        fail("not enough arguments for format string");
      }
      value = values[next++];
    }
    Spec spec;
    while (!rest.empty() && std::string_view("-+ 0").find(rest[0]) != std::string_view::npos) {
      spec.align = rest[0] == '-' ? '<' : spec.align;
      spec.sign = rest[0] == '+' || rest[0] == ' ' ? rest[0] : spec.sign;
      spec.zero = spec.zero || rest[0] == '0';
      rest.remove_prefix(1);
    }
    spec.width = take_number(rest);
    if (rest.starts_with('.')) {
      rest.remove_prefix(1);
      spec.precision = checked_precision(take_number(rest));
    }
    if (rest.empty()) {
      fail("incomplete format");
    }
    const char type = rest[0];
    at = text.size() - rest.size() + 1;
    spec.align = spec.align == '\0' ? '>' : spec.align;
    if (type == 'r') {
      MarkedText written;
      append_repr(written, value);
      value = Value(std::move(written));
    }
    spec.type = type == 'r' || type == 's' ? 's' : type == 'i' || type == 'u' ? 'd' : type;
    if (std::string_view("sdeEfFgGxXo").find(spec.type) == std::string_view::npos) {
      fail(str_cat("unsupported format character '", type, "'"));
    }
    if (spec.type == 'd' && value.is_float()) {
      value = Value(static_cast<int64_t>(std::clamp(value.get_float(), -9.2e18, 9.2e18)));
    }
    append(out, format_value(value, spec));
  }
  if (is_tuple && next < values.size()) {
    fail("not all arguments converted during string formatting");
  }
  return out;
}

}  // namespace mstar::jinja

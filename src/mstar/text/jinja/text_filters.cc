// Filters over texts and numbers.

#include <charconv>
#include <cmath>
#include <functional>

#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/call_arguments.h"
#include "mstar/text/jinja/filters.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/jinja/string_functions.h"
#include "mstar/text/unicode.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

namespace {

template <MarkedText (*Map)(const MarkedText&)>
Value map_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "filter").finish();
  return in.made(Map(to_text(value)));
}

Value trim_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "trim");
  const Value characters = read.get("chars", Value::none());
  read.finish();
  return in.made(
      strip(to_text(value), characters.is_string() ? &characters.bytes() : nullptr, true, true));
}

Value string_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "string").finish();
  return in.made(to_text(value));
}

Value replace_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "replace");
  const MarkedText from = to_text(read.get("old"));
  const MarkedText to = to_text(read.get("new"));
  const Value count = read.get("count", Value::none());
  read.finish();
  return in.made(replace(to_text(value), from.text, to, count.is_int() ? count.as_int() : -1));
}

Value default_filter(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "default");
  Value fallback = read.get("default_value", Value(std::string()));
  const bool also_false = read.get_bool("boolean", false);
  read.finish();
  return value.is_undefined() || (also_false && !value.as_bool()) ? fallback : value;
}

Value tojson_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "tojson");
  JsonOptions options;
  options.ensure_ascii = read.get_bool("ensure_ascii", false);
  const Value indent = read.get("indent", Value::none());
  const Value separators = read.get("separators", Value::none());
  options.sort_keys = read.get_bool("sort_keys", false);
  read.finish();
  if (indent.is_string()) {
    options.indent = indent.bytes();
  } else if (indent.is_int()) {
    const int64_t width = indent.as_int();
    if (width > 64) {
      fail(str_cat("tojson with an indent of ", width, ", at most 64"));
    }
    options.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (options.indent) {
    options.item_separator = ",";
  }
  if (separators.is_list_like() && separators.sequence().items.size() == 2) {
    options.item_separator = to_text(separators.sequence().items[0]).text;
    options.key_separator = to_text(separators.sequence().items[1]).text;
  }
  return in.made(to_json(value, options));
}

Value escape_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "escape").finish();
  const MarkedText text = to_text(value);
  MarkedText out;
  for (size_t i = 0; i < text.text.size(); ++i) {
    switch (text.text[i]) {
      case '&': append(out, "&amp;"); break;
      case '<': append(out, "&lt;"); break;
      case '>': append(out, "&gt;"); break;
      case '\'': append(out, "&#39;"); break;
      case '"': append(out, "&#34;"); break;
      default: append(out, cut(text, i, i + 1));
    }
  }
  return in.made(std::move(out));
}

Value indent_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "indent");
  const Value width = read.get("width", Value(int64_t{4}));
  const bool first = read.get_bool("first", false);
  const bool blank = read.get_bool("blank", false);
  read.finish();
  if (width.is_int() && width.as_int() > 1000) {
    fail(str_cat("indent of ", width.as_int(), ", at most 1000"));
  }
  const MarkedText space =
      width.is_string()
          ? width.text()
          : MarkedText{std::string(static_cast<size_t>(std::max<int64_t>(width.as_int(), 0)), ' '),
                       {}};
  const MarkedText text = to_text(value);
  auto lines = split_lines(text, false);
  if (text.text.empty() || text.text.back() == '\n') {
    lines.emplace_back();
  }
  MarkedText out;
  for (size_t i = 0; i < lines.size(); ++i) {
    append(out, i > 0 ? "\n" : "");
    if (i == 0 ? first : blank || !lines[i].text.empty()) {
      append(out, space);
    }
    append(out, lines[i]);
    in.charge(static_cast<int64_t>(space.text.size()));
  }
  return in.made(std::move(out));
}

Value center_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "center");
  const int64_t width = read.get_int("width", 80);
  read.finish();
  return in.made(pad(to_text(value), width, " ", Align::kCenter));
}

Value truncate_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "truncate");
  const int64_t length = read.get_int("length", 255);
  const bool kill_words = read.get_bool("killwords", false);
  const MarkedText end = read.get_text("end", "...");
  const int64_t leeway = read.get_int("leeway", 5);
  read.finish();
  const MarkedText text = to_text(value);
  const auto end_length = static_cast<int64_t>(count_code_points(end.text));
  if (length < end_length || leeway < 0) {
    fail(str_cat("truncate to ", length, " characters, expected at least ", end_length));
  }
  if (static_cast<int64_t>(count_code_points(text.text)) <= length + leeway) {
    return Value(text);
  }
  MarkedText out =
      cut(text, 0, code_point_offset(text.text, static_cast<size_t>(length - end_length)));
  const size_t space = out.text.rfind(' ');
  if (!kill_words && space != std::string::npos) {
    out = cut(out, 0, space);
  }
  append(out, end);
  return in.made(std::move(out));
}

Value wordcount_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "wordcount").finish();
  const std::string text = to_text(value).text;
  in.charge(static_cast<int64_t>(text.size()));
  int64_t count = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    const bool is_word = is_word_character(point.value);
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    i += point.num_bytes;
  }
  return Value(count);
}

Value format_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!arguments.named.empty()) {
    auto dict = std::make_shared<Dict>();
    for (const auto& [name, item] : arguments.named) {
      dict->set(Value(name), item);
    }
    return in.made(format_percent(to_text(value), Value(std::move(dict))));
  }
  return in.made(
      format_percent(to_text(value), Value::list(arguments.positional, SequenceKind::kTuple)));
}

// The number a text writes, with white space around and "_" between digits.
std::optional<double> parse_double(const MarkedText& text) {
  std::string digits = strip(text, nullptr, true, true).text;
  std::erase(digits, '_');
  const char* begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
  double value = 0.0;
  const auto result = std::from_chars(begin, digits.data() + digits.size(), value);
  const bool whole = result.ec == std::errc() && result.ptr == digits.data() + digits.size();
  return whole && !digits.empty() ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> parse_int(const MarkedText& text, int base) {
  std::string digits = strip(text, nullptr, true, true).text;
  std::erase(digits, '_');
  const bool negative = digits.starts_with('-');
  digits.erase(0, negative || digits.starts_with('+') ? 1 : 0);
  if (base == 16 && (digits.starts_with("0x") || digits.starts_with("0X"))) {
    digits.erase(0, 2);
  }
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  const bool whole = result.ec == std::errc() && result.ptr == digits.data() + digits.size();
  return whole && !digits.empty() ? std::optional(negative ? -value : value) : std::nullopt;
}

Value int_filter(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "int");
  const Value fallback = read.get("default", Value(int64_t{0}));
  const int64_t base = read.get_int("base", 10);
  read.finish();
  if (base < 2 || base > 36) {
    fail(str_cat("int with base ", base, ", expected 2 to 36"));
  }
  if (value.is_string()) {
    if (const auto parsed = parse_int(value.text(), static_cast<int>(base))) {
      return Value(*parsed);
    }
  }
  const auto number = value.is_string()  ? parse_double(value.text())
                      : value.is_float() ? std::optional(value.get_float())
                                         : std::nullopt;
  if (number && std::abs(*number) < 9.2e18) {
    return Value(static_cast<int64_t>(*number));
  }
  return value.is_int() || value.is_bool() ? Value(value.as_int()) : fallback;
}

Value float_filter(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "float");
  const Value fallback = read.get("default", Value(0.0));
  read.finish();
  if (value.is_number()) {
    return Value(value.as_double());
  }
  const auto parsed = value.is_string() ? parse_double(value.text()) : std::nullopt;
  return parsed ? Value(*parsed) : fallback;
}

Value abs_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "abs").finish();
  if (!value.is_number()) {
    fail(str_cat("bad operand type for abs(): '", value.type_name(), "'"));
  }
  if (value.is_float()) {
    return Value(std::abs(value.get_float()));
  }
  return value.as_int() < 0 ? binary(in, "-", Value(int64_t{0}), value) : Value(value.as_int());
}

Value round_filter(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "round");
  const int64_t precision = read.get_int("precision", 0);
  const std::string method = read.get_text("method", "common").text;
  read.finish();
  if (!value.is_number() || precision < -300 || precision > 300) {
    fail("round takes a number and a precision");
  }
  if (!value.is_float() && method == "common" && precision >= 0) {
    return Value(value.as_int());
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double number = value.as_double();
  if (method == "ceil") return Value(std::ceil(number * scale) / scale);
  if (method == "floor") return Value(std::floor(number * scale) / scale);
  if (method != "common") {
    fail("method must be common, ceil or floor");
  }
  // Halves go to even, as Python rounds.
  return Value(std::nearbyint(number * scale) / scale);
}

constexpr NamedFilter kFilters[] = {
    {"upper", map_filter<upper>},
    {"lower", map_filter<lower>},
    {"capitalize", map_filter<capitalize>},
    {"title", map_filter<filter_title>},
    {"trim", trim_filter},
    {"string", string_filter},
    {"safe", string_filter},
    {"replace", replace_filter},
    {"default", default_filter},
    {"d", default_filter},
    {"tojson", tojson_filter},
    {"escape", escape_filter},
    {"e", escape_filter},
    {"indent", indent_filter},
    {"center", center_filter},
    {"truncate", truncate_filter},
    {"wordcount", wordcount_filter},
    {"format", format_filter},
    {"int", int_filter},
    {"float", float_filter},
    {"abs", abs_filter},
    {"round", round_filter},
};

}  // namespace

std::span<const NamedFilter> text_filters() {
  return kFilters;
}

Filter find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), list_filters()}) {
    for (const NamedFilter& candidate : filters) {
      if (candidate.name == name) {
        return candidate.filter;
      }
    }
  }
  return nullptr;
}

}  // namespace mstar::jinja

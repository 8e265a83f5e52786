// Methods of strings, dicts and lists. Those that would change a value are refused, as the sandbox
// of the reference refuses them.

#include <algorithm>
#include <span>

#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/call_arguments.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/jinja/string_functions.h"
#include "mstar/text/unicode.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

namespace {

using Method = Value (*)(Interpreter&, const Value&, ArgumentReader&);

struct NamedMethod {
  std::string_view name;
  Method method;
};

Value list_of(std::vector<MarkedText> texts) {
  List out;
  out.reserve(texts.size());
  for (MarkedText& text : texts) {
    out.push_back(Value(std::move(text)));
  }
  return Value::list(std::move(out));
}

template <bool kLeft, bool kRight>
Value strip_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  const Value characters = read.get("chars", Value::none());
  const std::string* set = characters.is_string() ? &characters.bytes() : nullptr;
  return in.made(strip(self.text(), set, kLeft, kRight));
}

template <std::vector<MarkedText> (*Split)(const MarkedText&, const std::string*, int64_t)>
Value split_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  const Value separator = read.get("sep", Value::none());
  const int64_t limit = read.get_int("maxsplit", -1);
  if (!separator.is_none() && !separator.is_string()) {
    fail(str_cat("must be str or None, not ", separator.type_name()));
  }
  auto parts = Split(self.text(), separator.is_string() ? &separator.bytes() : nullptr, limit);
  in.charge(static_cast<int64_t>(self.bytes().size() + parts.size() * 100));
  return list_of(std::move(parts));
}

template <MarkedText (*Map)(const MarkedText&)>
Value map_method(Interpreter& in, const Value& self, ArgumentReader&) {
  return in.made(Map(self.text()));
}

// startswith and endswith take one text or a tuple of them.
template <bool kStart>
Value affix_method(Interpreter&, const Value& self, ArgumentReader& read) {
  const Value affix = read.get("prefix");
  const List candidates = affix.is_sequence() ? affix.sequence().items : List{affix};
  for (const Value& one : candidates) {
    if (!one.is_string()) {
      fail(str_cat("first arg must be str or a tuple of str, not ", one.type_name()));
    }
    if (kStart ? self.bytes().starts_with(one.bytes()) : self.bytes().ends_with(one.bytes())) {
      return Value(true);
    }
  }
  return Value(false);
}

template <bool kStart>
Value remove_affix(Interpreter& in, const Value& self, ArgumentReader& read) {
  const std::string affix = read.get_text("affix").text;
  const std::string& bytes = self.bytes();
  const bool there = kStart ? bytes.starts_with(affix) : bytes.ends_with(affix);
  const size_t begin = there && kStart ? affix.size() : 0;
  const size_t end = there && !kStart ? bytes.size() - affix.size() : bytes.size();
  return in.made(cut(self.text(), begin, end));
}

// Index in characters of the first or last occurrence, or -1.
template <bool kFirst>
int64_t find_text(Interpreter& in, const Value& self, ArgumentReader& read) {
  const std::string what = read.get_text("sub").text;
  const std::string& bytes = self.bytes();
  in.charge(static_cast<int64_t>(bytes.size()));
  const auto length = static_cast<int64_t>(count_code_points(bytes));
  const auto place = [&](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + length : index, 0, length);
  };
  const int64_t from = place(read.get_int("start", 0));
  const int64_t to = place(read.get_int("end", length));
  const size_t begin = code_point_offset(bytes, static_cast<size_t>(from));
  const size_t end = code_point_offset(bytes, static_cast<size_t>(to));
  if (begin > end) {
    return -1;
  }
  const std::string_view part = std::string_view(bytes).substr(begin, end - begin);
  const size_t found = kFirst ? part.find(what) : part.rfind(what);
  return found == std::string_view::npos
             ? -1
             : from + static_cast<int64_t>(count_code_points(part.substr(0, found)));
}

template <bool kFirst, bool kMustExist>
Value find_text_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  const int64_t found = find_text<kFirst>(in, self, read);
  if (kMustExist && found < 0) {
    fail("substring not found");
  }
  return Value(found);
}

Value count_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  const std::string what = read.get_text("sub").text;
  in.charge(static_cast<int64_t>(self.bytes().size()));
  if (what.empty()) {
    return Value(static_cast<int64_t>(count_code_points(self.bytes())) + 1);
  }
  int64_t count = 0;
  for (size_t at = self.bytes().find(what); at != std::string::npos;
       at = self.bytes().find(what, at + what.size())) {
    ++count;
  }
  return Value(count);
}

Value replace_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  const MarkedText from = read.get_text("old");
  const MarkedText to = read.get_text("new");
  in.charge(static_cast<int64_t>(self.bytes().size()));
  return in.made(replace(self.text(), from.text, to, read.get_int("count", -1)));
}

Value join_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  MarkedText out;
  bool first = true;
  for (const Value& item : elements(in, read.get("iterable"))) {
    if (!item.is_string()) {
      fail(str_cat("sequence item: expected str instance, ", item.type_name(), " found"));
    }
    if (!first) {
      append(out, self.text());
    }
    first = false;
    append(out, item.text());
    in.charge(static_cast<int64_t>(item.bytes().size() + self.bytes().size()));
  }
  return in.made(std::move(out));
}

template <bool kFirst>
Value partition_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  const MarkedText separator = read.get_text("sep");
  const std::string& bytes = self.bytes();
  if (separator.text.empty()) {
    fail("empty separator");
  }
  const size_t found = kFirst ? bytes.find(separator.text) : bytes.rfind(separator.text);
  in.charge(static_cast<int64_t>(bytes.size()));
  List out(3, Value(std::string()));
  if (found == std::string::npos) {
    out[kFirst ? 0 : 2] = self;
  } else {
    const size_t end = found + separator.text.size();
    out[0] = Value(cut(self.text(), 0, found));
    out[1] = Value(cut(self.text(), found, end));
    out[2] = Value(cut(self.text(), end, bytes.size()));
  }
  return Value::list(std::move(out), SequenceKind::kTuple);
}

template <Align kAlign>
Value pad_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  const int64_t width = read.get_int("width", 0);
  return in.made(pad(self.text(), width, read.get_text("fillchar", " ").text, kAlign));
}

Value zfill_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  const int64_t width = read.get_int("width", 0);
  const MarkedText& text = self.text();
  const bool sign = text.text.starts_with('-') || text.text.starts_with('+');
  MarkedText out = cut(text, 0, sign ? 1 : 0);
  append(
      out,
      pad(cut(text, sign ? 1 : 0, text.text.size()), width - (sign ? 1 : 0), "0", Align::kRight));
  return in.made(std::move(out));
}

// True when there is a character and each is of the kind.
template <bool (*Is)(uint32_t)>
Value all_are(Interpreter& in, const Value& self, ArgumentReader&) {
  const std::string& bytes = self.bytes();
  in.charge(static_cast<int64_t>(bytes.size()));
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint point = decode_utf8(bytes, i);
    if (!Is(point.value)) {
      return Value(false);
    }
    i += point.num_bytes;
  }
  return Value(!bytes.empty());
}

bool is_letter_or_number(uint32_t c) {
  return is_unicode_letter(c) || is_unicode_number(c);
}

// There is a character with case, and none of the other case.
template <bool kUpper>
Value case_method(Interpreter& in, const Value& self, ArgumentReader&) {
  const std::string& bytes = self.bytes();
  in.charge(static_cast<int64_t>(bytes.size()));
  bool has_case = false;
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint point = decode_utf8(bytes, i);
    if (kUpper ? is_unicode_lower(point.value) : is_unicode_upper(point.value)) {
      return Value(false);
    }
    has_case = has_case || is_unicode_upper(point.value) || is_unicode_lower(point.value);
    i += point.num_bytes;
  }
  return Value(has_case);
}

Value split_lines_method(Interpreter& in, const Value& self, ArgumentReader& read) {
  auto lines = split_lines(self.text(), read.get_bool("keepends", false));
  in.charge(static_cast<int64_t>(self.bytes().size() + lines.size() * 100));
  return list_of(std::move(lines));
}

constexpr NamedMethod kStringMethods[] = {
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<split>},
    {"rsplit", split_method<split_from_right>},
    {"splitlines", split_lines_method},
    {"lower", map_method<lower>},
    {"casefold", map_method<lower>},
    {"upper", map_method<upper>},
    {"capitalize", map_method<capitalize>},
    {"title", map_method<title>},
    {"swapcase", map_method<swap_case>},
    {"startswith", affix_method<true>},
    {"endswith", affix_method<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"find", find_text_method<true, false>},
    {"rfind", find_text_method<false, false>},
    {"index", find_text_method<true, true>},
    {"rindex", find_text_method<false, true>},
    {"count", count_method},
    {"replace", replace_method},
    {"join", join_method},
    {"partition", partition_method<true>},
    {"rpartition", partition_method<false>},
    {"ljust", pad_method<Align::kLeft>},
    {"rjust", pad_method<Align::kRight>},
    {"center", pad_method<Align::kCenter>},
    {"zfill", zfill_method},
    {"isdigit", all_are<is_unicode_digit>},
    {"isdecimal", all_are<is_unicode_digit>},
    {"isnumeric", all_are<is_unicode_number>},
    {"isalpha", all_are<is_unicode_letter>},
    {"isalnum", all_are<is_letter_or_number>},
    {"isspace", all_are<is_unicode_space>},
    {"isupper", case_method<true>},
    {"islower", case_method<false>},
};

Value dict_get(Interpreter&, const Value& self, ArgumentReader& read) {
  const Value key = read.get("key");
  Value fallback = read.get("default", Value::none());
  const Value* found = self.dict().find(key);
  return found == nullptr ? std::move(fallback) : *found;
}

enum class Part { kKeys, kValues, kItems };

template <Part kPart>
Value dict_view(Interpreter& in, const Value& self, ArgumentReader&) {
  List out;
  in.charge(static_cast<int64_t>(self.dict().items.size()) * 64);
  for (const auto& [key, value] : self.dict().items) {
    out.push_back(kPart == Part::kKeys     ? key
                  : kPart == Part::kValues ? value
                                           : Value::list({key, value}, SequenceKind::kTuple));
  }
  return Value::list(std::move(out), SequenceKind::kView);
}

Value copy_self(Interpreter&, const Value& self, ArgumentReader&) {
  return self;  // values never change
}

Value refuse(Interpreter&, const Value& self, ArgumentReader&) {
  fail(str_cat("changing a ", self.type_name(), " is not allowed in a template"));
}

constexpr NamedMethod kDictMethods[] = {
    {"get", dict_get},
    {"keys", dict_view<Part::kKeys>},
    {"values", dict_view<Part::kValues>},
    {"items", dict_view<Part::kItems>},
    {"copy", copy_self},
    {"clear", refuse},
    {"pop", refuse},
    {"popitem", refuse},
    {"setdefault", refuse},
    {"update", refuse},
};

Value list_index(Interpreter& in, const Value& self, ArgumentReader& read) {
  const Value what = read.get("value");
  const List& items = self.sequence().items;
  in.charge(static_cast<int64_t>(items.size()) * 16);
  for (size_t i = 0; i < items.size(); ++i) {
    if (equals(items[i], what)) {
      return Value(static_cast<int64_t>(i));
    }
  }
  fail("the value is not in the list");
}

Value list_count(Interpreter& in, const Value& self, ArgumentReader& read) {
  const Value what = read.get("value");
  const List& items = self.sequence().items;
  in.charge(static_cast<int64_t>(items.size()) * 16);
  return Value(static_cast<int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return equals(item, what); })));
}

constexpr NamedMethod kListMethods[] = {
    {"index", list_index},
    {"count", list_count},
    {"copy", copy_self},
    {"append", refuse},
    {"clear", refuse},
    {"extend", refuse},
    {"insert", refuse},
    {"pop", refuse},
    {"remove", refuse},
    {"reverse", refuse},
    {"sort", refuse},
};

Method find_in(std::span<const NamedMethod> methods, std::string_view name) {
  for (const NamedMethod& candidate : methods) {
    if (candidate.name == name) {
      return candidate.method;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<Value> find_method(const Value& value, const std::string& name) {
  Method method = nullptr;
  if (value.is_string()) {
    if (name == "format") {
      return Value::function("format", [value](Interpreter& in, Arguments& arguments) {
        return in.made(format_braces(value.text(), arguments));
      });
    }
    method = find_in(kStringMethods, name);
  } else if (value.is_dict()) {
    method = find_in(kDictMethods, name);
  } else if (value.is_list_like()) {
    method = find_in(kListMethods, name);
  }
  if (method == nullptr) {
    return std::nullopt;
  }
  return Value::function(
      name,
      [value, method, name](Interpreter& in, Arguments& arguments) {
        ArgumentReader read(arguments, name);
        Value out = method(in, value, read);
        read.finish();
        return out;
      },
      value.height());
}

}  // namespace mstar::jinja

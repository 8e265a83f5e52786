// Filters over lists and mappings.

#include <algorithm>

#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/call_arguments.h"
#include "mstar/text/jinja/filters.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/unicode.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

namespace {

// "a.b.0" as attributes and indices one after the other.
Value by_path(Interpreter& in, Value value, const Value& path) {
  if (path.is_int()) {
    return get_item(in, value, path);
  }
  const std::string text = to_text(path).text;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool is_index = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string::npos;
    // Items before attributes, as the reference's attribute getters do.
    value = is_index ? get_item(in, value, Value(static_cast<int64_t>(std::stoll(part))))
                     : get_item(in, value, Value(part));
    begin = end + 1;
  }
  return value;
}

Value ignore_case(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(to_lower(value.bytes())) : value;
}

Value length_filter(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "length").finish();
  if (value.is_undefined()) return Value(int64_t{0});
  if (value.is_string()) return Value(static_cast<int64_t>(count_code_points(value.bytes())));
  if (value.is_dict()) return Value(static_cast<int64_t>(value.dict().items.size()));
  if (value.is_sequence() && !value.is_generator()) {
    return Value(static_cast<int64_t>(value.sequence().items.size()));
  }
  fail(str_cat("object of type '", value.type_name(), "' has no len()"));
}

Value list_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "list").finish();
  return Value::list(elements(in, value));
}

Value first_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "first").finish();
  List items = elements(in, value);
  return items.empty() ? Value::undefined("the first item of an empty list") : items.front();
}

Value last_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "last").finish();
  List items = elements(in, value);
  return items.empty() ? Value::undefined("the last item of an empty list") : items.back();
}

Value reverse_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "reverse").finish();
  List items = elements(in, value);
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) {
    return Value::list(std::move(items), SequenceKind::kGenerator);
  }
  MarkedText out;
  for (const Value& item : items) {
    append(out, item.text());
  }
  return in.made(std::move(out));
}

Value join_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "join");
  const MarkedText separator = read.get_text("d", "");
  const Value attribute = read.get("attribute", Value::none());
  read.finish();
  MarkedText out;
  bool first = true;
  for (const Value& item : elements(in, value)) {
    if (!first) {
      append(out, separator);
    }
    first = false;
    append(out, to_text(attribute.is_none() ? item : by_path(in, item, attribute)));
    in.charge(static_cast<int64_t>(separator.text.size()) + 8);
  }
  return in.made(std::move(out));
}

void sort_values(Interpreter& in, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  in.charge(static_cast<int64_t>(keyed.size()) * 300);
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
}

Value sort_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "sort");
  const bool reverse = read.get_bool("reverse", false);
  const bool case_sensitive = read.get_bool("case_sensitive", false);
  const Value attribute = read.get("attribute", Value::none());
  read.finish();
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : elements(in, value)) {
    Value key = attribute.is_none() ? item : by_path(in, item, attribute);
    keyed.emplace_back(ignore_case(key, case_sensitive), std::move(item));
  }
  sort_values(in, keyed, reverse);
  List out;
  for (auto& item : keyed) {
    out.push_back(std::move(item.second));
  }
  return Value::list(std::move(out));
}

Value dictsort_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "dictsort");
  const bool case_sensitive = read.get_bool("case_sensitive", false);
  const std::string by = read.get_text("by", "key").text;
  const bool reverse = read.get_bool("reverse", false);
  read.finish();
  if (!value.is_dict() || (by != "key" && by != "value")) {
    fail("dictsort takes a mapping, by=\"key\" or \"value\"");
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.dict().items) {
    keyed.emplace_back(ignore_case(by == "key" ? key : item, case_sensitive),
                       Value::list({key, item}, SequenceKind::kTuple));
  }
  sort_values(in, keyed, reverse);
  List out;
  for (auto& item : keyed) {
    out.push_back(std::move(item.second));
  }
  return Value::list(std::move(out));
}

Value items_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "items").finish();
  List out;
  if (!value.is_undefined()) {
    if (!value.is_dict()) {
      fail("Can only get item pairs from a mapping.");
    }
    for (const auto& [key, item] : value.dict().items) {
      in.charge(64);
      out.push_back(Value::list({key, item}, SequenceKind::kTuple));
    }
  }
  return Value::list(std::move(out), SequenceKind::kGenerator);
}

Value map_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  List out;
  if (arguments.positional.empty()) {
    ArgumentReader read(arguments, "map");
    const Value attribute = read.get("attribute");
    const Value fallback = read.get("default", Value());
    read.finish();
    for (const Value& item : elements(in, value)) {
      Value found = by_path(in, item, attribute);
      out.push_back(found.is_undefined() && !fallback.is_undefined() ? fallback : std::move(found));
    }
    return Value::list(std::move(out), SequenceKind::kGenerator);
  }
  const std::string name = to_text(arguments.positional[0]).text;
  const Filter filter = find_filter(name);
  if (filter == nullptr) {
    fail(str_cat("no filter named '", name, "'"));
  }
  for (const Value& item : elements(in, value)) {
    const Interpreter::Nesting nesting(in);
    Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
    out.push_back(filter(in, item, rest));
  }
  return Value::list(std::move(out), SequenceKind::kGenerator);
}

// select, reject, selectattr and rejectattr: keeps the items whose test says `keep`.
template <bool kKeep, bool kByAttribute>
Value select_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  size_t used = 0;
  Value attribute;
  if (kByAttribute) {
    if (arguments.positional.empty()) {
      fail("selectattr and rejectattr need an attribute");
    }
    attribute = arguments.positional[used++];
  }
  Test test = nullptr;
  if (used < arguments.positional.size()) {
    const std::string name = to_text(arguments.positional[used++]).text;
    test = find_test(name);
    if (test == nullptr) {
      fail(str_cat("no test named '", name, "'"));
    }
  }
  List out;
  for (Value& item : elements(in, value)) {
    const Interpreter::Nesting nesting(in);
    const Value subject = kByAttribute ? by_path(in, item, attribute) : item;
    Arguments rest{
        {arguments.positional.begin() + static_cast<ptrdiff_t>(used), arguments.positional.end()},
        arguments.named};
    const bool holds = test == nullptr ? subject.as_bool() : test(in, subject, rest);
    if (holds == kKeep) {
      out.push_back(std::move(item));
    }
  }
  return Value::list(std::move(out), SequenceKind::kGenerator);
}

Value unique_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "unique");
  const bool case_sensitive = read.get_bool("case_sensitive", false);
  const Value attribute = read.get("attribute", Value::none());
  read.finish();
  Dict seen;
  List out;
  for (Value& item : elements(in, value)) {
    const Value key =
        ignore_case(attribute.is_none() ? item : by_path(in, item, attribute), case_sensitive);
    in.charge(static_cast<int64_t>(key.is_string() ? 1 : seen.items.size()) * 16);
    if (seen.find(key) == nullptr) {
      seen.set(key, Value(true));
      out.push_back(std::move(item));
    }
  }
  return Value::list(std::move(out), SequenceKind::kGenerator);
}

Value groupby_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "groupby");
  const Value attribute = read.get("attribute");
  const Value fallback = read.get("default", Value());
  const bool case_sensitive = read.get_bool("case_sensitive", false);
  read.finish();
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : elements(in, value)) {
    Value key = by_path(in, item, attribute);
    key = key.is_undefined() ? fallback : key;
    keyed.emplace_back(ignore_case(key, case_sensitive), std::move(item));
  }
  sort_values(in, keyed, false);
  List out;
  for (size_t begin = 0; begin < keyed.size();) {
    List group;
    size_t end = begin;
    while (end < keyed.size() && equals(keyed[end].first, keyed[begin].first)) {
      group.push_back(keyed[end++].second);
    }
    const Value& first = group.front();
    Value name = by_path(in, first, attribute);
    out.push_back(Value::list({name.is_undefined() ? fallback : name, Value::list(group)},
                              SequenceKind::kTuple));
    begin = end;
  }
  return Value::list(std::move(out));
}

Value sum_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "sum");
  const Value attribute = read.get("attribute", Value::none());
  Value total = read.get("start", Value(int64_t{0}));
  read.finish();
  for (const Value& item : elements(in, value)) {
    total = binary(in, "+", total, attribute.is_none() ? item : by_path(in, item, attribute));
  }
  return total;
}

template <bool kMax>
Value extreme_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, kMax ? "max" : "min");
  const bool case_sensitive = read.get_bool("case_sensitive", false);
  const Value attribute = read.get("attribute", Value::none());
  read.finish();
  const List items = elements(in, value);
  const auto key = [&](const Value& item) {
    return ignore_case(attribute.is_none() ? item : by_path(in, item, attribute), case_sensitive);
  };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const int order = compare(key(items[i]), key(items[best]));
    best = (kMax ? order > 0 : order < 0) ? i : best;
  }
  return items.empty() ? Value::undefined("No aggregated item, sequence was empty.") : items[best];
}

// Rows of `count` items, the last filled up.
Value batch_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "batch");
  const int64_t count = read.get_int("linecount", 0);
  const Value fill = read.get("fill_with", Value::none());
  read.finish();
  if (count < 1 || count > (1 << 20)) {
    fail(str_cat("batch of ", count, " items, expected 1 to ", 1 << 20));
  }
  List rows;
  List row;
  for (Value& item : elements(in, value)) {
    row.push_back(std::move(item));
    if (static_cast<int64_t>(row.size()) == count) {
      rows.push_back(Value::list(std::exchange(row, {})));
    }
  }
  if (!row.empty()) {
    while (!fill.is_none() && static_cast<int64_t>(row.size()) < count) {
      in.charge(32);
      row.push_back(fill);
    }
    rows.push_back(Value::list(std::move(row)));
  }
  return Value::list(std::move(rows), SequenceKind::kGenerator);
}

// `count` columns of equal length, the first ones longer by one.
Value slice_filter(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "slice");
  const int64_t count = read.get_int("slices", 0);
  const Value fill = read.get("fill_with", Value::none());
  read.finish();
  if (count < 1 || count > (1 << 20)) {
    fail(str_cat("slice in ", count, " columns, expected 1 to ", 1 << 20));
  }
  const List items = elements(in, value);
  const auto length = static_cast<int64_t>(items.size());
  in.charge(count * 100);
  List columns;
  int64_t at = 0;
  for (int64_t column = 0; column < count; ++column) {
    const int64_t size = length / count + (column < length % count ? 1 : 0);
    List part(items.begin() + at, items.begin() + at + size);
    at += size;
    if (!fill.is_none() && length % count != 0 && column >= length % count) {
      part.push_back(fill);
    }
    columns.push_back(Value::list(std::move(part)));
  }
  return Value::list(std::move(columns), SequenceKind::kGenerator);
}

Value attr_filter(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "attr");
  const std::string name = read.get_text("name").text;
  read.finish();
  // Attributes only: a mapping's items are not its attributes.
  if (value.is_dict()) {
    return find_method(value, name).value_or(Value::undefined(name));
  }
  return get_attribute(value, name);
}

constexpr NamedFilter kFilters[] = {
    {"length", length_filter},
    {"count", length_filter},
    {"list", list_filter},
    {"first", first_filter},
    {"last", last_filter},
    {"reverse", reverse_filter},
    {"join", join_filter},
    {"sort", sort_filter},
    {"dictsort", dictsort_filter},
    {"items", items_filter},
    {"map", map_filter},
    {"select", select_filter<true, false>},
    {"reject", select_filter<false, false>},
    {"selectattr", select_filter<true, true>},
    {"rejectattr", select_filter<false, true>},
    {"unique", unique_filter},
    {"groupby", groupby_filter},
    {"sum", sum_filter},
    {"max", extreme_filter<true>},
    {"min", extreme_filter<false>},
    {"batch", batch_filter},
    {"slice", slice_filter},
    {"attr", attr_filter},
};

}  // namespace

std::span<const NamedFilter> list_filters() {
  return kFilters;
}

}  // namespace mstar::jinja

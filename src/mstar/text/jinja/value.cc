#include "mstar/text/jinja/value.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/marked_text.h"

namespace mstar::jinja {

namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxHeight = 80;

// Words that templates put into control tokens ("<|" + role + "|>"): a client chooses among them,
// but cannot choose others.
bool is_known_role(std::string_view text) {
  static constexpr std::array<std::string_view, 10> kRoles = {"system",
                                                              "user",
                                                              "assistant",
                                                              "tool",
                                                              "developer",
                                                              "model",
                                                              "function",
                                                              "ipython",
                                                              "tool_response",
                                                              "environment"};
  return std::find(kRoles.begin(), kRoles.end(), text) != kRoles.end();
}

Value convert(const Json& json, bool from_user, int depth);

Value convert_object(const Json& json, bool from_user, int depth) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, member] : json.get_object()) {
    const bool role = key == "role" && member.is_string() && is_known_role(member.get_string());
    MarkedText name;
    append(name, key, from_user);
    dict->set(Value(std::move(name)), convert(member, from_user && !role, depth + 1));
  }
  return Value(std::move(dict));
}

Value convert(const Json& json, bool from_user, int depth) {
  if (depth > kMaxDepth) {
    fail(str_cat("a value is nested deeper than ", kMaxDepth, " levels"));
  }
  if (json.is_null()) return Value::none();
  if (json.is_bool()) return Value(json.get_bool());
  if (json.is_object()) return convert_object(json, from_user, depth);
  if (json.is_integer()) {
    // Integers above 2^63 lose digits; no template computes with them.
    return json.get_double() < 9.2e18 ? Value(json.get_int()) : Value(json.get_double());
  }
  if (json.is_number()) return Value(json.get_double());
  if (json.is_string()) {
    MarkedText text;
    append(text, json.get_string(), from_user);
    return Value(std::move(text));
  }
  List items;
  items.reserve(json.size());
  for (const Json& item : json.get_array()) {
    items.push_back(convert(item, from_user, depth + 1));
  }
  return Value::list(std::move(items));
}

bool equal_lists(const List& a, const List& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equals);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  return a.items.size() == b.items.size() &&
         std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
           const Value* other = b.find(item.first);
           return other != nullptr && equals(item.second, *other);
         });
}

int checked_height(int height) {
  if (height > kMaxHeight) {
    fail(str_cat("a value is nested deeper than ", kMaxHeight, " levels"));
  }
  return height;
}

int sign(double difference) {
  return difference < 0 ? -1 : difference > 0 ? 1 : 0;
}

}  // namespace

void fail(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[chat template] ", what));
}

Value::Value(MarkedText text) : data_(std::make_shared<const MarkedText>(std::move(text))) {}

Value Value::undefined(std::string_view name) {
  Value value;
  value.data_ = std::make_shared<const Undefined>(Undefined{std::string(name)});
  return value;
}

Value Value::list(List items, SequenceKind kind) {
  Value value;
  const int height = height_over(items);
  value.data_ = std::make_shared<Sequence>(Sequence{kind, std::move(items), height});
  return value;
}

Value Value::function(std::string name,
                      std::function<Value(Interpreter&, Arguments&)> call,
                      int height) {
  return Value(std::make_shared<const Callable>(
      Callable{std::move(name), std::move(call), checked_height(height + 1)}));
}

Value Value::from_json(const Json& json, bool from_user) {
  return convert(json, from_user, 0);
}

bool Value::is_list_like() const {
  return is_sequence() && sequence().kind <= SequenceKind::kRange;
}

bool Value::is_generator() const {
  return is_sequence() && sequence().kind == SequenceKind::kGenerator;
}

bool Value::as_bool() const {
  if (is_undefined() || is_none()) return false;
  if (is_bool()) return get_bool();
  if (is_int()) return as_int() != 0;
  if (is_float()) return get_float() != 0.0;
  if (is_string()) return !bytes().empty();
  if (is_dict()) return !dict().items.empty();
  if (is_sequence()) return is_generator() || !sequence().items.empty();
  return true;
}

int64_t Value::as_int() const {
  return is_bool() ? (get_bool() ? 1 : 0) : std::get<int64_t>(data_);
}

double Value::as_double() const {
  return is_float() ? get_float() : static_cast<double>(as_int());
}

int Value::height() const {
  if (is_sequence()) return sequence().height;
  if (is_dict()) return dict().height;
  if (is_callable()) return callable().height;
  return is_loop() ? loop().height : 0;
}

int height_over(const List& items) {
  int height = 0;
  for (const Value& item : items) {
    height = std::max(height, item.height());
  }
  return checked_height(height + 1);
}

const char* Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_dict()) return "dict";
  if (is_namespace()) return "Namespace";
  if (is_loop()) return "LoopContext";
  if (is_callable()) return "function";
  static constexpr const char* kNames[] = {"list", "tuple", "range", "dict_view", "generator"};
  return kNames[static_cast<size_t>(sequence().kind)];
}

bool Value::same_as(const Value& other) const {
  if (is_string() && other.is_string()) {
    return bytes() == other.bytes();
  }
  if (data_.index() != other.data_.index()) {
    return false;
  }
  return is_undefined() || data_ == other.data_;
}

void Dict::set(Value key, Value value) {
  height = std::max(height, checked_height(1 + std::max(key.height(), value.height())));
  if (key.is_sequence() ? key.sequence().kind != SequenceKind::kTuple
                        : key.is_dict() || key.is_namespace()) {
    fail(str_cat("unhashable type: '", key.type_name(), "'"));
  }
  if (key.is_string()) {
    const auto [place, is_new] = index.try_emplace(key.bytes(), items.size());
    if (!is_new) {
      items[place->second].second = std::move(value);
      return;
    }
  } else {
    for (auto& item : items) {
      if (equals(item.first, key)) {
        item.second = std::move(value);
        return;
      }
    }
  }
  items.emplace_back(std::move(key), std::move(value));
}

const Value* Dict::find(const std::string& key) const {
  const auto found = index.find(key);
  return found == index.end() ? nullptr : &items[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) {
    return find(key.bytes());
  }
  for (const auto& item : items) {
    if (equals(item.first, key)) {
      return &item.second;
    }
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& item : items) {
    if (item.first == name) {
      item.second = std::move(value);
      return;
    }
  }
  items.emplace_back(name, std::move(value));
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& item : items) {
    if (item.first == name) {
      return &item.second;
    }
  }
  return nullptr;
}

bool equals(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.as_double() == b.as_double() : a.as_int() == b.as_int();
  }
  if (a.is_string() && b.is_string()) {
    return a.bytes() == b.bytes();
  }
  if (a.is_sequence() && b.is_sequence()) {
    return a.sequence().kind == b.sequence().kind &&
           equal_lists(a.sequence().items, b.sequence().items);
  }
  if (a.is_dict() && b.is_dict()) {
    return equal_dicts(a.dict(), b.dict());
  }
  return a.same_as(b);
}

int compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) {
      return sign(a.as_double() - b.as_double());
    }
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  }
  if (a.is_string() && b.is_string()) {
    return a.bytes().compare(b.bytes());
  }
  if (a.is_list_like() && b.is_list_like() && a.sequence().kind == b.sequence().kind) {
    const List& left = a.sequence().items;
    const List& right = b.sequence().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equals(left[i], right[i])) {
        return compare(left[i], right[i]);
      }
    }
    return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
  }
  if (a.is_undefined() || b.is_undefined()) {
    fail(str_cat("'", (a.is_undefined() ? a : b).undefined_name(), "' is undefined"));
  }
  fail(str_cat("'", a.type_name(), "' and '", b.type_name(), "' have no order"));
}

}  // namespace mstar::jinja

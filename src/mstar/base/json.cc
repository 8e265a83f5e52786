#include "mstar/base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_set>

#include "nlohmann/json.hpp"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

[[noreturn]] void throw_bad(std::string_view where, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[", where, "] ", what));
}

}  // namespace

// Receives nlohmann's events; a tree of our own type without its DOM in between.
class JsonBuilder {
 public:
  using number_integer_t = int64_t;
  using number_unsigned_t = uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  JsonBuilder(std::string_view where, int max_depth) : where_(where), max_depth_(max_depth) {}

  bool null() { return add(Json()); }

  bool boolean(bool value) { return add(Json(value)); }

  bool number_integer(int64_t value) { return add(Json(value)); }

  bool number_unsigned(uint64_t value) { return add(Json(value)); }

  bool number_float(double value, const std::string&) { return add(Json(value)); }

  bool string(std::string& value) { return add(Json(std::move(value))); }

  bool binary(binary_t&) { return false; }

  bool start_object(size_t) { return push(Json::object()); }

  bool start_array(size_t) { return push(Json::array()); }

  bool key(std::string& name) {
    if (!open_.back().keys.insert(name).second) {
      throw_bad(where_, str_cat("key \"", name, "\" stands twice in one object"));
    }
    open_.back().key = std::move(name);
    return true;
  }

  bool end_object() { return pop(); }

  bool end_array() { return pop(); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    std::string text = error.what();
    // "[json.exception.parse_error.101] parse error at …: syntax error …": keep the last part.
    const size_t cut = text.find("syntax error");
    throw_bad(where_,
              str_cat("not valid JSON at byte ",
                      position,
                      ": ",
                      cut == std::string::npos ? text : text.substr(cut)));
  }

  Json take() { return std::move(root_); }

 private:
  struct Open {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Open& top = open_.back();
    if (auto* object = std::get_if<Json::Object>(&top.value.value_)) {
      object->emplace_back(std::move(top.key), std::move(value));
    } else {
      std::get<Json::Array>(top.value.value_).push_back(std::move(value));
    }
    return true;
  }

  bool push(Json value) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      throw_bad(where_, str_cat("nested deeper than ", max_depth_, " levels"));
    }
    open_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool pop() {
    Json done = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(done));
  }

  std::string_view where_;
  int max_depth_;
  Json root_;
  std::vector<Open> open_;
};

namespace {

nlohmann::ordered_json to_nlohmann(const Json& json) {
  using Out = nlohmann::ordered_json;
  if (json.is_null()) {
    return nullptr;
  }
  if (json.is_bool()) {
    return json.get_bool();
  }
  if (json.is_string()) {
    return json.get_string();
  }
  if (json.is_array()) {
    Out out = Out::array();
    for (const Json& item : json.get_array()) {
      out.push_back(to_nlohmann(item));
    }
    return out;
  }
  if (json.is_object()) {
    Out out = Out::object();
    auto& members = out.get_ref<Out::object_t&>();
    for (const auto& [key, value] : json.get_object()) {
      members.emplace_back(key, to_nlohmann(value));
    }
    return out;
  }
  if (!json.is_integer()) {
    return json.get_double();
  }
  if (json == Json(0) || json.get_double() < 0) {
    return json.get_int();
  }
  return json.get_uint();
}

}  // namespace

Json::Json(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    value_ = static_cast<int64_t>(value);
  } else {
    value_ = value;
  }
}

Json Json::object(std::initializer_list<Member> members) {
  return Json(Object(members));
}

Json Json::parse(std::string_view text, std::string_view where, int max_depth) {
  JsonBuilder builder(where, max_depth);
  if (!nlohmann::json::sax_parse(text, &builder)) {
    throw_bad(where, "not valid JSON");
  }
  return builder.take();
}

std::string Json::dump(int indent) const {
  return to_nlohmann(*this).dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {
      "null", "boolean", "integer", "integer", "number", "string", "array", "object"};
  return kNames[value_.index()];
}

void Json::throw_type(const char* expected) const {
  throw Error(ErrorCode::kInvalidArgument, str_cat("found ", type_name(), ", expected ", expected));
}

bool Json::get_bool() const {
  if (const bool* value = std::get_if<bool>(&value_)) {
    return *value;
  }
  throw_type("boolean");
}

int64_t Json::get_int() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) {
    return *value;
  }
  if (const double* value = std::get_if<double>(&value_)) {
    if (std::trunc(*value) == *value && std::fabs(*value) < 9.0e15) {
      return static_cast<int64_t>(*value);
    }
  }
  throw_type("integer");
}

uint64_t Json::get_uint() const {
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) {
    return *value;
  }
  const int64_t value = get_int();
  if (value < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("found ", value, ", expected an integer that is not negative"));
  }
  return static_cast<uint64_t>(value);
}

double Json::get_double() const {
  if (const double* value = std::get_if<double>(&value_)) {
    return *value;
  }
  if (const int64_t* value = std::get_if<int64_t>(&value_)) {
    return static_cast<double>(*value);
  }
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) {
    return static_cast<double>(*value);
  }
  throw_type("number");
}

const std::string& Json::get_string() const {
  if (const std::string* value = std::get_if<std::string>(&value_)) {
    return *value;
  }
  throw_type("string");
}

const Json::Array& Json::get_array() const {
  if (const Array* value = std::get_if<Array>(&value_)) {
    return *value;
  }
  throw_type("array");
}

Json::Array& Json::get_array() {
  return const_cast<Array&>(std::as_const(*this).get_array());
}

const Json::Object& Json::get_object() const {
  if (const Object* value = std::get_if<Object>(&value_)) {
    return *value;
  }
  throw_type("object");
}

Json::Object& Json::get_object() {
  return const_cast<Object&>(std::as_const(*this).get_object());
}

size_t Json::size() const {
  if (is_array()) {
    return get_array().size();
  }
  return is_object() ? get_object().size() : 0;
}

const Json* Json::find(std::string_view key) const {
  if (const Object* object = std::get_if<Object>(&value_)) {
    for (const auto& [name, value] : *object) {
      if (name == key) {
        return &value;
      }
    }
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* value = find(key)) {
    return *value;
  }
  throw Error(ErrorCode::kInvalidArgument, str_cat("key \"", key, "\" is missing"));
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) {
    value_ = Object();
  }
  for (auto& [name, old] : get_object()) {
    if (name == key) {
      old = std::move(value);
      return *this;
    }
  }
  get_object().emplace_back(std::string(key), std::move(value));
  return *this;
}

void Json::push_back(Json value) {
  if (is_null()) {
    value_ = Array();
  }
  get_array().push_back(std::move(value));
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) {
      return a.value_ == b.value_;
    }
    return a.get_double() == b.get_double();
  }
  if (a.is_object() && b.is_object()) {
    return a.size() == b.size() && std::ranges::all_of(a.get_object(), [&](const auto& member) {
             const Json* other = b.find(member.first);
             return other != nullptr && member.second == *other;
           });
  }
  return a.value_ == b.value_;
}

JsonReader::JsonReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) {
    throw_bad(where_, str_cat("found ", object.type_name(), ", expected an object"));
  }
}

void JsonReader::fail(std::string_view key, const std::string& what) const {
  throw_bad(where_, str_cat("\"", key, "\": ", what));
}

const Json* JsonReader::lookup(std::string_view key) {
  asked_.emplace_back(key);
  const Json* value = object_.find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

bool JsonReader::has(std::string_view key) const {
  const Json* value = object_.find(key);
  return value != nullptr && !value->is_null();
}

const Json* JsonReader::find(std::string_view key) {
  return lookup(key);
}

const Json& JsonReader::get(std::string_view key) {
  if (const Json* value = lookup(key)) {
    return *value;
  }
  fail(key, "is missing");
}

bool JsonReader::get_bool(std::string_view key) {
  try {
    return get(key).get_bool();
  } catch (const Error& error) {
    if (error.what()[0] == '[') {
      throw;
    }
    fail(key, error.what());
  }
}

bool JsonReader::get_bool(std::string_view key, bool fallback) {
  return lookup(key) != nullptr ? get_bool(key) : fallback;
}

int64_t JsonReader::get_int(std::string_view key) {
  try {
    return get(key).get_int();
  } catch (const Error& error) {
    if (error.what()[0] == '[') {
      throw;
    }
    fail(key, error.what());
  }
}

int64_t JsonReader::get_int(std::string_view key, int64_t fallback) {
  return lookup(key) != nullptr ? get_int(key) : fallback;
}

double JsonReader::get_double(std::string_view key) {
  try {
    return get(key).get_double();
  } catch (const Error& error) {
    if (error.what()[0] == '[') {
      throw;
    }
    fail(key, error.what());
  }
}

double JsonReader::get_double(std::string_view key, double fallback) {
  return lookup(key) != nullptr ? get_double(key) : fallback;
}

std::string JsonReader::get_string(std::string_view key) {
  try {
    return get(key).get_string();
  } catch (const Error& error) {
    if (error.what()[0] == '[') {
      throw;
    }
    fail(key, error.what());
  }
}

std::string JsonReader::get_string(std::string_view key, std::string_view fallback) {
  return lookup(key) != nullptr ? get_string(key) : std::string(fallback);
}

void JsonReader::ignore(std::string_view key) {
  asked_.emplace_back(key);
}

void JsonReader::finish() const {
  for (const auto& [key, value] : object_.get_object()) {
    if (std::ranges::find(asked_, key) == asked_.end()) {
      const std::string near = nearest_name(key, asked_);
      fail(key,
           near.empty() ? "is not a known key"
                        : str_cat("is not a known key; did you mean \"", near, "\"?"));
    }
  }
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t column = 0; column < row.size(); ++column) {
      row[column] = column;
    }
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t substitute = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace mstar

#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace mstar {

// One JSON value. Objects keep the order of their keys. Integers stay integers: a seed of 2^63
// is not rounded through a double. Thread-compatible.
//
// The get_* functions throw Error(kInvalidArgument) naming what was found and what was expected;
// `where` in their messages is the caller's to add (see JsonReader for whole configs).
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null

  Json(std::nullptr_t) {}  // NOLINT: values convert

  Json(bool value) : value_(value) {}  // NOLINT

  Json(int value) : value_(static_cast<int64_t>(value)) {}  // NOLINT

  Json(int64_t value) : value_(value) {}  // NOLINT

  Json(uint64_t value);  // NOLINT

  Json(double value) : value_(value) {}  // NOLINT

  Json(const char* value) : value_(std::string(value)) {}  // NOLINT

  Json(std::string value) : value_(std::move(value)) {}  // NOLINT

  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT

  Json(Array value) : value_(std::move(value)) {}  // NOLINT

  static Json array() { return Json(Array()); }

  static Json object() { return object({}); }

  static Json object(std::initializer_list<Member> members);

  // Reads one document and nothing behind it. `where` starts the message of the error that bad
  // text, a depth over `max_depth` or a repeated key gives.
  static Json parse(std::string_view text, std::string_view where = "json", int max_depth = 64);

  // `indent` < 0: one line without spaces. Bytes that are not UTF-8 become U+FFFD.
  std::string dump(int indent = -1) const;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }

  bool is_bool() const { return std::holds_alternative<bool>(value_); }

  // True for integers of any size; uint64 above int64 too.
  bool is_integer() const {
    return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_);
  }

  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }

  bool is_string() const { return std::holds_alternative<std::string>(value_); }

  bool is_array() const { return std::holds_alternative<Array>(value_); }

  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // "null", "boolean", "integer", "number", "string", "array" or "object".
  const char* type_name() const;

  bool get_bool() const;
  int64_t get_int() const;    // a double without fraction counts
  uint64_t get_uint() const;  // the same, not negative
  double get_double() const;  // any number
  const std::string& get_string() const;
  const Array& get_array() const;
  Array& get_array();
  const Object& get_object() const;
  Object& get_object();

  // Number of elements of an array or members of an object, else 0.
  size_t size() const;

  // Array element; the index must exist.
  const Json& operator[](size_t index) const { return get_array().at(index); }

  // Member of an object, or null when absent or when this is not an object. Linear: objects here
  // are small; a big one (a vocabulary) is walked with get_object().
  const Json* find(std::string_view key) const;

  bool contains(std::string_view key) const { return find(key) != nullptr; }

  // Member that must exist; throws naming the key.
  const Json& at(std::string_view key) const;

  // Adds or replaces a member; makes a null an object first.
  Json& set(std::string_view key, Json value);

  // Appends to an array; makes a null an array first.
  void push_back(Json value);

  // Numbers compare by value (1 equals 1.0), objects without regard to order.
  friend bool operator==(const Json& a, const Json& b);

 private:
  explicit Json(Object value) : value_(std::move(value)) {}

  [[noreturn]] void throw_type(const char* expected) const;

  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;

  friend class JsonBuilder;
};

// Reads one object strictly: every key is either asked for or an error. Use for configuration
// files and requests:
//   JsonReader reader(json, "config.json");
//   config.hidden_size = reader.get_int("hidden_size");
//   config.rope_theta = reader.get_double("rope_theta", 10000.0);
//   reader.finish();   // throws on keys nobody asked for, naming the nearest known one
// Errors are Error(kInvalidArgument) whose message starts with [where] and names the key.
// The JSON must outlive the reader. One thread.
class JsonReader {
 public:
  JsonReader(const Json& object, std::string where);

  const std::string& where() const { return where_; }

  bool has(std::string_view key) const;  // present and not null; does not count as asked for

  bool get_bool(std::string_view key);
  bool get_bool(std::string_view key, bool fallback);
  int64_t get_int(std::string_view key);
  int64_t get_int(std::string_view key, int64_t fallback);
  double get_double(std::string_view key);
  double get_double(std::string_view key, double fallback);
  std::string get_string(std::string_view key);
  std::string get_string(std::string_view key, std::string_view fallback);
  const Json& get(std::string_view key);   // must be there and not null
  const Json* find(std::string_view key);  // null pointer when absent or null

  void ignore(std::string_view key);  // known, carries nothing for us

  // Throws when the object has keys that were never asked for.
  void finish() const;

 private:
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;
  const Json* lookup(std::string_view key);

  const Json& object_;
  std::string where_;
  std::vector<std::string> asked_;
};

// The candidate nearest to `word` by edit distance, or "" when none is near. For messages.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mstar

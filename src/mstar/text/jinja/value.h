#pragma once

// Values of the template language, with Python's meaning of truth, equality, order and text.
// Values are cheap to copy and never change once made, namespaces excepted. One thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/text/text_range.h"

namespace mstar::jinja {

class Value;
class Interpreter;

using List = std::vector<Value>;

// Arguments of a call.
struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

// How a sequence prints and what may be done with it.
enum class SequenceKind : uint8_t { kList, kTuple, kRange, kView, kGenerator };

struct Sequence;
struct Dict;
struct Namespace;
struct Callable;
struct LoopState;

class Value {
 public:
  struct Undefined {
    std::string name;  // what was looked up, for messages
  };

  Value() : data_(std::make_shared<const Undefined>()) {}

  Value(std::nullptr_t) : data_(nullptr) {}  // NOLINT: values convert

  Value(bool value) : data_(value) {}  // NOLINT

  Value(int64_t value) : data_(value) {}  // NOLINT

  Value(double value) : data_(value) {}  // NOLINT

  Value(MarkedText text);  // NOLINT

  Value(std::string text) : Value(MarkedText{std::move(text), {}}) {}  // NOLINT

  Value(std::shared_ptr<Dict> dict) : data_(std::move(dict)) {}  // NOLINT

  Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}  // NOLINT

  Value(std::shared_ptr<const Callable> call) : data_(std::move(call)) {}  // NOLINT

  Value(std::shared_ptr<const LoopState> loop) : data_(std::move(loop)) {}  // NOLINT

  static Value undefined(std::string_view name);

  static Value none() { return Value(nullptr); }

  static Value list(List items, SequenceKind kind = SequenceKind::kList);
  // `height`: of the values that the function holds on to.
  static Value function(std::string name,
                        std::function<Value(Interpreter&, Arguments&)> call,
                        int height = 0);

  // Strings become user text if `from_user`. Well-known message roles stay the template's words:
  // templates build control tokens from them.
  static Value from_json(const Json& json, bool from_user);

  bool is_undefined() const { return holds<std::shared_ptr<const Undefined>>(); }

  bool is_none() const { return holds<std::nullptr_t>(); }

  bool is_bool() const { return holds<bool>(); }

  bool is_int() const { return holds<int64_t>(); }  // without bool

  bool is_float() const { return holds<double>(); }

  bool is_number() const { return is_bool() || is_int() || is_float(); }

  bool is_string() const { return holds<std::shared_ptr<const MarkedText>>(); }

  bool is_sequence() const { return holds<std::shared_ptr<Sequence>>(); }

  bool is_dict() const { return holds<std::shared_ptr<Dict>>(); }

  bool is_namespace() const { return holds<std::shared_ptr<Namespace>>(); }

  bool is_callable() const { return holds<std::shared_ptr<const Callable>>(); }

  bool is_loop() const { return holds<std::shared_ptr<const LoopState>>(); }

  // Each only after the question of the same name.
  bool get_bool() const { return std::get<bool>(data_); }

  double get_float() const { return std::get<double>(data_); }

  const MarkedText& text() const { return *std::get<std::shared_ptr<const MarkedText>>(data_); }

  const std::string& bytes() const { return text().text; }

  const Sequence& sequence() const { return *std::get<std::shared_ptr<Sequence>>(data_); }

  Sequence& sequence() { return *std::get<std::shared_ptr<Sequence>>(data_); }

  const Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }

  Namespace& name_space() const { return *std::get<std::shared_ptr<Namespace>>(data_); }

  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }

  const LoopState& loop() const { return *std::get<std::shared_ptr<const LoopState>>(data_); }

  const std::string& undefined_name() const {
    return std::get<std::shared_ptr<const Undefined>>(data_)->name;
  }

  bool is_list_like() const;  // list, tuple or range: can be indexed
  bool is_generator() const;

  bool as_bool() const;      // Python's truth
  int64_t as_int() const;    // of a bool or an int
  double as_double() const;  // of any number

  // How deep values lie in values. Bounded, because everything that walks a value recurses.
  int height() const;

  // "str", "int", … as Python names the type.
  const char* type_name() const;

  // Whether both are the same object, or equal values of None, bool and numbers.
  bool same_as(const Value& other) const;

 private:
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }

  std::variant<std::shared_ptr<const Undefined>,
               std::nullptr_t,
               bool,
               int64_t,
               double,
               std::shared_ptr<const MarkedText>,
               std::shared_ptr<Sequence>,
               std::shared_ptr<Dict>,
               std::shared_ptr<Namespace>,
               std::shared_ptr<const Callable>,
               std::shared_ptr<const LoopState>>
      data_;
};

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  List items;  // a generator's are taken by the first who walks over it
  int height = 1;
};

// Keys in the order of insertion; equal keys are one key.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  std::unordered_map<std::string, size_t> index;  // of string keys
  int height = 1;

  void set(Value key, Value value);
  const Value* find(const Value& key) const;
  const Value* find(const std::string& key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> items;

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
};

struct Callable {
  std::string name;
  std::function<Value(Interpreter&, Arguments&)> call;
  int height = 1;
};

// The variable `loop`, as it stands in one round.
struct LoopState {
  std::shared_ptr<const List> items;
  size_t index0 = 0;
  int depth0 = 0;
  std::function<Value(Interpreter&, const Value&)> recurse;  // only in a recursive loop
  std::shared_ptr<std::optional<List>> changed;              // last arguments of loop.changed
  int height = 1;
};

// One more than the highest of `items`. Throws Error when that is nested too deep.
int height_over(const List& items);

bool equals(const Value& a, const Value& b);

// Below zero, zero or above as a is less, equal or greater. Throws Error for types without order.
int compare(const Value& a, const Value& b);

// str() and repr() of Python. Undefined is "".
MarkedText to_text(const Value& value);
void append_repr(MarkedText& out, const Value& value);

// Python's text of a float: shortest digits that read back the same.
std::string float_text(double value);

struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // text of one level; none: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// json.dumps of Python. Throws Error for what JSON does not have.
MarkedText to_json(const Value& value, const JsonOptions& options);

// What the template does wrong or asks for in vain: Error(kInvalidArgument) with "[chat template]".
[[noreturn]] void fail(const std::string& what);

}  // namespace mstar::jinja

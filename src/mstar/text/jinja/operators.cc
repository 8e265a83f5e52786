// Attributes, items and operators as Python defines them.

#include <cmath>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/interpreter.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

namespace {

Value loop_attribute(const LoopState& loop, const std::string& name) {
  const auto index = static_cast<int64_t>(loop.index0);
  const auto length = static_cast<int64_t>(loop.items->size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(static_cast<int64_t>(loop.depth0 + 1));
  if (name == "depth0") return Value(static_cast<int64_t>(loop.depth0));
  if (name == "previtem") {
    return index > 0 ? (*loop.items)[loop.index0 - 1]
                     : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? (*loop.items)[loop.index0 + 1]
                              : Value::undefined("there is no next item");
  }
  if (name == "cycle") {
    return Value::function("cycle", [index](Interpreter&, Arguments& arguments) {
      if (arguments.positional.empty()) {
        fail("loop.cycle takes at least one value");
      }
      return arguments.positional[static_cast<size_t>(index) % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return Value::function("changed", [last = loop.changed](Interpreter&, Arguments& arguments) {
      const bool same =
          last->has_value() && equals(Value::list(**last), Value::list(arguments.positional));
      height_over(arguments.positional);
      *last = arguments.positional;
      return Value(!same);
    });
  }
  return Value::undefined(str_cat("loop.", name));
}

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) {
      fail(str_cat("'", value->undefined_name(), "' is undefined"));
    }
  }
  fail(str_cat(
      "unsupported operand types for ", op, ": '", a.type_name(), "' and '", b.type_name(), "'"));
}

[[noreturn]] void fail_overflow() {
  fail("an integer grows over 64 bits");
}

Value add_int(int64_t a, int64_t b) {
  int64_t out;
  return __builtin_add_overflow(a, b, &out) ? (fail_overflow(), Value()) : Value(out);
}

Value power_int(int64_t base, int64_t exponent) {
  int64_t out = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(out, base, &out)) {
      fail_overflow();
    }
    if (out == 0 || out == 1) {
      return Value(out);  // 0 and 1 stay; -1 alternates and ends soon enough below
    }
    if (base == -1) {
      return Value(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
    }
  }
  return Value(out);
}

// Division and remainder round down, not towards zero.
Value divide_int(int64_t a, int64_t b, bool remainder) {
  if (b == 0) {
    fail("division by zero");
  }
  if (b == -1) {
    return remainder ? Value(int64_t{0}) : add_int(0, a == INT64_MIN ? (fail_overflow(), 0) : -a);
  }
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    --quotient;
  }
  return Value(remainder ? rest : quotient);
}

Value arithmetic_int(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  if (op == "+") return add_int(a, b);
  if (op == "-")
    return __builtin_sub_overflow(a, b, &out) ? (fail_overflow(), Value()) : Value(out);
  if (op == "*")
    return __builtin_mul_overflow(a, b, &out) ? (fail_overflow(), Value()) : Value(out);
  if (op == "//") return divide_int(a, b, false);
  if (op == "%") return divide_int(a, b, true);
  if (op == "**" && b >= 0) return power_int(a, b);
  if (op == "**") return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  if (b == 0) {
    fail("division by zero");
  }
  return Value(static_cast<double>(a) / static_cast<double>(b));
}

Value arithmetic_float(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0.0) {
    fail("division by zero");
  }
  if (op == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0.0 && (rest < 0.0) != (b < 0.0)) {
    rest += b;
  }
  return Value(op == "%" ? rest : std::floor((a - rest) / b + 0.5));
}

Value repeat(Interpreter& interpreter, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const size_t unit = value.is_string() ? value.bytes().size() : value.sequence().items.size() * 32;
  if (unit > 0 && static_cast<uint64_t>(count) > Interpreter::kMaxTextBytes / unit) {
    throw Error(ErrorCode::kTooLarge, "[chat template] a text grows over 64 MiB");
  }
  if (unit == 0) {
    return value;
  }
  interpreter.charge(static_cast<int64_t>(unit) * count);
  if (value.is_string()) {
    MarkedText out;
    for (int64_t i = 0; i < count; ++i) {
      append(out, value.text());
    }
    return Value(std::move(out));
  }
  List out;
  for (int64_t i = 0; i < count; ++i) {
    const List& items = value.sequence().items;
    out.insert(out.end(), items.begin(), items.end());
  }
  return Value::list(std::move(out), value.sequence().kind);
}

bool is_list_or_tuple(const Value& value) {
  return value.is_sequence() && value.sequence().kind <= SequenceKind::kTuple;
}

Value item_of_string(const Value& value, int64_t index) {
  const MarkedText& text = value.text();
  if (index < 0) {
    index += static_cast<int64_t>(count_code_points(text.text));
  }
  const size_t begin =
      index < 0 ? text.text.size() : code_point_offset(text.text, static_cast<size_t>(index));
  if (begin >= text.text.size()) {
    return Value::undefined("string index out of range");
  }
  return Value(cut(text, begin, begin + decode_utf8(text.text, begin).num_bytes));
}

}  // namespace

Value get_attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) {
    fail(str_cat("'", value.undefined_name(), "' is undefined, so it has no '", name, "'"));
  }
  if (value.is_loop()) {
    return loop_attribute(value.loop(), name);
  }
  if (value.is_namespace()) {
    const Value* found = value.name_space().find(name);
    return found == nullptr ? Value::undefined(name) : *found;
  }
  if (value.is_callable() && name == "name") {
    return Value(value.callable().name);
  }
  if (auto method = find_method(value, name)) {
    return std::move(*method);
  }
  if (value.is_dict()) {
    const Value* found = value.dict().find(name);
    return found == nullptr ? Value::undefined(name) : *found;
  }
  return Value::undefined(name);
}

Value get_item(Interpreter& interpreter, const Value& value, const Value& key) {
  interpreter.charge(8);
  if (value.is_undefined()) {
    fail(str_cat("'", value.undefined_name(), "' is undefined, so it has no items"));
  }
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(key)) {
      return *found;
    }
  } else if (key.is_int() || key.is_bool()) {
    if (value.is_list_like()) {
      const List& items = value.sequence().items;
      int64_t index = key.as_int();
      index += index < 0 ? static_cast<int64_t>(items.size()) : 0;
      const bool there = index >= 0 && index < static_cast<int64_t>(items.size());
      return there ? items[static_cast<size_t>(index)]
                   : Value::undefined("list index out of range");
    }
    if (value.is_string()) {
      interpreter.charge(static_cast<int64_t>(value.bytes().size()) / 8);
      return item_of_string(value, key.as_int());
    }
  }
  if (key.is_string()) {
    return get_attribute(value, key.bytes());
  }
  return Value::undefined(to_text(key).text);
}

bool contains(Interpreter& interpreter, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail(str_cat("'in <string>' requires string as left operand, not ", item.type_name()));
    }
    interpreter.charge(static_cast<int64_t>(container.bytes().size()));
    return container.bytes().find(item.bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    return container.dict().find(item) != nullptr;
  }
  for (const Value& element : elements(interpreter, container)) {
    if (equals(element, item)) {
      return true;
    }
  }
  return false;
}

Value binary(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? arithmetic_float(op, a.as_double(), b.as_double())
                                        : arithmetic_int(op, a.as_int(), b.as_int());
  }
  if (op == "+" && a.is_string() && b.is_string()) {
    MarkedText out = a.text();
    append(out, b.text());
    return interpreter.made(std::move(out));
  }
  if (op == "+" && is_list_or_tuple(a) && is_list_or_tuple(b) &&
      a.sequence().kind == b.sequence().kind) {
    List out = a.sequence().items;
    const List& more = b.sequence().items;
    out.insert(out.end(), more.begin(), more.end());
    interpreter.charge(static_cast<int64_t>(out.size()) * 32);
    return Value::list(std::move(out), a.sequence().kind);
  }
  if (op == "%" && a.is_string()) {
    return interpreter.made(format_percent(a.text(), b));
  }
  if (op == "*" && (b.is_int() || b.is_bool()) && (a.is_string() || is_list_or_tuple(a))) {
    return repeat(interpreter, a, b.as_int());
  }
  if (op == "*" && (a.is_int() || a.is_bool()) && (b.is_string() || is_list_or_tuple(b))) {
    return repeat(interpreter, b, a.as_int());
  }
  fail_operands(op, a, b);
}

}  // namespace mstar::jinja

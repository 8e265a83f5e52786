// Tests: "x is even", also named in select and reject.

#include <string_view>

#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/call_arguments.h"
#include "mstar/text/jinja/interpreter.h"
#include "mstar/text/unicode.h"

namespace mstar::jinja {

namespace {

template <bool (*Is)(const Value&)>
bool kind_test(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader(arguments, "test").finish();
  return Is(value);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}

bool is_undefined(const Value& value) {
  return value.is_undefined();
}

bool is_none(const Value& value) {
  return value.is_none();
}

bool is_true(const Value& value) {
  return value.is_bool() && value.get_bool();
}

bool is_false(const Value& value) {
  return value.is_bool() && !value.get_bool();
}

bool is_boolean(const Value& value) {
  return value.is_bool();
}

bool is_integer(const Value& value) {
  return value.is_int();
}

bool is_float(const Value& value) {
  return value.is_float();
}

bool is_number(const Value& value) {
  return value.is_number();
}

bool is_string(const Value& value) {
  return value.is_string();
}

bool is_mapping(const Value& value) {
  return value.is_dict();
}

bool is_iterable(const Value& value) {
  return value.is_sequence() || value.is_dict() || value.is_string() || value.is_undefined();
}

// What has a length and items by index; mappings and texts count.
bool is_sequence(const Value& value) {
  return value.is_list_like() || value.is_dict() || value.is_string() || value.is_undefined();
}

bool is_callable(const Value& value) {
  return value.is_callable() || value.is_loop();
}

bool is_lower(const Value& value) {
  const std::string text = to_text(value).text;
  return to_lower(text) == text && to_upper(text) != text;
}

bool is_upper(const Value& value) {
  const std::string text = to_text(value).text;
  return to_upper(text) == text && to_lower(text) != text;
}

int64_t integer_of(const Value& value) {
  if (!value.is_int() && !value.is_bool()) {
    fail(str_cat("expected an integer, found ", value.type_name()));
  }
  return value.as_int();
}

bool is_odd(const Value& value) {
  return integer_of(value) % 2 != 0;
}

bool is_even(const Value& value) {
  return integer_of(value) % 2 == 0;
}

bool is_filter(const Value& value) {
  return value.is_string() && find_filter(value.bytes()) != nullptr;
}

bool is_test(const Value& value) {
  return value.is_string() && find_test(value.bytes()) != nullptr;
}

bool is_never(const Value&) {
  return false;
}

bool divisible_test(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "divisibleby");
  const int64_t divisor = read.get_int("num", 0);
  read.finish();
  if (divisor == 0) {
    fail("division by zero");
  }
  return divisor == -1 || integer_of(value) % divisor == 0;
}

bool same_test(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "sameas");
  const Value other = read.get("other");
  read.finish();
  return value.same_as(other);
}

bool in_test(Interpreter& in, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "in");
  const Value container = read.get("seq");
  read.finish();
  return contains(in, container, value);
}

enum class Relation { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

template <Relation kRelation>
bool relation_test(Interpreter&, const Value& value, Arguments& arguments) {
  ArgumentReader read(arguments, "comparison");
  const Value other = read.get("other");
  read.finish();
  if (kRelation == Relation::kEqual) return equals(value, other);
  if (kRelation == Relation::kNotEqual) return !equals(value, other);
  const int order = compare(value, other);
  if (kRelation == Relation::kLess) return order < 0;
  if (kRelation == Relation::kLessEqual) return order <= 0;
  return kRelation == Relation::kGreater ? order > 0 : order >= 0;
}

struct NamedTest {
  std::string_view name;
  Test test;
};

constexpr NamedTest kTests[] = {
    {"defined", kind_test<is_defined>},
    {"undefined", kind_test<is_undefined>},
    {"none", kind_test<is_none>},
    {"true", kind_test<is_true>},
    {"false", kind_test<is_false>},
    {"boolean", kind_test<is_boolean>},
    {"integer", kind_test<is_integer>},
    {"float", kind_test<is_float>},
    {"number", kind_test<is_number>},
    {"string", kind_test<is_string>},
    {"mapping", kind_test<is_mapping>},
    {"iterable", kind_test<is_iterable>},
    {"sequence", kind_test<is_sequence>},
    {"callable", kind_test<is_callable>},
    {"lower", kind_test<is_lower>},
    {"upper", kind_test<is_upper>},
    {"odd", kind_test<is_odd>},
    {"even", kind_test<is_even>},
    {"filter", kind_test<is_filter>},
    {"test", kind_test<is_test>},
    {"escaped", kind_test<is_never>},
    {"divisibleby", divisible_test},
    {"sameas", same_test},
    {"in", in_test},
    {"==", relation_test<Relation::kEqual>},
    {"eq", relation_test<Relation::kEqual>},
    {"equalto", relation_test<Relation::kEqual>},
    {"!=", relation_test<Relation::kNotEqual>},
    {"ne", relation_test<Relation::kNotEqual>},
    {"<", relation_test<Relation::kLess>},
    {"lt", relation_test<Relation::kLess>},
    {"lessthan", relation_test<Relation::kLess>},
    {"<=", relation_test<Relation::kLessEqual>},
    {"le", relation_test<Relation::kLessEqual>},
    {">", relation_test<Relation::kGreater>},
    {"gt", relation_test<Relation::kGreater>},
    {"greaterthan", relation_test<Relation::kGreater>},
    {">=", relation_test<Relation::kGreaterEqual>},
    {"ge", relation_test<Relation::kGreaterEqual>},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const NamedTest& candidate : kTests) {
    if (candidate.name == name) {
      return candidate.test;
    }
  }
  return nullptr;
}

}  // namespace mstar::jinja

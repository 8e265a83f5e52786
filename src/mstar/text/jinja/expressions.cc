// Evaluation of expressions.

#include <algorithm>

#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/ast.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

namespace {

// Python's slice over `length` elements: the first index, the step and how many there are.
struct SliceRange {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};

std::optional<int64_t> slice_bound(Interpreter& in, const ExpressionPtr& bound) {
  if (bound == nullptr) {
    return std::nullopt;
  }
  const Value value = bound->evaluate(in);
  if (value.is_none()) {
    return std::nullopt;
  }
  if (!value.is_int() && !value.is_bool()) {
    fail(str_cat("slice indices must be integers or None, not ", value.type_name()));
  }
  return value.as_int();
}

SliceRange slice_range(std::optional<int64_t> start,
                       std::optional<int64_t> stop,
                       int64_t step,
                       int64_t length) {
  if (step == 0) {
    fail("slice step cannot be zero");
  }
  step = std::clamp<int64_t>(step, -(int64_t{1} << 40), int64_t{1} << 40);
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? length : length - 1;
  const auto place = [&](std::optional<int64_t> bound, int64_t fallback) {
    if (!bound) {
      return fallback;
    }
    const int64_t index = *bound < 0 ? std::max(*bound, -length - 1) + length : *bound;
    return std::clamp(index, low, high);
  };
  const int64_t first = place(start, step > 0 ? low : high);
  const int64_t last = place(stop, step > 0 ? high : low);
  const int64_t span = step > 0 ? last - first : first - last;
  const int64_t width = step > 0 ? step : -step;
  return {first, step, span <= 0 ? 0 : (span + width - 1) / width};
}

Value slice_string(const MarkedText& text, const SliceRange& range) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.text.size(); ++i) {
    if (!is_utf8_continuation(text.text[i])) {
      offsets.push_back(i);
    }
  }
  offsets.push_back(text.text.size());
  if (range.step == 1) {
    const auto first = static_cast<size_t>(range.start);
    const size_t last = first + static_cast<size_t>(range.count);
    return Value(range.count == 0 ? MarkedText() : cut(text, offsets[first], offsets[last]));
  }
  MarkedText out;
  for (int64_t i = 0; i < range.count; ++i) {
    const auto at = static_cast<size_t>(range.start + i * range.step);
    append(out, cut(text, offsets[at], offsets[at + 1]));
  }
  return Value(std::move(out));
}

bool compare_by(Interpreter& in, const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return equals(a, b);
  if (op == "!=") return !equals(a, b);
  if (op == "in") return contains(in, b, a);
  if (op == "not in") return !contains(in, b, a);
  const int order = compare(a, b);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

}  // namespace

Arguments CallArguments::evaluate(Interpreter& in) const {
  Arguments out;
  for (const ExpressionPtr& item : positional) {
    out.positional.push_back(item->evaluate(in));
  }
  for (const auto& [name, item] : named) {
    out.named.emplace_back(name, item->evaluate(in));
  }
  if (list != nullptr) {
    for (Value& item : elements(in, list->evaluate(in))) {
      out.positional.push_back(std::move(item));
    }
  }
  if (dict != nullptr) {
    const Value values = dict->evaluate(in);
    if (!values.is_dict()) {
      fail(str_cat("argument after ** must be a mapping, not ", values.type_name()));
    }
    for (const auto& [key, item] : values.dict().items) {
      out.named.emplace_back(to_text(key).text, item);
    }
  }
  return out;
}

Value Constant::evaluate(Interpreter&) const {
  return value;
}

Value Name::evaluate(Interpreter& in) const {
  in.charge(Interpreter::kNodeCost);
  return in.find_variable(name);
}

Value ListLiteral::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  List out;
  out.reserve(items.size());
  for (const ExpressionPtr& item : items) {
    out.push_back(item->evaluate(in));
  }
  return Value::list(std::move(out), kind);
}

Value DictLiteral::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : items) {
    Value made_key = key->evaluate(in);
    dict->set(std::move(made_key), value->evaluate(in));
  }
  return Value(std::move(dict));
}

Value Attribute::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  return get_attribute(object->evaluate(in), name);
}

Value Subscript::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  const Value value = object->evaluate(in);
  return get_item(in, value, key->evaluate(in));
}

Value Slice::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  const Value value = object->evaluate(in);
  const auto from = slice_bound(in, start);
  const auto to = slice_bound(in, stop);
  const int64_t by = slice_bound(in, step).value_or(1);
  if (value.is_string()) {
    in.charge(static_cast<int64_t>(value.bytes().size()));
    const auto length = static_cast<int64_t>(count_code_points(value.bytes()));
    return slice_string(value.text(), slice_range(from, to, by, length));
  }
  if (!value.is_list_like()) {
    if (value.is_undefined()) {
      fail(str_cat("'", value.undefined_name(), "' is undefined and cannot be sliced"));
    }
    fail(str_cat("'", value.type_name(), "' object cannot be sliced"));
  }
  const List& items = value.sequence().items;
  const SliceRange range = slice_range(from, to, by, static_cast<int64_t>(items.size()));
  in.charge(range.count * 32);
  List out;
  for (int64_t i = 0; i < range.count; ++i) {
    out.push_back(items[static_cast<size_t>(range.start + i * range.step)]);
  }
  const bool is_tuple = value.sequence().kind == SequenceKind::kTuple;
  return Value::list(std::move(out), is_tuple ? SequenceKind::kTuple : SequenceKind::kList);
}

Value CallExpression::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  const Value function = callee->evaluate(in);
  Arguments values = arguments.evaluate(in);
  return call(in, function, values);
}

Value FilterExpression::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  return apply(in, input->evaluate(in));
}

Value FilterExpression::apply(Interpreter& in, const Value& value) const {
  Arguments values = arguments.evaluate(in);
  return filter(in, value, values);
}

Value TestExpression::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  const Value value = input->evaluate(in);
  Arguments values = arguments.evaluate(in);
  return Value(test(in, value, values) != negated);
}

Value Unary::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  const Value value = operand->evaluate(in);
  if (op == '!') {
    return Value(!value.as_bool());
  }
  if (!value.is_number()) {
    fail(str_cat("bad operand type for unary ", op, ": '", value.type_name(), "'"));
  }
  if (op == '+') {
    return value.is_bool() ? Value(value.as_int()) : value;
  }
  return value.is_float() ? Value(-value.get_float()) : binary(in, "-", Value(int64_t{0}), value);
}

Value Binary::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  const Value a = left->evaluate(in);
  return binary(in, op, a, right->evaluate(in));
}

Value Concatenation::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  MarkedText out;
  for (const ExpressionPtr& part : parts) {
    append(out, to_text(part->evaluate(in)));
  }
  return in.made(std::move(out));
}

Value Logical::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  Value value = left->evaluate(in);
  return value.as_bool() == is_and ? right->evaluate(in) : value;
}

Value Comparison::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  Value value = first->evaluate(in);
  for (const auto& [op, operand] : rest) {
    Value next = operand->evaluate(in);
    if (!compare_by(in, op, value, next)) {
      return Value(false);
    }
    value = std::move(next);
  }
  return Value(true);
}

Value Conditional::evaluate(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  if (condition->evaluate(in).as_bool()) {
    return then->evaluate(in);
  }
  return otherwise == nullptr ? Value::undefined("the inline if without else")
                              : otherwise->evaluate(in);
}

}  // namespace mstar::jinja

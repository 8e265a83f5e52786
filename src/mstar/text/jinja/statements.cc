// Running of statements.

#include <utility>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/ast.h"
#include "mstar/text/jinja/marked_text.h"

namespace mstar::jinja {

Flow Block::run(Interpreter& in) const {
  for (const StatementPtr& statement : statements) {
    const Flow flow = statement->run(in);
    if (flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

void Target::assign(Interpreter& in, const Value& value) const {
  if (parts.empty()) {
    if (attribute.empty()) {
      in.set_variable(name, value);
      return;
    }
    const Value object = in.find_variable(name);
    if (!object.is_namespace()) {
      fail(str_cat("cannot assign attribute on '", name, "': it is no namespace object"));
    }
    if (attribute.starts_with('_')) {
      fail(str_cat("attribute '", attribute, "' of a namespace may not begin with '_'"));
    }
    object.name_space().set(attribute, value);
    return;
  }
  const List items = elements(in, value);
  if (items.size() != parts.size()) {
    fail(str_cat("cannot unpack ", items.size(), " values to ", parts.size(), " names"));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].assign(in, items[i]);
  }
}

Flow TextStatement::run(Interpreter& in) const {
  in.write(text);
  return Flow::kNext;
}

Flow PrintStatement::run(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  const Value made = value->evaluate(in);
  if (made.is_string()) {
    in.write(made.text());
  } else {
    in.write(to_text(made));
  }
  return Flow::kNext;
}

Flow IfStatement::run(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  for (const auto& [condition, body] : branches) {
    if (condition->evaluate(in).as_bool()) {
      return body.run(in);
    }
  }
  return otherwise.run(in);
}

Flow ForStatement::run(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  loop(in, items->evaluate(in), 0);
  return Flow::kNext;
}

void ForStatement::loop(Interpreter& in, const Value& value, int depth0) const {
  if (value.is_none()) {
    fail("'NoneType' object is not iterable");
  }
  List all = elements(in, value);
  Scope* const outer = &in.scope();
  Scope* scope = in.new_scope(outer);
  if (condition != nullptr) {
    List kept;
    for (Value& item : all) {
      const Interpreter::Entered entered(in, scope);
      target.assign(in, item);
      if (condition->evaluate(in).as_bool()) {
        kept.push_back(std::move(item));
      }
    }
    all = std::move(kept);
  }
  LoopState state;
  state.height = height_over(all);
  state.items = std::make_shared<const List>(std::move(all));
  state.depth0 = depth0;
  state.changed = std::make_shared<std::optional<List>>();
  if (recursive) {
    state.recurse = [this, depth0, outer](Interpreter& inner, const Value& children) {
      const Interpreter::Nesting nesting(inner);
      const Interpreter::Entered entered(inner, outer);
      Interpreter::Capture capture(inner);
      loop(inner, children, depth0 + 1);
      return Value(capture.take());
    };
  }
  const auto list = state.items;
  for (size_t i = 0; i < list->size(); ++i) {
    scope = scope->is_kept ? in.new_scope(outer) : scope;
    scope->variables.clear();
    const Interpreter::Entered entered(in, scope);
    state.index0 = i;
    in.set_variable("loop", Value(std::make_shared<const LoopState>(state)));
    target.assign(in, (*list)[i]);
    in.charge(Interpreter::kNodeCost * 4);
    if (body.run(in) == Flow::kBreak) {
      break;
    }
  }
  if (list->empty()) {
    otherwise.run(in);
  }
}

Flow SetStatement::run(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  if (value != nullptr) {
    target.assign(in, value->evaluate(in));
    return Flow::kNext;
  }
  Value text;
  {
    Interpreter::Capture capture(in);
    const Interpreter::Entered entered(in, in.new_scope(&in.scope()));
    body.run(in);
    text = Value(capture.take());
  }
  for (const FilterExpression& filter : filters) {
    text = filter.apply(in, text);
  }
  target.assign(in, text);
  return Flow::kNext;
}

Flow WithStatement::run(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  Scope* const scope = in.new_scope(&in.scope());
  std::vector<Value> values;
  for (const auto& [target, value] : variables) {
    values.push_back(value->evaluate(in));  // in the outer scope
  }
  const Interpreter::Entered entered(in, scope);
  for (size_t i = 0; i < values.size(); ++i) {
    variables[i].first.assign(in, values[i]);
  }
  return body.run(in);
}

Flow FilterStatement::run(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  Value text;
  {
    Interpreter::Capture capture(in);
    const Interpreter::Entered entered(in, in.new_scope(&in.scope()));
    body.run(in);
    text = Value(capture.take());
  }
  for (const FilterExpression& filter : filters) {
    text = filter.apply(in, text);
  }
  in.write(to_text(text));
  return Flow::kNext;
}

Flow PlainStatement::run(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  const Interpreter::Entered entered(in, in.new_scope(&in.scope()));
  return body.run(in);
}

Value Macro::bind(Interpreter& in) const {
  Scope* const definition = &in.scope();
  for (Scope* scope = definition; scope != nullptr; scope = scope->parent) {
    scope->is_kept = true;
  }
  return Value::function(name, [this, definition](Interpreter& inner, Arguments& arguments) {
    return invoke(inner, definition, arguments);
  });
}

Value Macro::invoke(Interpreter& in, Scope* definition, Arguments& arguments) const {
  const Interpreter::Nesting nesting(in);
  const Interpreter::Entered entered(in, in.new_scope(definition));
  set_parameters(in, arguments);
  Interpreter::Capture capture(in);
  body.run(in);
  return Value(capture.take());
}

void Macro::set_parameters(Interpreter& in, Arguments& arguments) const {
  std::vector<bool> used(arguments.named.size(), false);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    }
    for (size_t n = 0; n < arguments.named.size(); ++n) {
      if (arguments.named[n].first == parameter.name) {
        if (value) {
          fail(str_cat("macro '", name, "' got two values for '", parameter.name, "'"));
        }
        value = arguments.named[n].second;
        used[n] = true;
      }
    }
    if (!value && parameter.fallback != nullptr) {
      value = parameter.fallback->evaluate(in);
    }
    in.set_variable(parameter.name, value ? *value : Value::undefined(parameter.name));
  }
  List more;
  for (size_t i = parameters.size(); i < arguments.positional.size(); ++i) {
    more.push_back(arguments.positional[i]);
  }
  auto named = std::make_shared<Dict>();
  for (size_t n = 0; n < arguments.named.size(); ++n) {
    if (used[n]) {
      continue;
    }
    if (arguments.named[n].first == "caller") {
      in.set_variable("caller", arguments.named[n].second);
    } else {
      named->set(Value(arguments.named[n].first), arguments.named[n].second);
    }
  }
  in.set_variable("varargs", Value::list(std::move(more), SequenceKind::kTuple));
  in.set_variable("kwargs", Value(std::move(named)));
}

Flow MacroStatement::run(Interpreter& in) const {
  in.set_variable(macro.name, macro.bind(in));
  return Flow::kNext;
}

Flow CallStatement::run(Interpreter& in) const {
  const Interpreter::Nesting nesting(in);
  const Value function = callee->evaluate(in);
  Arguments values = arguments.evaluate(in);
  values.named.emplace_back("caller", caller.bind(in));
  in.write(to_text(call(in, function, values)));
  return Flow::kNext;
}

Flow FlowStatement::run(Interpreter&) const {
  return flow;
}

}  // namespace mstar::jinja

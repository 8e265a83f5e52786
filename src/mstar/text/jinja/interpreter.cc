#include "mstar/text/jinja/interpreter.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/utf8.h"

namespace mstar::jinja {

void Scope::set(std::string_view name, Value value) {
  for (auto& variable : variables) {
    if (variable.first == name) {
      variable.second = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Interpreter::Interpreter() : scope_(new_scope(nullptr)) {
  define_globals(*scope_);
}

Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) {
    space->items.clear();
  }
}

std::shared_ptr<Namespace> Interpreter::new_namespace() {
  charge(500);
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

Scope* Interpreter::new_scope(Scope* parent) {
  charge(100);
  scopes_.push_back({parent, false, {}});
  return &scopes_.back();
}

Value Interpreter::find_variable(std::string_view name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& variable : scope->variables) {
      if (variable.first == name) {
        return variable.second;
      }
    }
  }
  return Value::undefined(name);
}

Value Interpreter::made(MarkedText text) {
  charge(static_cast<int64_t>(text.text.size()));
  if (text.text.size() > kMaxTextBytes) {
    throw Error(ErrorCode::kTooLarge, "[chat template] a text grows over 64 MiB");
  }
  return Value(std::move(text));
}

void Interpreter::write(std::string_view text) {
  charge(static_cast<int64_t>(text.size()));
  append(*output_, text);
}

void Interpreter::write(const MarkedText& text) {
  charge(static_cast<int64_t>(text.text.size()));
  append(*output_, text);
}

void Interpreter::throw_too_much() {
  throw Error(ErrorCode::kTooLarge,
              "[chat template] the rendering takes too many steps; send a shorter conversation");
}

void Interpreter::throw_too_deep() {
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[chat template] nested deeper than ", kMaxDepth, " levels while rendering"));
}

Value call(Interpreter& interpreter, const Value& callee, Arguments& arguments) {
  if (callee.is_undefined()) {
    fail(str_cat("'", callee.undefined_name(), "' is undefined and cannot be called"));
  }
  if (callee.is_loop()) {
    if (!callee.loop().recurse || arguments.positional.size() != 1) {
      fail("loop(…) takes one list, in a loop marked recursive");
    }
    return callee.loop().recurse(interpreter, arguments.positional[0]);
  }
  if (!callee.is_callable()) {
    fail(str_cat("'", callee.type_name(), "' object is not callable"));
  }
  const Interpreter::Nesting nesting(interpreter);
  return callee.callable().call(interpreter, arguments);
}

List elements(Interpreter& interpreter, const Value& value) {
  List out;
  if (value.is_undefined()) {
    return out;
  }
  if (value.is_generator()) {
    Value generator = value;
    out = std::exchange(generator.sequence().items, {});
  } else if (value.is_sequence()) {
    out = value.sequence().items;
  } else if (value.is_dict()) {
    for (const auto& item : value.dict().items) {
      out.push_back(item.first);
    }
  } else if (value.is_string()) {
    const MarkedText& text = value.text();
    interpreter.charge(static_cast<int64_t>(text.text.size()) * 200);
    for (size_t i = 0; i < text.text.size();) {
      const size_t end = i + decode_utf8(text.text, i).num_bytes;
      out.push_back(Value(cut(text, i, end)));
      i = end;
    }
  } else {
    fail(str_cat("'", value.type_name(), "' object is not iterable"));
  }
  interpreter.charge(static_cast<int64_t>(out.size()) * 32);
  return out;
}

}  // namespace mstar::jinja

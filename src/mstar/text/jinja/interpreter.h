#pragma once

// State of one rendering: variables, the text written so far, and the limits that keep a hostile
// template or conversation from taking the process with it. One thread.

#include <cstdint>
#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/text/jinja/value.h"

namespace mstar::jinja {

// Variables of one block; looked up outwards. Scopes live until the rendering ends, because a
// macro may look at the scope that defined it.
struct Scope {
  Scope* parent = nullptr;
  bool is_kept = false;  // a macro looks at it: do not use it again
  std::vector<std::pair<std::string, Value>> variables;

  void set(std::string_view name, Value value);
};

class Interpreter {
 public:
  // One unit is about a nanosecond: evaluating a node costs kNodeCost, a byte made costs one.
  static constexpr int64_t kMaxWork = int64_t{1} << 29;
  static constexpr int64_t kNodeCost = 24;
  static constexpr int kMaxDepth = 700;  // nested nodes and calls; bounds the machine's stack
  static constexpr size_t kMaxTextBytes = size_t{64} << 20;

  Interpreter();
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws Error(kTooLarge) when the rendering has done more than kMaxWork.
  void charge(int64_t work) {
    work_left_ -= work;
    if (work_left_ < 0) {
      throw_too_much();
    }
  }

  // Counts a text that was made, and returns it as a value.
  Value made(MarkedText text);

  // Nested evaluation; throws Error(kInvalidArgument) when it goes too deep.
  class Nesting {
   public:
    explicit Nesting(Interpreter& interpreter) : interpreter_(interpreter) {
      if (++interpreter.depth_ > kMaxDepth) {
        interpreter.throw_too_deep();
      }
      interpreter.charge(kNodeCost);
    }

    ~Nesting() { --interpreter_.depth_; }

    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Interpreter& interpreter_;
  };

  // Variables.
  Scope& scope() { return *scope_; }

  Value find_variable(std::string_view name) const;

  void set_variable(std::string_view name, Value value) { scope_->set(name, std::move(value)); }

  Scope* new_scope(Scope* parent);

  // Makes `scope` current while alive.
  class Entered {
   public:
    Entered(Interpreter& interpreter, Scope* scope)
        : interpreter_(interpreter), outer_(interpreter.scope_) {
      interpreter.scope_ = scope;
    }

    ~Entered() { interpreter_.scope_ = outer_; }

    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    Interpreter& interpreter_;
    Scope* outer_;
  };

  // A namespace of this rendering. All of them are emptied when it ends, because they can hold
  // each other in a circle.
  std::shared_ptr<Namespace> new_namespace();

  // Output.
  void write(std::string_view text);
  void write(const MarkedText& text);

  MarkedText take_output() { return std::move(*output_); }

  // Collects what is written while alive.
  class Capture {
   public:
    explicit Capture(Interpreter& interpreter)
        : interpreter_(interpreter), outer_(interpreter.output_) {
      interpreter.output_ = &text_;
    }

    ~Capture() { interpreter_.output_ = outer_; }

    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    MarkedText take() { return std::move(text_); }

   private:
    Interpreter& interpreter_;
    MarkedText* outer_;
    MarkedText text_;
  };

  // The clock of strftime_now; none: the machine's.
  std::optional<std::time_t> now;

 private:
  [[noreturn]] static void throw_too_much();
  [[noreturn]] static void throw_too_deep();

  int64_t work_left_ = kMaxWork;
  int depth_ = 0;
  MarkedText text_;
  MarkedText* output_ = &text_;
  std::deque<Scope> scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  Scope* scope_;
};

// Calls a function, macro or bound method; throws Error for anything else.
Value call(Interpreter& interpreter, const Value& callee, Arguments& arguments);

// The elements of anything that can be walked over: lists, keys of dicts, characters of strings.
List elements(Interpreter& interpreter, const Value& value);

// value.name and value[key] as the template language finds them; what is not there is undefined.
Value get_attribute(const Value& value, const std::string& name);
Value get_item(Interpreter& interpreter, const Value& value, const Value& key);

// Whether `item` is in `container`.
bool contains(Interpreter& interpreter, const Value& container, const Value& item);

// Arithmetic and joining operators by their sign: + - * / // % **.
Value binary(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);

// Python's % and str.format.
MarkedText format_percent(const MarkedText& format, const Value& arguments);
MarkedText format_braces(const MarkedText& format, const Arguments& arguments);

// The method of a string, dict or list, bound to it; nothing when the type has none of that name.
std::optional<Value> find_method(const Value& value, const std::string& name);

// A function of the language; null when there is none of that name.
using Filter = Value (*)(Interpreter&, const Value&, Arguments&);
using Test = bool (*)(Interpreter&, const Value&, Arguments&);
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

// Functions every template may call: range, namespace, dict, raise_exception, strftime_now, joiner.
void define_globals(Scope& scope);

// What a template says with raise_exception.
[[noreturn]] void throw_refusal(const std::string& message);

}  // namespace mstar::jinja

#pragma once

// The tree of a parsed template. Nodes are immutable and evaluate themselves.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mstar/text/jinja/interpreter.h"
#include "mstar/text/jinja/value.h"

namespace mstar::jinja {

struct Expression {
  virtual ~Expression() = default;
  virtual Value evaluate(Interpreter& in) const = 0;
};

using ExpressionPtr = std::unique_ptr<Expression>;
using ExpressionList = std::vector<ExpressionPtr>;

// What a statement tells the loop around it.
enum class Flow { kNext, kBreak, kContinue };

struct Statement {
  virtual ~Statement() = default;
  virtual Flow run(Interpreter& in) const = 0;
};

using StatementPtr = std::unique_ptr<const Statement>;

struct Block {
  std::vector<StatementPtr> statements;

  Flow run(Interpreter& in) const;
};

// Arguments as written: positional, named, *list, **dict.
struct CallArguments {
  ExpressionList positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list;
  ExpressionPtr dict;

  Arguments evaluate(Interpreter& in) const;
};

struct Constant final : Expression {
  Value value;
  Value evaluate(Interpreter& in) const override;
};

struct Name final : Expression {
  std::string name;
  Value evaluate(Interpreter& in) const override;
};

struct ListLiteral final : Expression {
  ExpressionList items;
  SequenceKind kind = SequenceKind::kList;
  Value evaluate(Interpreter& in) const override;
};

struct DictLiteral final : Expression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
  Value evaluate(Interpreter& in) const override;
};

struct Attribute final : Expression {
  ExpressionPtr object;
  std::string name;
  Value evaluate(Interpreter& in) const override;
};

struct Subscript final : Expression {
  ExpressionPtr object;
  ExpressionPtr key;
  Value evaluate(Interpreter& in) const override;
};

struct Slice final : Expression {
  ExpressionPtr object;
  ExpressionPtr start;  // each may be null
  ExpressionPtr stop;
  ExpressionPtr step;
  Value evaluate(Interpreter& in) const override;
};

struct CallExpression final : Expression {
  ExpressionPtr callee;
  CallArguments arguments;
  Value evaluate(Interpreter& in) const override;
};

struct FilterExpression final : Expression {
  ExpressionPtr input;  // null in a filter block: the text of the block
  Filter filter = nullptr;
  CallArguments arguments;
  Value evaluate(Interpreter& in) const override;
  Value apply(Interpreter& in, const Value& value) const;
};

struct TestExpression final : Expression {
  ExpressionPtr input;
  Test test = nullptr;
  CallArguments arguments;
  bool negated = false;
  Value evaluate(Interpreter& in) const override;
};

struct Unary final : Expression {
  char op = '-';  // - + or ! for not
  ExpressionPtr operand;
  Value evaluate(Interpreter& in) const override;
};

struct Binary final : Expression {
  std::string op;  // + - * / // % **
  ExpressionPtr left;
  ExpressionPtr right;
  Value evaluate(Interpreter& in) const override;
};

struct Concatenation final : Expression {
  ExpressionList parts;
  Value evaluate(Interpreter& in) const override;
};

struct Logical final : Expression {
  bool is_and = true;
  ExpressionPtr left;
  ExpressionPtr right;
  Value evaluate(Interpreter& in) const override;
};

// a < b <= c: each pair must hold.
struct Comparison final : Expression {
  ExpressionPtr first;
  std::vector<std::pair<std::string, ExpressionPtr>> rest;  // == != < <= > >= in "not in"
  Value evaluate(Interpreter& in) const override;
};

struct Conditional final : Expression {
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // null: undefined
  Value evaluate(Interpreter& in) const override;
};

// Where a value goes: a name, an attribute of a namespace, or several of them.
struct Target {
  std::string name;
  std::string attribute;      // set: name.attribute
  std::vector<Target> parts;  // not empty: the value is unpacked

  void assign(Interpreter& in, const Value& value) const;
};

struct TextStatement final : Statement {
  std::string text;
  Flow run(Interpreter& in) const override;
};

struct PrintStatement final : Statement {
  ExpressionPtr value;
  Flow run(Interpreter& in) const override;
};

struct IfStatement final : Statement {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
  Flow run(Interpreter& in) const override;
};

struct ForStatement final : Statement {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  // may be null
  bool recursive = false;
  Block body;
  Block otherwise;
  Flow run(Interpreter& in) const override;
  void loop(Interpreter& in, const Value& value, int depth0) const;
};

struct SetStatement final : Statement {
  Target target;
  ExpressionPtr value;  // null: the block's text
  Block body;
  std::vector<FilterExpression> filters;  // over the block's text
  Flow run(Interpreter& in) const override;
};

struct WithStatement final : Statement {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
  Flow run(Interpreter& in) const override;
};

struct FilterStatement final : Statement {
  std::vector<FilterExpression> filters;
  Block body;
  Flow run(Interpreter& in) const override;
};

// A body that is only run where it stands: {% generation %}.
struct PlainStatement final : Statement {
  Block body;
  Flow run(Interpreter& in) const override;
};

struct Macro {
  struct Parameter {
    std::string name;
    ExpressionPtr fallback;  // may be null
  };

  std::string name;
  std::vector<Parameter> parameters;
  Block body;

  // The macro as a value that looks at the current scope.
  Value bind(Interpreter& in) const;

 private:
  Value invoke(Interpreter& in, Scope* definition, Arguments& arguments) const;
  void set_parameters(Interpreter& in, Arguments& arguments) const;
};

struct MacroStatement final : Statement {
  Macro macro;
  Flow run(Interpreter& in) const override;
};

struct CallStatement final : Statement {
  Macro caller;
  ExpressionPtr callee;
  CallArguments arguments;
  Flow run(Interpreter& in) const override;
};

struct FlowStatement final : Statement {
  Flow flow = Flow::kBreak;
  Flow run(Interpreter& in) const override;
};

}  // namespace mstar::jinja

#include "mstar/text/jinja/expression_parser.h"

#include <array>
#include <charconv>

namespace mstar::jinja {

namespace {

ExpressionPtr constant(Value value) {
  auto node = std::make_unique<Constant>();
  node->value = std::move(value);
  return node;
}

ExpressionPtr logical(bool is_and, ExpressionPtr left, ExpressionPtr right) {
  auto node = std::make_unique<Logical>();
  node->is_and = is_and;
  node->left = std::move(left);
  node->right = std::move(right);
  return node;
}

ExpressionPtr binary_node(std::string op, ExpressionPtr left, ExpressionPtr right) {
  auto node = std::make_unique<Binary>();
  node->op = std::move(op);
  node->left = std::move(left);
  node->right = std::move(right);
  return node;
}

}  // namespace

void ExpressionParser::count_operator() {
  if (++num_operators_ > kMaxOperators) {
    stream_.fail("too many operators in one tag");
  }
}

ExpressionPtr ExpressionParser::parse(bool with_condition) {
  const Nesting nesting(*this);
  if (expression_depth_++ == 0) {
    num_operators_ = 0;
  }
  ExpressionPtr node = with_condition ? parse_condition() : parse_or();
  --expression_depth_;
  return node;
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_condition) {
  ExpressionPtr first = parse(with_condition);
  if (!stream_.is_operator(",")) {
    return first;
  }
  auto tuple = std::make_unique<ListLiteral>();
  tuple->kind = SequenceKind::kTuple;
  tuple->items.push_back(std::move(first));
  while (stream_.skip_operator(",")) {
    if (stream_.is(TokenType::kBlockEnd) || stream_.is(TokenType::kVariableEnd) ||
        stream_.is_operator(")")) {
      break;
    }
    tuple->items.push_back(parse(with_condition));
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse_condition() {
  ExpressionPtr value = parse_or();
  while (stream_.skip_name("if")) {
    count_operator();
    auto node = std::make_unique<Conditional>();
    node->then = std::move(value);
    node->condition = parse_or();
    if (stream_.skip_name("else")) {
      node->otherwise = parse();
    }
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (stream_.skip_name("or")) {
    count_operator();
    left = logical(false, std::move(left), parse_and());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (stream_.skip_name("and")) {
    count_operator();
    left = logical(true, std::move(left), parse_not());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!stream_.is_name("not")) {
    return parse_comparison();
  }
  const Nesting nesting(*this);
  stream_.take();
  auto node = std::make_unique<Unary>();
  node->op = '!';
  node->operand = parse_not();
  return node;
}

ExpressionPtr ExpressionParser::parse_comparison() {
  ExpressionPtr first = parse_sum();
  std::vector<std::pair<std::string, ExpressionPtr>> rest;
  static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<=", ">=", "<", ">"};
  while (true) {
    std::string op;
    for (const std::string_view candidate : kOperators) {
      if (stream_.is_operator(candidate)) {
        op = candidate;
      }
    }
    if (!op.empty()) {
      stream_.take();
    } else if (stream_.skip_name("in")) {
      op = "in";
    } else if (stream_.is_name("not") && stream_.ahead().type == TokenType::kName &&
               stream_.ahead().text == "in") {
      stream_.take();
      stream_.take();
      op = "not in";
    } else {
      break;
    }
    rest.emplace_back(std::move(op), parse_sum());
  }
  if (rest.empty()) {
    return first;
  }
  auto node = std::make_unique<Comparison>();
  node->first = std::move(first);
  node->rest = std::move(rest);
  return node;
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concatenation();
  while (stream_.is_operator("+") || stream_.is_operator("-")) {
    count_operator();
    std::string op = stream_.take().text;
    left = binary_node(std::move(op), std::move(left), parse_concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  ExpressionPtr first = parse_product();
  if (!stream_.is_operator("~")) {
    return first;
  }
  auto node = std::make_unique<Concatenation>();
  node->parts.push_back(std::move(first));
  while (stream_.skip_operator("~")) {
    node->parts.push_back(parse_product());
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr left = parse_power();
  while (stream_.is_operator("*") || stream_.is_operator("/") || stream_.is_operator("//") ||
         stream_.is_operator("%")) {
    count_operator();
    std::string op = stream_.take().text;
    left = binary_node(std::move(op), std::move(left), parse_power());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (stream_.skip_operator("**")) {
    count_operator();
    left = binary_node("**", std::move(left), parse_unary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionPtr node;
  if (stream_.is_operator("-") || stream_.is_operator("+")) {
    auto unary = std::make_unique<Unary>();
    unary->op = stream_.take().text[0];
    unary->operand = parse_unary(false);
    node = std::move(unary);
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  if (stream_.is(TokenType::kName)) return parse_name();
  if (stream_.is(TokenType::kString)) return parse_string();
  if (stream_.is(TokenType::kInteger) || stream_.is(TokenType::kFloat)) return parse_number();
  if (stream_.is_operator("(")) return parse_parentheses();
  if (stream_.is_operator("[")) return parse_list();
  if (stream_.is_operator("{")) return parse_dict();
  stream_.fail("expected an expression");
}

ExpressionPtr ExpressionParser::parse_name() {
  const std::string text = stream_.take().text;
  if (text == "true" || text == "True") return constant(Value(true));
  if (text == "false" || text == "False") return constant(Value(false));
  if (text == "none" || text == "None") return constant(Value::none());
  auto node = std::make_unique<Name>();
  node->name = text;
  return node;
}

ExpressionPtr ExpressionParser::parse_string() {
  std::string text;
  while (stream_.is(TokenType::kString)) {  // neighbours are one string, as in Python
    text += stream_.take().text;
  }
  return constant(Value(std::move(text)));
}

ExpressionPtr ExpressionParser::parse_number() {
  const Token& token = stream_.current();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.type == TokenType::kInteger) {
    int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) {
      stream_.fail("expected an integer below 2^63");
    }
    stream_.take();
    return constant(Value(value));
  }
  double value = 0.0;
  if (std::from_chars(begin, end, value).ec != std::errc()) {
    stream_.fail("expected a number that a double can hold");
  }
  stream_.take();
  return constant(Value(value));
}

ExpressionPtr ExpressionParser::parse_parentheses() {
  stream_.expect_operator("(");
  ExpressionPtr node;
  if (stream_.is_operator(")")) {
    auto empty = std::make_unique<ListLiteral>();
    empty->kind = SequenceKind::kTuple;
    node = std::move(empty);
  } else {
    node = parse_tuple();
  }
  stream_.expect_operator(")");
  return node;
}

ExpressionPtr ExpressionParser::parse_list() {
  stream_.expect_operator("[");
  auto node = std::make_unique<ListLiteral>();
  while (!stream_.is_operator("]")) {
    node->items.push_back(parse());
    if (!stream_.skip_operator(",")) {
      break;
    }
  }
  stream_.expect_operator("]");
  return node;
}

ExpressionPtr ExpressionParser::parse_dict() {
  stream_.expect_operator("{");
  auto node = std::make_unique<DictLiteral>();
  while (!stream_.is_operator("}")) {
    ExpressionPtr key = parse();
    stream_.expect_operator(":");
    node->items.emplace_back(std::move(key), parse());
    if (!stream_.skip_operator(",")) {
      break;
    }
  }
  stream_.expect_operator("}");
  return node;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  for (;; count_operator()) {
    if (stream_.skip_operator(".")) {
      if (stream_.is(TokenType::kInteger)) {
        auto subscript = std::make_unique<Subscript>();
        subscript->object = std::move(node);
        subscript->key = parse_number();
        node = std::move(subscript);
        continue;
      }
      auto attribute = std::make_unique<Attribute>();
      attribute->object = std::move(node);
      attribute->name = stream_.expect_name();
      node = std::move(attribute);
    } else if (stream_.is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (stream_.is_operator("(")) {
      auto call = std::make_unique<CallExpression>();
      call->callee = std::move(node);
      call->arguments = parse_arguments();
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  stream_.expect_operator("[");
  ExpressionPtr parts[3];
  bool is_slice = false;
  for (int part = 0; part < 3; ++part) {
    if (!stream_.is_operator(":") && !stream_.is_operator("]")) {
      parts[part] = parse_tuple();
    }
    if (part == 2 || !stream_.skip_operator(":")) {
      break;
    }
    is_slice = true;
  }
  if (!is_slice && parts[0] == nullptr) {
    stream_.fail("expected an index");
  }
  stream_.expect_operator("]");
  if (!is_slice) {
    auto node = std::make_unique<Subscript>();
    node->object = std::move(object);
    node->key = std::move(parts[0]);
    return node;
  }
  auto node = std::make_unique<Slice>();
  node->object = std::move(object);
  node->start = std::move(parts[0]);
  node->stop = std::move(parts[1]);
  node->step = std::move(parts[2]);
  return node;
}

CallArguments ExpressionParser::parse_arguments() {
  stream_.expect_operator("(");
  CallArguments out;
  while (!stream_.is_operator(")")) {
    if (stream_.skip_operator("**")) {
      out.dict = parse();
    } else if (stream_.skip_operator("*")) {
      out.list = parse();
    } else if (stream_.is(TokenType::kName) && stream_.ahead().type == TokenType::kOperator &&
               stream_.ahead().text == "=") {
      std::string name = stream_.take().text;
      stream_.take();
      out.named.emplace_back(std::move(name), parse());
    } else {
      if (!out.named.empty()) {
        stream_.fail("expected name=value: positional arguments come first");
      }
      out.positional.push_back(parse());
    }
    if (!stream_.skip_operator(",")) {
      break;
    }
  }
  stream_.expect_operator(")");
  return out;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr node) {
  for (;; count_operator()) {
    if (stream_.skip_operator("|")) {
      node = std::make_unique<FilterExpression>(parse_filter(std::move(node)));
    } else if (stream_.skip_name("is")) {
      node = parse_test(std::move(node));
    } else if (stream_.is_operator("(")) {
      auto call = std::make_unique<CallExpression>();
      call->callee = std::move(node);
      call->arguments = parse_arguments();
      node = std::move(call);
    } else {
      return node;
    }
  }
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = stream_.expect_name();
  while (stream_.skip_operator(".")) {
    name += str_cat(".", stream_.expect_name());
  }
  return name;
}

FilterExpression ExpressionParser::parse_filter(ExpressionPtr input) {
  const std::string name = parse_dotted_name();
  FilterExpression node;
  node.input = std::move(input);
  node.filter = find_filter(name);
  if (node.filter == nullptr) {
    stream_.fail(str_cat("and before it filter '", name, "', which is not known"));
  }
  if (stream_.is_operator("(")) {
    node.arguments = parse_arguments();
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  auto node = std::make_unique<TestExpression>();
  node->negated = stream_.skip_name("not");
  const std::string name = parse_dotted_name();
  node->input = std::move(input);
  node->test = find_test(name);
  if (node->test == nullptr) {
    stream_.fail(str_cat("and before it test '", name, "', which is not known"));
  }
  if (stream_.is_operator("(")) {
    node->arguments = parse_arguments();
    return node;
  }
  // One argument may follow without parentheses: "x is divisibleby 3".
  const bool is_word = stream_.is(TokenType::kName);
  const bool ends =
      is_word && (stream_.is_name("else") || stream_.is_name("or") || stream_.is_name("and") ||
                  stream_.is_name("is") || stream_.is_name("if") || stream_.is_name("in") ||
                  stream_.is_name("not"));
  if ((is_word && !ends) || stream_.is(TokenType::kString) || stream_.is(TokenType::kInteger) ||
      stream_.is(TokenType::kFloat) || stream_.is_operator("[") || stream_.is_operator("{")) {
    node->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  return node;
}

}  // namespace mstar::jinja

#pragma once

#include "mstar/text/jinja/ast.h"
#include "mstar/text/jinja/token_stream.h"

namespace mstar::jinja {

// Parses expressions, one grammar level per function, loosest first. One thread.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  // With `with_condition`, "a if b else c" counts.
  ExpressionPtr parse(bool with_condition = true);

  // "a, b": a tuple without parentheses; a single expression is itself.
  ExpressionPtr parse_tuple(bool with_condition = true);

  // "| name(arguments)", the bar already taken.
  FilterExpression parse_filter(ExpressionPtr input);

  CallArguments parse_arguments();

  // Guards the parser's own recursion; statements count here too.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) {
      if (++parser.depth_ > kMaxDepth) {
        parser.stream_.fail("nested too deep");
      }
    }

    ~Nesting() { --parser_.depth_; }

    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  static constexpr int kMaxDepth = 100;
  // Operators and filters in a row nest in the tree as well; counted over a whole tag.
  static constexpr int kMaxOperators = 2000;

  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_string();
  ExpressionPtr parse_number();
  ExpressionPtr parse_parentheses();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_filters(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr input);
  std::string parse_dotted_name();
  void count_operator();

  TokenStream& stream_;
  int depth_ = 0;
  int expression_depth_ = 0;
  int num_operators_ = 0;
};

}  // namespace mstar::jinja

#include "mstar/text/jinja/parser.h"

#include <initializer_list>
#include <utility>

#include "mstar/text/jinja/expression_parser.h"
#include "mstar/text/jinja/token_stream.h"

namespace mstar::jinja {

namespace {

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view source)
      : stream_(tokenize(source)), expressions_(stream_) {}

  Block parse_template() {
    Block block = parse_body({});
    if (!stream_.is(TokenType::kEnd)) {
      stream_.fail("expected text or a tag");
    }
    return block;
  }

 private:
  // Statements up to a block tag that begins with one of `ends`; that name is then current.
  Block parse_body(std::initializer_list<std::string_view> ends) {
    const ExpressionParser::Nesting nesting(expressions_);
    Block block;
    while (true) {
      if (stream_.is(TokenType::kText)) {
        auto text = std::make_unique<TextStatement>();
        text->text = stream_.take().text;
        block.statements.push_back(std::move(text));
      } else if (stream_.is(TokenType::kVariableBegin)) {
        stream_.take();
        auto print = std::make_unique<PrintStatement>();
        print->value = expressions_.parse_tuple();
        stream_.expect(TokenType::kVariableEnd, "'}}'");
        block.statements.push_back(std::move(print));
      } else if (stream_.is(TokenType::kBlockBegin)) {
        stream_.take();
        for (const std::string_view end : ends) {
          if (stream_.is_name(end)) {
            return block;
          }
        }
        block.statements.push_back(parse_statement());
      } else {
        if (ends.size() > 0) {
          stream_.fail(str_cat("expected {% ", *(ends.end() - 1), " %}"));
        }
        return block;
      }
    }
  }

  void end_tag() { stream_.expect(TokenType::kBlockEnd, "'%}'"); }

  // The name that parse_body stopped at, and the end of its tag.
  void close(std::string_view name) {
    if (!stream_.skip_name(name)) {
      stream_.fail(str_cat("expected ", name));
    }
    end_tag();
  }

  StatementPtr parse_statement() {
    if (!stream_.is(TokenType::kName)) {
      stream_.fail("expected the name of a tag");
    }
    const std::string name = stream_.current().text;
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call();
    if (name == "filter") return parse_filter_block();
    if (name == "with") return parse_with();
    if (name == "generation") return parse_generation();
    if (name == "break" || name == "continue") return parse_flow(name == "break");
    stream_.fail(
        "expected one of the tags if for set macro call filter with generation break continue raw");
  }

  StatementPtr parse_if() {
    stream_.take();
    auto node = std::make_unique<IfStatement>();
    while (true) {
      ExpressionPtr condition = expressions_.parse_tuple();
      end_tag();
      Block body = parse_body({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(condition), std::move(body));
      if (!stream_.skip_name("elif")) {
        break;
      }
    }
    if (stream_.skip_name("else")) {
      end_tag();
      node->otherwise = parse_body({"endif"});
    }
    close("endif");
    return node;
  }

  StatementPtr parse_for() {
    stream_.take();
    auto node = std::make_unique<ForStatement>();
    node->target = parse_target(false);
    if (!stream_.skip_name("in")) {
      stream_.fail("expected 'in'");
    }
    node->items = expressions_.parse_tuple(false);
    if (stream_.skip_name("if")) {
      node->condition = expressions_.parse();
    }
    node->recursive = stream_.skip_name("recursive");
    end_tag();
    ++loop_depth_;
    node->body = parse_body({"else", "endfor"});
    --loop_depth_;
    if (stream_.skip_name("else")) {
      end_tag();
      node->otherwise = parse_body({"endfor"});
    }
    close("endfor");
    return node;
  }

  // Names to assign to, or with `with_attribute` also name.attribute.
  Target parse_target(bool with_attribute) {
    Target first = parse_target_item(with_attribute);
    if (!stream_.is_operator(",")) {
      return first;
    }
    Target all;
    all.parts.push_back(std::move(first));
    while (stream_.skip_operator(",")) {
      if (stream_.is_name("in") || stream_.is_operator("=") || stream_.is_operator(")")) {
        break;
      }
      all.parts.push_back(parse_target_item(with_attribute));
    }
    return all;
  }

  Target parse_target_item(bool with_attribute) {
    const ExpressionParser::Nesting nesting(expressions_);
    if (stream_.skip_operator("(")) {
      Target inner = parse_target(with_attribute);
      stream_.expect_operator(")");
      return inner;
    }
    Target target;
    target.name = stream_.expect_name();
    if (target.name == "true" || target.name == "false" || target.name == "none" ||
        target.name == "True" || target.name == "False" || target.name == "None") {
      stream_.fail(str_cat("and before it '", target.name, "', which cannot be assigned to"));
    }
    if (with_attribute && stream_.skip_operator(".")) {
      target.attribute = stream_.expect_name();
    }
    return target;
  }

  StatementPtr parse_set() {
    stream_.take();
    auto node = std::make_unique<SetStatement>();
    node->target = parse_target(true);
    if (stream_.skip_operator("=")) {
      node->value = expressions_.parse_tuple();
      end_tag();
      return node;
    }
    while (stream_.skip_operator("|")) {
      node->filters.push_back(expressions_.parse_filter(nullptr));
    }
    end_tag();
    node->body = parse_body({"endset"});
    close("endset");
    return node;
  }

  std::vector<Macro::Parameter> parse_parameters() {
    std::vector<Macro::Parameter> parameters;
    stream_.expect_operator("(");
    while (!stream_.is_operator(")")) {
      Macro::Parameter parameter;
      parameter.name = stream_.expect_name();
      if (stream_.skip_operator("=")) {
        parameter.fallback = expressions_.parse();
      } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
        stream_.fail("expected a default: parameters without one come first");
      }
      parameters.push_back(std::move(parameter));
      if (!stream_.skip_operator(",")) {
        break;
      }
    }
    stream_.expect_operator(")");
    return parameters;
  }

  // The body of a macro stands outside the loops around its definition.
  Block parse_macro_body(std::string_view end) {
    const int outer = std::exchange(loop_depth_, 0);
    Block body = parse_body({end});
    loop_depth_ = outer;
    return body;
  }

  StatementPtr parse_macro() {
    stream_.take();
    auto node = std::make_unique<MacroStatement>();
    node->macro.name = stream_.expect_name();
    node->macro.parameters = parse_parameters();
    end_tag();
    node->macro.body = parse_macro_body("endmacro");
    close("endmacro");
    return node;
  }

  StatementPtr parse_call() {
    stream_.take();
    auto node = std::make_unique<CallStatement>();
    node->caller.name = "caller";
    if (stream_.is_operator("(")) {
      node->caller.parameters = parse_parameters();
    }
    ExpressionPtr expression = expressions_.parse();
    auto* call = dynamic_cast<CallExpression*>(expression.get());
    if (call == nullptr) {
      stream_.fail("expected a call");
    }
    node->callee = std::move(call->callee);
    node->arguments = std::move(call->arguments);
    end_tag();
    node->caller.body = parse_macro_body("endcall");
    close("endcall");
    return node;
  }

  StatementPtr parse_filter_block() {
    stream_.take();
    auto node = std::make_unique<FilterStatement>();
    do {
      node->filters.push_back(expressions_.parse_filter(nullptr));
    } while (stream_.skip_operator("|"));
    end_tag();
    node->body = parse_body({"endfilter"});
    close("endfilter");
    return node;
  }

  StatementPtr parse_with() {
    stream_.take();
    auto node = std::make_unique<WithStatement>();
    while (!stream_.is(TokenType::kBlockEnd)) {
      Target target = parse_target_item(false);
      stream_.expect_operator("=");
      node->variables.emplace_back(std::move(target), expressions_.parse());
      if (!stream_.skip_operator(",")) {
        break;
      }
    }
    end_tag();
    node->body = parse_body({"endwith"});
    close("endwith");
    return node;
  }

  // Marks the assistant's words for training; text like any other here.
  StatementPtr parse_generation() {
    stream_.take();
    end_tag();
    auto node = std::make_unique<PlainStatement>();
    node->body = parse_body({"endgeneration"});
    close("endgeneration");
    return node;
  }

  StatementPtr parse_flow(bool is_break) {
    if (loop_depth_ == 0) {
      stream_.fail("expected it inside a loop");
    }
    stream_.take();
    end_tag();
    auto node = std::make_unique<FlowStatement>();
    node->flow = is_break ? Flow::kBreak : Flow::kContinue;
    return node;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int loop_depth_ = 0;
};

}  // namespace

Block parse(std::string_view source) {
  return TemplateParser(source).parse_template();
}

}  // namespace mstar::jinja

#include "mstar/text/chat_template.h"

#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/interpreter.h"
#include "mstar/text/jinja/marked_text.h"
#include "mstar/text/jinja/parser.h"
#include "mstar/text/jinja/string_functions.h"

namespace mstar {

namespace jinja {

void throw_refusal(const std::string& message) {
  throw TemplateRefusal(message);
}

}  // namespace jinja

namespace {

// Put behind the last message, with a space, to find the place where it ends in the rendered text.
// The space shows whether the template trims the message.
constexpr std::string_view kMark = "\uF8FFcontinue_final_message\uF8FF";

[[noreturn]] void throw_bad(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[chat template] ", what));
}

// The last message's text with the mark behind it, in place.
void mark_last_message(Json& messages) {
  if (messages.size() == 0) {
    throw_bad("continue_final_message is set, but the conversation is empty");
  }
  Json& last = messages.get_array().back();
  const Json* content = last.find("content");
  if (content != nullptr && content->is_string()) {
    last.set("content", Json(str_cat(content->get_string(), kMark, " ")));
    return;
  }
  if (content != nullptr && content->is_array()) {
    Json parts = *content;
    auto& list = parts.get_array();
    for (auto part = list.rbegin(); part != list.rend(); ++part) {
      const Json* text = part->find("text");
      if (text != nullptr && text->is_string()) {
        part->set("text", Json(str_cat(text->get_string(), kMark, " ")));
        last.set("content", std::move(parts));
        return;
      }
    }
  }
  throw_bad("continue_final_message is set, but the last message has no text to continue");
}

}  // namespace

struct ChatTemplate::Program {
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::string_view source)
    : program_(std::make_unique<const Program>(Program{jinja::parse(source)})) {}

ChatTemplate::~ChatTemplate() = default;

MarkedText ChatTemplate::render(const ChatInput& input) const {
  if (!input.continue_final_message) {
    return run(input);
  }
  ChatInput marked = input;
  mark_last_message(marked.messages);
  const MarkedText text = run(marked);
  const size_t at = text.text.rfind(kMark);
  if (at == std::string::npos) {
    throw_bad("continue_final_message is set, but the template leaves the last message out");
  }
  const MarkedText before = jinja::cut(text, 0, at);
  const bool trims = !std::string_view(text.text).substr(at + kMark.size()).starts_with(' ');
  return trims ? jinja::strip(before, nullptr, false, true) : before;
}

MarkedText ChatTemplate::run(const ChatInput& input) const {
  using jinja::Value;
  if (!input.messages.is_array()) {
    throw_bad(str_cat("messages is ", input.messages.type_name(), ", expected an array"));
  }
  jinja::Interpreter in;
  in.now = input.now;
  const jinja::Interpreter::Entered entered(in, in.new_scope(&in.scope()));
  if (!input.tokens.is_null()) {
    for (const auto& [name, value] : input.tokens.get_object()) {
      if (!value.is_null()) {
        in.set_variable(name, Value::from_json(value, false));
      }
    }
  }
  if (!input.variables.is_null()) {
    for (const auto& [name, value] : input.variables.get_object()) {
      in.set_variable(name, Value::from_json(value, true));
    }
  }
  in.set_variable("messages", Value::from_json(input.messages, true));
  in.set_variable("tools", Value::from_json(input.tools, true));
  in.set_variable("documents", Value::from_json(input.documents, true));
  in.set_variable("add_generation_prompt", Value(input.add_generation_prompt));
  program_->block.run(in);
  return in.take_output();
}

}  // namespace mstar

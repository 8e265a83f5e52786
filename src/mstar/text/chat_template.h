#pragma once

// Chat templates as checkpoints ship them: programs in the Jinja language that write a conversation
// as the model was trained to read it. Rendered as transformers renders them, and in addition with
// a record of which bytes came from the conversation, so that user text can never become a control
// token. Immutable, thread-safe.

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/text/text_range.h"

namespace mstar {

// The template itself refuses the conversation (raise_exception).
class TemplateRefusal : public Error {
 public:
  explicit TemplateRefusal(const std::string& message)
      : Error(ErrorCode::kInvalidArgument, "[chat template] " + message), message_(message) {}

  // What the template said.
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

struct ChatInput {
  Json messages = Json::array();  // objects with "role" and "content"
  Json tools;                     // null or a list of function schemas
  Json documents;                 // null or a list of objects
  bool add_generation_prompt = false;
  // The last message goes on: the text ends where its content ends.
  bool continue_final_message = false;
  // Further variables by name ("enable_thinking"); from the client as well.
  Json variables = Json::object();
  // Variables of the checkpoint, trusted: bos_token, eos_token, … (TokenizerConfig::variables).
  Json tokens = Json::object();
  // The time strftime_now writes; none: the machine's clock.
  std::optional<std::time_t> now;
};

class ChatTemplate {
 public:
  // Throws Error(kInvalidArgument) with the line of what is wrong in the template.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // The conversation as text. Throws TemplateRefusal, Error(kInvalidArgument) where the template
  // fails on this conversation, Error(kTooLarge) where it takes too many steps.
  MarkedText render(const ChatInput& input) const;

 private:
  MarkedText run(const ChatInput& input) const;

  struct Program;
  std::unique_ptr<const Program> program_;
};

}  // namespace mstar

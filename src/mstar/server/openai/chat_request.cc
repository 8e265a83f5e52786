#include <algorithm>
#include <array>
#include <optional>

#include "mstar/base/str_cat.h"
#include "mstar/server/api_error.h"
#include "mstar/server/encoding.h"
#include "mstar/server/openai/chat.h"

namespace mstar {

namespace {

constexpr size_t kMostMessages = 4096;

[[noreturn]] void fail(std::string_view where, const std::string& what) {
  throw ApiError(ErrorCode::kInvalidArgument, str_cat("[", where, "] ", what), std::string(where));
}

const std::string& get_text(const Json& object, std::string_view name, std::string_view where) {
  const Json* value = object.find(name);
  if (value == nullptr || !value->is_string()) {
    fail(where, str_cat("needs a string \"", name, "\""));
  }
  return value->get_string();
}

// {"url": …} or the bare string.
const std::string& get_url(const Json& part, std::string_view name, std::string_view where) {
  const Json* value = part.find(name);
  if (value != nullptr && value->is_string()) {
    return value->get_string();
  }
  if (value == nullptr || !value->is_object()) {
    fail(where, str_cat("needs \"", name, "\": {\"url\": …}"));
  }
  return get_text(*value, "url", where);
}

// Adds one part of a message and the media it carries.
void add_part(const Json& part,
              std::string_view where,
              const MediaAccess& media_access,
              ChatMessage& message,
              ModelRequest& out) {
  if (part.is_string()) {
    message.content.push_back(
        {.modality = Modality::kText, .text = part.get_string(), .media = -1});
    return;
  }
  const std::string& type = get_text(part, "type", where);
  if (type == "text") {
    message.content.push_back(
        {.modality = Modality::kText, .text = get_text(part, "text", where), .media = -1});
    return;
  }
  MediaItem media;
  if (type == "image_url") {
    media = media_access.get(get_url(part, type, where), Modality::kImage, where);
  } else if (type == "video_url") {
    media = media_access.get(get_url(part, type, where), Modality::kVideo, where);
  } else if (type == "audio_url") {
    media = media_access.get(get_url(part, type, where), Modality::kAudio, where);
  } else if (type == "input_audio") {
    const Json* audio = part.find(type);
    if (audio == nullptr || !audio->is_object()) {
      fail(where, "needs \"input_audio\": {\"data\", \"format\"}");
    }
    media = media_from_base64(get_text(*audio, "data", where), Modality::kAudio, where);
  } else {
    fail(where,
         str_cat("found part type \"",
                 type,
                 "\", expected text, image_url, video_url, audio_url or input_audio"));
  }
  message.content.push_back(
      {.modality = media.modality, .text = "", .media = static_cast<int>(out.media.size())});
  out.media.push_back(std::move(media));
}

// Besides role and content: what carries nothing for a template, as clients send it back from an
// answer, is ignored; all else would be lost, so it is refused.
void check_message_fields(const Json& message, std::string_view where) {
  constexpr std::array<std::string_view, 5> kIgnored = {
      "name", "refusal", "annotations", "tool_call_id", "reasoning_content"};
  constexpr std::array<std::string_view, 3> kUnsupported = {"tool_calls", "function_call", "audio"};
  for (const auto& [name, value] : message.get_object()) {
    if (name == "role" || name == "content" || value.is_null() ||
        std::ranges::find(kIgnored, name) != kIgnored.end()) {
      continue;
    }
    if (std::ranges::find(kUnsupported, name) == kUnsupported.end()) {
      fail(where, str_cat("found \"", name, "\", expected role and content"));
    }
    if (value.size() > 0) {
      throw ApiError(ErrorCode::kUnsupported,
                     str_cat("[", where, "] \"", name, "\" is not supported"),
                     std::string(where),
                     "unsupported_parameter");
    }
  }
}

void add_message(const Json& json,
                 std::string_view where,
                 const MediaAccess& media_access,
                 ModelRequest& out) {
  constexpr std::array<std::string_view, 5> kRoles = {
      "system", "developer", "user", "assistant", "tool"};
  if (!json.is_object()) {
    fail(where, str_cat("found ", json.type_name(), ", expected an object"));
  }
  ChatMessage message;
  message.role = get_text(json, "role", where);
  if (std::ranges::find(kRoles, message.role) == kRoles.end()) {
    fail(where,
         str_cat("found role \"", message.role, "\", expected one of ", str_join(kRoles, ", ")));
  }
  check_message_fields(json, where);
  const Json* content = json.find("content");
  if (content != nullptr && content->is_array()) {
    size_t index = 0;
    for (const Json& part : content->get_array()) {
      add_part(part, str_cat(where, ".content[", index++, "]"), media_access, message, out);
    }
  } else if (content != nullptr && content->is_string()) {
    add_part(*content, where, media_access, message, out);
  } else if (content != nullptr && !content->is_null()) {
    fail(where, str_cat("found content ", content->type_name(), ", expected text or parts"));
  } else if (message.role != "assistant") {
    fail(where, "needs \"content\"");
  }
  out.messages.push_back(std::move(message));
}

void read_messages(const Json* messages, const MediaAccess& media_access, ModelRequest& out) {
  if (messages == nullptr || !messages->is_array() || messages->size() == 0) {
    fail("messages", "expected a list with at least one message");
  }
  if (messages->size() > kMostMessages) {
    fail("messages", str_cat("more than ", kMostMessages, " messages"));
  }
  size_t index = 0;
  for (const Json& message : messages->get_array()) {
    add_message(message, str_cat("messages[", index++, "]"), media_access, out);
  }
}

std::vector<Modality> read_modalities(const Json* modalities, const ModelDescription& model) {
  if (modalities == nullptr) {
    check_output_modality(model, Modality::kText);
    return {Modality::kText};
  }
  if (!modalities->is_array() || modalities->size() == 0) {
    fail("modalities", "expected a list such as [\"text\"]");
  }
  std::vector<Modality> out;
  for (const Json& word : modalities->get_array()) {
    if (!word.is_string()) {
      fail("modalities", str_cat("found ", word.type_name(), ", expected strings"));
    }
    const Modality modality = parse_modality(word.get_string(), "modalities");
    check_output_modality(model, modality);
    if (std::ranges::find(out, modality) == out.end()) {
      out.push_back(modality);
    }
  }
  return out;
}

// How many alternatives a token is told with; nothing: no log-probabilities. Models take the number
// as their parameter "logprobs", chat clients send a boolean and "top_logprobs".
std::optional<int64_t> read_logprobs(RequestReader& reader) {
  if (!reader.is_parameter("logprobs")) {
    reader.refuse("logprobs");
    reader.refuse("top_logprobs");
    return std::nullopt;
  }
  constexpr int64_t kMostAlternatives = 20;
  const bool wanted = reader.take_bool("logprobs", false);
  const int64_t num_top = reader.take_int("top_logprobs", 0, kMostAlternatives, 0);
  if (num_top > 0 && !wanted) {
    throw ApiError(ErrorCode::kInvalidArgument,
                   "[request] \"top_logprobs\": needs \"logprobs\": true",
                   "top_logprobs");
  }
  return wanted ? std::optional(num_top) : std::nullopt;
}

}  // namespace

ChatRequest parse_chat_request(const Json& body,
                               const ModelDescription& model,
                               int64_t max_choices,
                               const MediaAccess& media) {
  RequestReader reader(body, model);
  ChatRequest chat;
  chat.answer = reader.take_answer_options(max_choices);
  read_messages(reader.take("messages"), media, chat.request);
  for (const MediaItem& item : chat.request.media) {
    check_input_modality(model, item.modality);
  }
  chat.request.output_modalities = read_modalities(reader.take("modalities"), model);
  for (const char* name : {"tools",
                           "functions",
                           "function_call",
                           "audio",
                           "prediction",
                           "web_search_options",
                           "reasoning_effort",
                           "verbosity"}) {
    reader.refuse(name);
  }
  reader.refuse("tool_choice", {Json("none"), Json("auto")});
  reader.refuse("parallel_tool_calls", {Json(true)});
  reader.refuse("response_format", {Json::object({{"type", "text"}})});
  const std::optional<int64_t> logprobs = read_logprobs(reader);
  chat.request.parameters = reader.parameters();
  if (logprobs) {
    chat.request.parameters.set("logprobs", *logprobs);
  }
  return chat;
}

Json usage_json(int64_t num_prompt_tokens, int64_t num_generated_tokens) {
  return Json::object({{"prompt_tokens", num_prompt_tokens},
                       {"completion_tokens", num_generated_tokens},
                       {"total_tokens", num_prompt_tokens + num_generated_tokens}});
}

}  // namespace mstar

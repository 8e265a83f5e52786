#include "mstar/server/openai/chat.h"

#include "mstar/base/str_cat.h"
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/encoding.h"
#include "mstar/server/openai/logprobs.h"

namespace mstar {

namespace {

int64_t metadata_int(const Json& metadata, std::string_view name, int64_t fallback) {
  const Json* value = metadata.find(name);
  return value != nullptr && value->is_integer() ? value->get_int() : fallback;
}

// One answer's media next to its text: images and clips as content parts, speech as `audio`.
void add_media(const Outcome& outcome, std::string_view id, Json& message) {
  Json parts = Json::array();
  std::string pcm;
  int64_t sample_rate = 0;
  int64_t num_channels = 1;
  for (const OutputChunk& chunk : outcome.chunks) {
    if (chunk.modality == Modality::kImage || chunk.modality == Modality::kVideo) {
      const bool image = chunk.modality == Modality::kImage;
      const char* type = image ? "image_url" : "video_url";
      const std::string url = str_cat(image ? "data:image/png;base64," : "data:video/mp4;base64,",
                                      encode_base64(chunk.data));
      parts.push_back(Json::object({{"type", type}, {type, Json::object({{"url", url}})}}));
    } else if (chunk.modality == Modality::kAudio) {
      pcm += chunk.data;
      sample_rate = metadata_int(chunk.metadata, "sample_rate", 24000);
      num_channels = metadata_int(chunk.metadata, "num_channels", 1);
    }
  }
  const std::string text = outcome.text();
  if (parts.size() > 0) {
    if (!text.empty()) {
      parts.push_back(Json::object({{"type", "text"}, {"text", text}}));
    }
    message.set("content", std::move(parts));
  } else {
    message.set("content", text);
  }
  if (!pcm.empty()) {
    message.set("audio",
                Json::object({{"id", str_cat("audio-", id)},
                              {"data", encode_base64(wav_file(pcm, sample_rate, num_channels))},
                              {"transcript", text},
                              {"expires_at", unix_seconds() + 3600}}));
  }
}

HttpResponse chat_document(const std::vector<Outcome>& outcomes,
                           const std::string& id,
                           const std::string& model) {
  Json choices = Json::array();
  int64_t num_generated = 0;
  for (size_t index = 0; index < outcomes.size(); ++index) {
    Json message = Json::object({{"role", "assistant"}});
    add_media(outcomes[index], id, message);
    message.set("refusal", nullptr);
    choices.push_back(Json::object({{"index", static_cast<int64_t>(index)},
                                    {"message", std::move(message)},
                                    {"logprobs", chat_logprobs(outcomes[index].logprobs())},
                                    {"finish_reason", outcomes[index].completion.finish_reason}}));
    num_generated += outcomes[index].completion.num_generated_tokens;
  }
  return json_response(Json::object(
      {{"id", id},
       {"object", "chat.completion"},
       {"created", unix_seconds()},
       {"model", model},
       {"choices", std::move(choices)},
       {"usage", usage_json(outcomes.front().completion.num_prompt_tokens, num_generated)}}));
}

// Choices as they come, as server-sent events. Nothing is sent before the first piece of the
// answer, so that what is refused gets its own status.
class ChatStream final : public Answer {
 public:
  ChatStream(ServerContext& context,
             std::shared_ptr<ResponseWriter> writer,
             std::string id,
             std::string model,
             const AnswerOptions& options)
      : Answer(context, std::move(writer)),
        id_(std::move(id)),
        model_(std::move(model)),
        include_usage_(options.include_usage),
        has_role_(static_cast<size_t>(options.num_choices), false),
        logprobs_(static_cast<size_t>(options.num_choices)) {}

 protected:
  void chunk(size_t index, OutputChunk chunk) override {
    open(index);
    logprobs_[index].insert(logprobs_[index].end(), chunk.logprobs.begin(), chunk.logprobs.end());
    Json delta = Json::object();
    if (chunk.modality == Modality::kText) {
      if (chunk.data.empty()) {
        return;  // bytes held back: an unfinished character or stop string
      }
      delta.set("content", chunk.data);
    } else if (chunk.modality == Modality::kAudio) {
      delta.set("audio", Json::object({{"data", encode_base64(chunk.data)}}));
    } else {
      const bool image = chunk.modality == Modality::kImage;
      const char* type = image ? "image_url" : "video_url";
      const std::string url = str_cat(image ? "data:image/png;base64," : "data:video/mp4;base64,",
                                      encode_base64(chunk.data));
      delta.set(
          "content",
          Json(Json::Array{Json::object({{"type", type}, {type, Json::object({{"url", url}})}})}));
    }
    send(index, std::move(delta), nullptr);
  }

  void done(size_t index, const Completion& completion) override {
    open(index);
    send(index, Json::object(), completion.finish_reason);
    num_prompt_tokens_ = completion.num_prompt_tokens;
    num_generated_tokens_ += completion.num_generated_tokens;
  }

  void all_done() override {
    if (include_usage_) {
      Json event = envelope(Json::array());
      event.set("usage", usage_json(num_prompt_tokens_, num_generated_tokens_));
      writer().write(sse_event(event));
    }
    writer().write(kSseDone);
    writer().finish();
  }

  void failed(const Error& error) override {
    if (!started_) {
      writer().send(error_response(error));
      return;
    }
    writer().write(sse_event(error_json(error)));  // and no [DONE]: this is no normal end
    writer().finish();
  }

 private:
  Json envelope(Json choices) const {
    Json event = Json::object({{"id", id_},
                               {"object", "chat.completion.chunk"},
                               {"created", created_},
                               {"model", model_},
                               {"choices", std::move(choices)}});
    if (include_usage_) {
      event.set("usage", nullptr);
    }
    return event;
  }

  void send(size_t index, Json delta, const Json& finish_reason) {
    Json choice = Json::object({{"index", static_cast<int64_t>(index)},
                                {"delta", std::move(delta)},
                                {"logprobs", chat_logprobs(logprobs_[index])},
                                {"finish_reason", finish_reason}});
    logprobs_[index].clear();
    writer().write(sse_event(envelope(Json(Json::Array{std::move(choice)}))));
  }

  void open(size_t index) {
    if (!started_) {
      started_ = true;
      writer().start(200, sse_headers());
    }
    if (!has_role_[index]) {
      has_role_[index] = true;
      send(index, Json::object({{"role", "assistant"}, {"content", ""}}), nullptr);
    }
  }

  const std::string id_;
  const std::string model_;
  const bool include_usage_;
  const int64_t created_ = unix_seconds();
  std::vector<bool> has_role_;
  std::vector<std::vector<TokenLogprob>> logprobs_;  // of tokens whose text is held back
  bool started_ = false;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_generated_tokens_ = 0;
};

void chat_completions(ServerContext& context,
                      const HttpRequest& request,
                      const std::shared_ptr<ResponseWriter>& writer) {
  const auto backend = context.backend();
  const ModelDescription& model = backend->description();
  const Json body = parse_json_body(request);
  context.check_model(*backend, asked_model(body));
  const ChatRequest chat =
      parse_chat_request(body, model, context.options().max_choices, context.media());
  const std::string id = context.new_id("chatcmpl-");
  std::vector<ModelRequest> requests = repeat_request(chat.request, chat.answer.num_choices, id);
  std::shared_ptr<Answer> answer;
  if (chat.answer.stream) {
    answer = std::make_shared<ChatStream>(context, writer, id, model.name, chat.answer);
  } else {
    answer = std::make_shared<DocumentAnswer>(
        context, writer, requests.size(), [id, name = model.name](std::vector<Outcome>& outcomes) {
          return chat_document(outcomes, id, name);
        });
  }
  answer->run(*backend, std::move(requests));
}

}  // namespace

void add_chat_route(ServerContext& context, Router& router) {
  router.add(
      {.method = "POST",
       .pattern = "/v1/chat/completions",
       .handler = [&context](const HttpRequest& request, std::shared_ptr<ResponseWriter> writer) {
         chat_completions(context, request, writer);
       }});
}

}  // namespace mstar

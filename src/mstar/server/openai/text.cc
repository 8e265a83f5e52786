// POST /v1/completions, /tokenize and /detokenize.
#include <algorithm>
#include <utility>

#include "mstar/base/str_cat.h"
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/openai/chat.h"
#include "mstar/server/openai/logprobs.h"
#include "mstar/server/openai/request.h"

namespace mstar {

namespace {

// Text, or the ids of its tokens.
struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};

struct CompletionRequest {
  std::vector<ModelRequest> requests;  // prompts times choices
  AnswerOptions answer;
  std::vector<std::string> echoes;  // [requests] what stands before each answer
};

// The parameter by which a model takes a prompt as ids.
constexpr std::string_view kPromptIds = "prompt_token_ids";

[[noreturn]] void fail_prompt(const std::string& what) {
  throw ApiError(ErrorCode::kInvalidArgument, str_cat("[request] \"prompt\": ", what), "prompt");
}

int32_t token_id(const Json& json) {
  if (!json.is_integer() || json.get_double() < 0 || json.get_double() > INT32_MAX) {
    fail_prompt(str_cat("found ", json.dump(), ", expected a token id"));
  }
  return static_cast<int32_t>(json.get_int());
}

Prompt read_prompt(const Json& json) {
  if (json.is_string()) {
    return {json.get_string(), {}};
  }
  if (!json.is_array() || json.size() == 0) {
    fail_prompt(
        str_cat("found ", json.type_name(), " in the list, expected text or a list of token ids"));
  }
  Prompt prompt;
  for (const Json& one : json.get_array()) {
    prompt.ids.push_back(token_id(one));
  }
  return prompt;
}

// A text, a list of texts, the ids of one prompt, or a list of such lists.
std::vector<Prompt> read_prompts(const Json* json, int64_t max_prompts) {
  if (json == nullptr) {
    fail_prompt("is missing");
  }
  if (json->is_string()) {
    return {{json->get_string(), {}}};
  }
  if (!json->is_array() || json->size() == 0) {
    fail_prompt(str_cat("found ", json->type_name(), ", expected text or a list of texts"));
  }
  if (json->get_array().front().is_number()) {
    return {read_prompt(*json)};
  }
  if (static_cast<int64_t>(json->size()) > max_prompts) {
    fail_prompt(str_cat("more than ", max_prompts, " prompts"));
  }
  std::vector<Prompt> prompts;
  for (const Json& one : json->get_array()) {
    prompts.push_back(read_prompt(one));
  }
  return prompts;
}

CompletionRequest parse_completion_request(const Json& body,
                                           const Backend& backend,
                                           int64_t max_choices,
                                           const std::string& id) {
  const ModelDescription& model = backend.description();
  RequestReader reader(body, model);
  CompletionRequest out;
  out.answer = reader.take_answer_options(max_choices);
  check_output_modality(model, Modality::kText);
  const std::vector<Prompt> prompts =
      read_prompts(reader.take("prompt"), max_choices / out.answer.num_choices);
  const bool echo = reader.take_bool("echo", false);
  if (echo && body.find("logprobs") != nullptr && !body.find("logprobs")->is_null()) {
    throw ApiError(ErrorCode::kUnsupported,
                   "[request] \"echo\": log-probabilities of the prompt are not supported",
                   "echo",
                   "unsupported_parameter");
  }
  for (const char* name : {"suffix", "logprobs", "response_format"}) {
    reader.refuse(name);
  }
  reader.refuse("best_of", {Json(out.answer.num_choices)});
  const Json parameters = reader.parameters();
  for (size_t index = 0; index < prompts.size(); ++index) {
    const Prompt& prompt = prompts[index];
    ModelRequest request = prompt_request(prompt.text, Modality::kText);
    request.raw_prompt = true;
    request.parameters = parameters;
    if (!prompt.ids.empty()) {
      if (!reader.is_parameter(kPromptIds)) {
        fail_prompt("this model takes text, not token ids");
      }
      Json ids = Json::array();
      for (const int32_t token : prompt.ids) {
        ids.push_back(token);
      }
      request.parameters.set(kPromptIds, std::move(ids));
      static_cast<void>(model.parameters.resolve(request.parameters));  // they may be too many
    }
    const std::string prompt_id = index == 0 ? id : str_cat(id, "-p", index);
    for (ModelRequest& one : repeat_request(request, out.answer.num_choices, prompt_id)) {
      out.requests.push_back(std::move(one));
      std::string& text = out.echoes.emplace_back();
      if (echo) {
        text = prompt.ids.empty() ? prompt.text : backend.prompt_text(prompt.ids);
      }
    }
  }
  return out;
}

// The prompts' tokens once each, whatever the number of choices.
int64_t count_prompt_tokens(const std::vector<Completion>& completions, int64_t num_choices) {
  int64_t count = 0;
  for (size_t index = 0; index < completions.size(); index += static_cast<size_t>(num_choices)) {
    count += completions[index].num_prompt_tokens;
  }
  return count;
}

Json usage_of(const std::vector<Completion>& completions, int64_t num_choices) {
  int64_t num_generated = 0;
  for (const Completion& completion : completions) {
    num_generated += completion.num_generated_tokens;
  }
  return usage_json(count_prompt_tokens(completions, num_choices), num_generated);
}

Json choice_json(size_t index, const std::string& text, Json logprobs, const Json& finish_reason) {
  return Json::object({{"index", static_cast<int64_t>(index)},
                       {"text", text},
                       {"logprobs", std::move(logprobs)},
                       {"finish_reason", finish_reason}});
}

Json completion_envelope(const std::string& id, const std::string& model, Json choices) {
  return Json::object({{"id", id},
                       {"object", "text_completion"},
                       {"created", unix_seconds()},
                       {"model", model},
                       {"choices", std::move(choices)}});
}

class CompletionStream final : public Answer {
 public:
  CompletionStream(ServerContext& context,
                   std::shared_ptr<ResponseWriter> writer,
                   std::string id,
                   std::string model,
                   const CompletionRequest& request)
      : Answer(context, std::move(writer)),
        id_(std::move(id)),
        model_(std::move(model)),
        options_(request.answer),
        echoes_(request.echoes),
        completions_(request.requests.size()),
        logprobs_(request.requests.size()),
        offsets_(request.requests.size()) {}

 protected:
  void chunk(size_t index, OutputChunk chunk) override {
    open();
    chunk.data.insert(0, std::exchange(echoes_[index], {}));
    logprobs_[index].insert(logprobs_[index].end(), chunk.logprobs.begin(), chunk.logprobs.end());
    if (chunk.modality == Modality::kText && !chunk.data.empty()) {
      send(choice_json(index, chunk.data, take_logprobs(index), nullptr));
    }
  }

  void done(size_t index, const Completion& completion) override {
    open();
    send(choice_json(
        index, std::exchange(echoes_[index], {}), take_logprobs(index), completion.finish_reason));
    completions_[index] = completion;
  }

  void all_done() override {
    if (options_.include_usage) {
      Json event = completion_envelope(id_, model_, Json::array());
      event.set("usage", usage_of(completions_, options_.num_choices));
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
    writer().write(sse_event(error_json(error)));
    writer().finish();
  }

 private:
  void open() {
    if (!started_) {
      started_ = true;
      writer().start(200, sse_headers());
    }
  }

  Json take_logprobs(size_t index) {
    Json json = completion_logprobs(logprobs_[index], offsets_[index]);
    logprobs_[index].clear();
    return json;
  }

  void send(Json choice) {
    Json event = completion_envelope(id_, model_, Json(Json::Array{std::move(choice)}));
    if (options_.include_usage) {
      event.set("usage", nullptr);
    }
    writer().write(sse_event(event));
  }

  const std::string id_;
  const std::string model_;
  const AnswerOptions options_;
  std::vector<std::string> echoes_;  // not yet sent
  std::vector<Completion> completions_;
  std::vector<std::vector<TokenLogprob>> logprobs_;  // of tokens whose text is held back
  std::vector<int64_t> offsets_;                     // characters told about so far
  bool started_ = false;
};

HttpResponse completion_document(const std::vector<Outcome>& outcomes,
                                 const std::string& id,
                                 const std::string& model,
                                 int64_t num_choices,
                                 const std::vector<std::string>& echoes) {
  Json choices = Json::array();
  std::vector<Completion> completions;
  for (size_t index = 0; index < outcomes.size(); ++index) {
    const Completion& completion = outcomes[index].completion;
    int64_t offset = 0;
    choices.push_back(choice_json(index,
                                  echoes[index] + outcomes[index].text(),
                                  completion_logprobs(outcomes[index].logprobs(), offset),
                                  completion.finish_reason));
    completions.push_back(completion);
  }
  Json document = completion_envelope(id, model, std::move(choices));
  document.set("usage", usage_of(completions, num_choices));
  return json_response(document);
}

void completions(ServerContext& context,
                 const HttpRequest& request,
                 const std::shared_ptr<ResponseWriter>& writer) {
  const auto backend = context.backend();
  const std::string& model = backend->description().name;
  const Json body = parse_json_body(request);
  context.check_model(*backend, asked_model(body));
  const std::string id = context.new_id("cmpl-");
  CompletionRequest parsed =
      parse_completion_request(body, *backend, context.options().max_choices, id);
  std::shared_ptr<Answer> answer;
  if (parsed.answer.stream) {
    answer = std::make_shared<CompletionStream>(context, writer, id, model, parsed);
  } else {
    answer = std::make_shared<DocumentAnswer>(
        context,
        writer,
        parsed.requests.size(),
        [id, model, n = parsed.answer.num_choices, echoes = parsed.echoes](
            std::vector<Outcome>& outcomes) {
          return completion_document(outcomes, id, model, n, echoes);
        });
  }
  answer->run(*backend, std::move(parsed.requests));
}

void tokenize(ServerContext& context,
              const HttpRequest& request,
              const std::shared_ptr<ResponseWriter>& writer) {
  const auto backend = context.backend();
  const Json body = parse_json_body(request);
  context.check_model(*backend, asked_model(body));
  JsonReader reader(body, "request");
  reader.ignore("model");
  // vLLM says prompt, llama-server content, mstar's own endpoints text.
  std::string text;
  int num_given = 0;
  for (const char* name : {"prompt", "content", "text"}) {
    if (reader.has(name)) {
      ++num_given;
    }
    text += reader.get_string(name, "");
  }
  const bool special = reader.get_bool("add_special_tokens", true);
  reader.finish();
  if (num_given != 1) {
    throw Error(ErrorCode::kInvalidArgument, "[request] \"prompt\": expected one text");
  }
  Json tokens = Json::array();
  for (const int32_t id : backend->tokenize(text, special)) {
    tokens.push_back(id);
  }
  const auto count = static_cast<int64_t>(tokens.size());
  writer->send(json_response(Json::object({{"count", count},
                                           {"max_model_len", backend->description().max_model_len},
                                           {"tokens", std::move(tokens)}})));
}

void detokenize(ServerContext& context,
                const HttpRequest& request,
                const std::shared_ptr<ResponseWriter>& writer) {
  const auto backend = context.backend();
  const Json body = parse_json_body(request);
  context.check_model(*backend, asked_model(body));
  JsonReader reader(body, "request");
  reader.ignore("model");
  const Json& tokens = reader.get("tokens");
  reader.finish();
  std::vector<int32_t> ids;
  if (!tokens.is_array()) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[request] \"tokens\": found ", tokens.type_name(), ", expected a list"));
  }
  for (const Json& token : tokens.get_array()) {
    if (!token.is_integer() || token.get_double() < 0 || token.get_double() > INT32_MAX) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[request] \"tokens\": found ", token.dump(), ", expected token ids"));
    }
    ids.push_back(static_cast<int32_t>(token.get_int()));
  }
  const std::string text = backend->detokenize(ids);
  writer->send(json_response(Json::object({{"prompt", text}, {"content", text}})));
}

}  // namespace

void add_text_routes(ServerContext& context, Router& router) {
  const auto add = [&](const char* pattern, auto* function) {
    router.add({.method = "POST",
                .pattern = pattern,
                .handler = [&context, function](const HttpRequest& request,
                                                std::shared_ptr<ResponseWriter> writer) {
                  function(context, request, writer);
                }});
  };
  add("/v1/completions", completions);
  add("/tokenize", tokenize);
  add("/detokenize", detokenize);
}

}  // namespace mstar

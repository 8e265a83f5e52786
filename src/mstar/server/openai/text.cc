// POST /v1/completions, /tokenize and /detokenize.
#include <algorithm>

#include "mstar/base/str_cat.h"
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/openai/chat.h"
#include "mstar/server/openai/logprobs.h"
#include "mstar/server/openai/request.h"

namespace mstar {

namespace {

struct CompletionRequest {
  std::vector<ModelRequest> requests;  // prompts times choices
  AnswerOptions answer;
};

std::vector<std::string> read_prompts(const Json* prompt, int64_t max_prompts) {
  const auto fail = [](const std::string& what) {
    throw ApiError(ErrorCode::kInvalidArgument, str_cat("[request] \"prompt\": ", what), "prompt");
  };
  if (prompt == nullptr) {
    fail("is missing");
  }
  if (prompt->is_string()) {
    return {prompt->get_string()};
  }
  if (!prompt->is_array() || prompt->size() == 0) {
    fail(str_cat("found ", prompt->type_name(), ", expected text or a list of texts"));
  }
  if (static_cast<int64_t>(prompt->size()) > max_prompts) {
    fail(str_cat("more than ", max_prompts, " prompts"));
  }
  std::vector<std::string> prompts;
  for (const Json& one : prompt->get_array()) {
    if (!one.is_string()) {
      fail(str_cat("found ", one.type_name(), " in the list, expected text (not token ids)"));
    }
    prompts.push_back(one.get_string());
  }
  return prompts;
}

CompletionRequest parse_completion_request(const Json& body,
                                           const ModelDescription& model,
                                           int64_t max_choices,
                                           const std::string& id) {
  RequestReader reader(body, model);
  CompletionRequest out;
  out.answer = reader.take_answer_options(max_choices);
  check_output_modality(model, Modality::kText);
  const std::vector<std::string> prompts =
      read_prompts(reader.take("prompt"), max_choices / out.answer.num_choices);
  for (const char* name : {"echo", "suffix", "logprobs", "response_format"}) {
    reader.refuse(name);
  }
  reader.refuse("best_of", {Json(out.answer.num_choices)});
  const Json parameters = reader.parameters();
  for (size_t index = 0; index < prompts.size(); ++index) {
    ModelRequest request = prompt_request(prompts[index], Modality::kText);
    request.raw_prompt = true;
    request.parameters = parameters;
    const std::string prompt_id = index == 0 ? id : str_cat(id, "-p", index);
    for (ModelRequest& one : repeat_request(request, out.answer.num_choices, prompt_id)) {
      out.requests.push_back(std::move(one));
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
        completions_(request.requests.size()),
        logprobs_(request.requests.size()),
        offsets_(request.requests.size()) {}

 protected:
  void chunk(size_t index, OutputChunk chunk) override {
    open();
    logprobs_[index].insert(logprobs_[index].end(), chunk.logprobs.begin(), chunk.logprobs.end());
    if (chunk.modality == Modality::kText && !chunk.data.empty()) {
      send(choice_json(index, chunk.data, take_logprobs(index), nullptr));
    }
  }

  void done(size_t index, const Completion& completion) override {
    open();
    send(choice_json(index, "", take_logprobs(index), completion.finish_reason));
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
  std::vector<Completion> completions_;
  std::vector<std::vector<TokenLogprob>> logprobs_;  // of tokens whose text is held back
  std::vector<int64_t> offsets_;                     // characters told about so far
  bool started_ = false;
};

HttpResponse completion_document(const std::vector<Outcome>& outcomes,
                                 const std::string& id,
                                 const std::string& model,
                                 int64_t num_choices) {
  Json choices = Json::array();
  std::vector<Completion> completions;
  for (size_t index = 0; index < outcomes.size(); ++index) {
    const Completion& completion = outcomes[index].completion;
    int64_t offset = 0;
    choices.push_back(choice_json(index,
                                  outcomes[index].text(),
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
      parse_completion_request(body, backend->description(), context.options().max_choices, id);
  std::shared_ptr<Answer> answer;
  if (parsed.answer.stream) {
    answer = std::make_shared<CompletionStream>(context, writer, id, model, parsed);
  } else {
    answer = std::make_shared<DocumentAnswer>(
        context,
        writer,
        parsed.requests.size(),
        [id, model, n = parsed.answer.num_choices](std::vector<Outcome>& outcomes) {
          return completion_document(outcomes, id, model, n);
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

// POST /generate: mstar's own endpoint, every model and every modality.
#include <algorithm>

#include "mstar/base/str_cat.h"
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/encoding.h"
#include "mstar/server/http/form.h"
#include "mstar/server/openai/logprobs.h"
#include "mstar/server/openai/request.h"

namespace mstar {

namespace {

struct GenerateRequest {
  ModelRequest request;
  bool streaming = true;
  bool progress = false;  // lines of steps in the stream
};

std::vector<Modality> parse_modalities(std::string_view list, std::string_view where) {
  std::vector<Modality> out;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    const std::string_view word = trim(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
    if (!word.empty()) {
      out.push_back(parse_modality(word, where));
    }
  }
  return out;
}

bool parse_bool(std::string_view text, std::string_view where) {
  const std::string word = lower_ascii(trim(text));
  if (word == "true" || word == "1" || word == "yes" || word == "on") {
    return true;
  }
  if (word == "false" || word == "0" || word == "no" || word == "off") {
    return false;
  }
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[request] \"", where, "\": found \"", text, "\", expected true or false"));
}

// One user message: the files and the text in the order of `order`, or files first.
ChatMessage make_message(const ModelRequest& request,
                         const std::optional<std::string>& text,
                         const std::vector<Modality>& order) {
  ChatMessage message;
  message.role = "user";
  std::vector<bool> used(request.media.size(), false);
  bool text_used = !text.has_value();
  for (const Modality modality : order) {
    if (modality == Modality::kText) {
      if (text_used) {
        throw Error(ErrorCode::kInvalidArgument,
                    "[request] \"input_modalities\": asks for text that is not there");
      }
      message.content.push_back({.modality = Modality::kText, .text = *text, .media = -1});
      text_used = true;
      continue;
    }
    size_t index = 0;
    while (index < used.size() && (used[index] || request.media[index].modality != modality)) {
      ++index;
    }
    if (index == used.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[request] \"input_modalities\": asks for ",
                          graph::to_string(modality),
                          " that is not among the files"));
    }
    used[index] = true;
    message.content.push_back({.modality = modality, .text = "", .media = static_cast<int>(index)});
  }
  if (!text_used || std::ranges::find(used, false) != used.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                "[request] \"input_modalities\": does not name all that was sent");
  }
  return message;
}

GenerateRequest parse_generate(const HttpRequest& http,
                               const ModelDescription& model,
                               const MediaAccess& access,
                               const std::string& fresh_id) {
  GenerateRequest out;
  ModelRequest& request = out.request;
  request.request_id = fresh_id;
  request.output_modalities = {Modality::kText};
  std::optional<std::string> text;
  std::vector<Modality> order;
  for (FormField& field : parse_form(http)) {
    if (field.name == "files" || field.name == "files[]") {
      const std::string where = str_cat("files[", request.media.size(), "]");
      // A text field names the media, an upload carries it.
      request.media.push_back(
          !field.is_file && MediaAccess::is_uri(field.data)
              ? access.get(field.data, Modality::kNone, where)
              : media_from_upload(std::move(field.data), field.file_name, where));
      check_input_modality(model, request.media.back().modality);
    } else if (field.name == "text") {
      text = std::move(field.data);
    } else if (field.name == "input_modalities") {
      order = parse_modalities(field.data, field.name);
    } else if (field.name == "output_modalities") {
      request.output_modalities = parse_modalities(field.data, field.name);
    } else if (field.name == "streaming") {
      out.streaming = parse_bool(field.data, field.name);
    } else if (field.name == "progress") {
      out.progress = parse_bool(field.data, field.name);
    } else if (field.name == "model_kwargs") {
      if (!trim(field.data).empty()) {
        request.parameters = Json::parse(field.data, "model_kwargs", 32);
      }
    } else if (field.name == "request_id") {
      constexpr size_t kLongest = 128;
      if (field.data.size() > kLongest) {
        throw Error(ErrorCode::kInvalidArgument, "[request] \"request_id\": over 128 bytes");
      }
      if (!field.data.empty()) {
        request.request_id = field.data;
      }
    } else {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[request] \"", field.name, "\": is not a field of /generate"));
    }
  }
  if (!text && request.media.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "[request] \"text\": is missing, and so are files");
  }
  if (request.output_modalities.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "[request] \"output_modalities\": is empty");
  }
  for (const Modality modality : request.output_modalities) {
    check_output_modality(model, modality);
  }
  if (order.empty()) {
    for (const MediaItem& media : request.media) {
      order.push_back(media.modality);
    }
    if (text) {
      order.push_back(Modality::kText);
    }
  }
  request.messages.push_back(make_message(request, text, order));
  static_cast<void>(model.parameters.resolve(request.parameters, "model_kwargs"));
  return out;
}

Json chunk_metadata(const OutputChunk& chunk) {
  Json metadata = chunk.metadata.is_object() ? chunk.metadata : Json::object();
  if (!chunk.finish_reason.empty()) {
    metadata.set("finish_reason", chunk.finish_reason);
  }
  if (!chunk.logprobs.empty()) {
    metadata.set("logprobs", chat_logprobs(chunk.logprobs).at("content"));
  }
  return metadata;
}

std::string ndjson_line(std::string_view modality, std::string_view data, const Json& metadata) {
  return Json::object(
             {{"modality", modality}, {"data", encode_base64(data)}, {"metadata", metadata}})
             .dump() +
         "\n";
}

class GenerateStream final : public Answer {
 public:
  using Answer::Answer;

 protected:
  void chunk(size_t, OutputChunk chunk) override {
    open();
    if (!chunk.data.empty() || !chunk.finish_reason.empty() || !chunk.logprobs.empty()) {
      writer().write(
          ndjson_line(graph::to_string(chunk.modality), chunk.data, chunk_metadata(chunk)));
    }
  }

  void progress(size_t, std::string_view loop, int64_t iteration, int64_t limit) override {
    open();
    writer().write(ndjson_line(
        "progress", "", Json::object({{"loop", loop}, {"step", iteration}, {"num_steps", limit}})));
  }

  void done(size_t, const Completion&) override { open(); }

  void all_done() override { writer().finish(); }

  void failed(const Error& error) override {
    if (!started_) {
      writer().send(error_response(error));
      return;
    }
    writer().write(
        ndjson_line("error", error.what(), Json::object({{"status", http_status(error.code())}})));
    writer().finish();
  }

 private:
  void open() {
    if (!started_) {
      started_ = true;
      writer().start(
          200,
          {{"Content-Type", "application/x-ndjson; charset=utf-8"}, {"Cache-Control", "no-cache"}});
    }
  }

  bool started_ = false;
};

HttpResponse generate_document(const Outcome& outcome, const std::string& id) {
  Json outputs = Json::object();
  for (const OutputChunk& chunk : outcome.chunks) {
    if (chunk.data.empty() && chunk.logprobs.empty()) {
      continue;
    }
    const char* modality = graph::to_string(chunk.modality);
    Json entry =
        Json::object({{"data", encode_base64(chunk.data)}, {"metadata", chunk_metadata(chunk)}});
    const Json* so_far = outputs.find(modality);
    Json list = so_far != nullptr ? *so_far : Json::array();
    list.push_back(std::move(entry));
    outputs.set(modality, std::move(list));
  }
  return json_response(Json::object({{"request_id", id}, {"outputs", std::move(outputs)}}));
}

void generate(ServerContext& context,
              const HttpRequest& request,
              const std::shared_ptr<ResponseWriter>& writer) {
  const auto backend = context.backend();
  GenerateRequest parsed =
      parse_generate(request, backend->description(), context.media(), context.new_id("req-"));
  std::shared_ptr<Answer> answer;
  if (parsed.streaming) {
    answer = std::make_shared<GenerateStream>(context, writer);
  } else {
    answer = std::make_shared<DocumentAnswer>(
        context, writer, 1, [id = parsed.request.request_id](std::vector<Outcome>& outcomes) {
          return generate_document(outcomes.front(), id);
        });
  }
  answer->run(*backend, {std::move(parsed.request)}, parsed.streaming && parsed.progress);
}

}  // namespace

void add_generate_route(ServerContext& context, Router& router) {
  router.add(
      {.method = "POST",
       .pattern = "/generate",
       .handler = [&context](const HttpRequest& request, std::shared_ptr<ResponseWriter> writer) {
         generate(context, request, writer);
       }});
}

}  // namespace mstar

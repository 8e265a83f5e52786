// POST /v1/audio/speech and /v1/audio/transcriptions.
#include "mstar/media/audio.h"

#include <optional>

#include "mstar/base/str_cat.h"
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/encoding.h"
#include "mstar/server/openai/media_request.h"
#include "mstar/server/openai/request.h"

namespace mstar {

namespace {

using Writer = std::shared_ptr<ResponseWriter>;

[[noreturn]] void refuse_format(const std::string& found, std::string_view expected) {
  throw ApiError(
      ErrorCode::kInvalidArgument,
      str_cat("[request] \"response_format\": found \"", found, "\", expected ", expected),
      "response_format");
}

HttpResponse speech_document(const Outcome& outcome, AudioFormat format) {
  std::string pcm;
  int64_t sample_rate = 24000;
  int64_t num_channels = 1;
  for (const OutputChunk& chunk : outcome.chunks) {
    if (chunk.modality != Modality::kAudio) {
      continue;
    }
    pcm += chunk.data;
    if (const Json* rate = chunk.metadata.find("sample_rate")) {
      sample_rate = rate->get_int();
    }
    if (const Json* channels = chunk.metadata.find("num_channels")) {
      num_channels = channels->get_int();
    }
  }
  if (pcm.empty()) {
    throw Error(ErrorCode::kInternal, "[speech] the model made no sound");
  }
  std::string file = format == AudioFormat::kPcm16
                         ? std::move(pcm)
                         : write_audio(from_pcm16(pcm, sample_rate, num_channels), format);
  return {
      .status = 200, .headers = {{"Content-Type", media_type(format)}}, .body = std::move(file)};
}

void speech(ServerContext& context, const HttpRequest& http, Writer writer) {
  const auto backend = context.backend();
  check_output_modality(backend->description(), Modality::kAudio);
  MediaRequest parsed = parse_media_request(
      http, backend->description(), {.prompt = "input", .media = {}, .output = Modality::kAudio});
  context.check_model(*backend, parsed.model);
  const std::optional<AudioFormat> format =
      parse_audio_format(parsed.response_format.empty() ? "wav" : parsed.response_format);
  if (!format) {
    refuse_format(parsed.response_format, "wav, pcm, flac, mp3, opus or aac");
  }
  if (parsed.stream) {
    throw ApiError(ErrorCode::kUnsupported, "[request] \"stream\": is not supported", "stream");
  }
  parsed.request.request_id = context.new_id("speech-");
  auto answer = std::make_shared<DocumentAnswer>(
      context, std::move(writer), 1, [format = *format](std::vector<Outcome>& outcomes) {
        return speech_document(outcomes.front(), format);
      });
  answer->run(*backend, {std::move(parsed.request)});
}

class TranscriptStream final : public Answer {
 public:
  using Answer::Answer;

 protected:
  void chunk(size_t, OutputChunk chunk) override {
    open();
    if (chunk.modality == Modality::kText && !chunk.data.empty()) {
      text_ += chunk.data;
      writer().write(
          sse_event(Json::object({{"type", "transcript.text.delta"}, {"delta", chunk.data}})));
    }
  }

  void done(size_t, const Completion&) override { open(); }

  void all_done() override {
    writer().write(sse_event(Json::object({{"type", "transcript.text.done"}, {"text", text_}})));
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

  std::string text_;
  bool started_ = false;
};

void transcriptions(ServerContext& context, const HttpRequest& http, const Writer& writer) {
  const auto backend = context.backend();
  check_input_modality(backend->description(), Modality::kAudio);
  MediaRequest parsed =
      parse_media_request(http,
                          backend->description(),
                          {.needs_prompt = false, .media = {"file"}, .output = Modality::kText});
  context.check_model(*backend, parsed.model);
  if (parsed.request.media.size() != 1) {
    throw ApiError(ErrorCode::kInvalidArgument, "[request] \"file\": expected one", "file");
  }
  const bool as_text = parsed.response_format == "text";
  if (!parsed.response_format.empty() && !as_text && parsed.response_format != "json") {
    refuse_format(parsed.response_format, "json or text");
  }
  parsed.request.request_id = context.new_id("transcript-");
  std::shared_ptr<Answer> answer;
  if (parsed.stream) {
    answer = std::make_shared<TranscriptStream>(context, writer);
  } else {
    answer = std::make_shared<DocumentAnswer>(
        context, writer, 1, [as_text](std::vector<Outcome>& outcomes) -> HttpResponse {
          const std::string text = outcomes.front().text();
          if (as_text) {
            return {.status = 200,
                    .headers = {{"Content-Type", "text/plain; charset=utf-8"}},
                    .body = text + "\n"};
          }
          return json_response(Json::object({{"text", text}}));
        });
  }
  answer->run(*backend, {std::move(parsed.request)});
}

}  // namespace

void add_audio_routes(ServerContext& context, Router& router) {
  router.add({.method = "POST",
              .pattern = "/v1/audio/speech",
              .handler = [&context](const HttpRequest& request, Writer writer) {
                speech(context, request, std::move(writer));
              }});
  router.add({.method = "POST",
              .pattern = "/v1/audio/transcriptions",
              .handler = [&context](const HttpRequest& request, const Writer& writer) {
                transcriptions(context, request, writer);
              }});
}

}  // namespace mstar

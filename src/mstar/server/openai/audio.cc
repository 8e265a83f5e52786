// POST /v1/audio/speech and /v1/audio/transcriptions.
#include "mstar/media/audio.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
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
  if (pcm.empty() || sample_rate <= 0 || num_channels <= 0) {
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
  MediaRequest parsed =
      parse_media_request(http,
                          backend->description(),
                          context.media(),
                          {.prompt = "input", .media = {}, .output = Modality::kAudio});
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

// One piece of a transcript with its place in the sound.
struct Segment {
  double start = 0.0;
  double end = 0.0;
  std::string text;
};

// Pieces in order; a model that does not tell places gives one.
std::vector<Segment> segments_of(const Outcome& outcome) {
  std::vector<Segment> segments;
  for (const OutputChunk& chunk : outcome.chunks) {
    if (chunk.modality != Modality::kText) {
      continue;
    }
    const Json* start = chunk.metadata.find("start");
    const Json* end = chunk.metadata.find("end");
    const double from = start != nullptr ? start->get_double() : 0.0;
    if (segments.empty() || segments.back().start != from) {
      segments.push_back({from, end != nullptr ? end->get_double() : from, ""});
    }
    segments.back().text += chunk.data;
  }
  return segments;
}

// "00:01:02,345"; subtitles differ in what comes before the milliseconds.
std::string subtitle_time(double seconds, char point) {
  const auto total = static_cast<int64_t>(std::llround(seconds * 1000.0));
  char text[64];
  std::snprintf(text,
                sizeof(text),
                "%02d:%02d:%02d%c%03d",
                static_cast<int>(total / 3'600'000),
                static_cast<int>(total / 60'000 % 60),
                static_cast<int>(total / 1000 % 60),
                point,
                static_cast<int>(total % 1000));
  return text;
}

// SubRip (numbered, comma) or WebVTT (header, point). Blank lines end a cue, so the text has none.
std::string subtitles(const Outcome& outcome, bool is_vtt) {
  std::string out = is_vtt ? "WEBVTT\n\n" : "";
  int number = 0;
  for (const Segment& segment : segments_of(outcome)) {
    std::string text(trim(segment.text));
    std::ranges::replace(text, '\n', ' ');
    if (text.empty()) {
      continue;
    }
    const char point = is_vtt ? '.' : ',';
    if (!is_vtt) {
      out += str_cat(++number, "\n");
    }
    out += str_cat(subtitle_time(segment.start, point),
                   " --> ",
                   subtitle_time(segment.end, point),
                   "\n",
                   text,
                   "\n\n");
  }
  return out;
}

Json verbose_json(const Outcome& outcome) {
  Json segments = Json::array();
  double duration = 0.0;
  for (const Segment& segment : segments_of(outcome)) {
    segments.push_back(Json::object({{"id", static_cast<int64_t>(segments.size())},
                                     {"start", segment.start},
                                     {"end", segment.end},
                                     {"text", segment.text}}));
    duration = segment.end;
  }
  Json language;
  for (const OutputChunk& chunk : outcome.chunks) {
    if (const Json* told = chunk.metadata.find("language")) {
      language = *told;
      break;
    }
  }
  return Json::object({{"task", "transcribe"},
                       {"language", std::move(language)},
                       {"duration", duration},
                       {"text", outcome.text()},
                       {"segments", std::move(segments)}});
}

HttpResponse transcript_document(const Outcome& outcome, const std::string& format) {
  const auto plain = [](std::string body, const char* type) {
    return HttpResponse{.status = 200,
                        .headers = {{"Content-Type", str_cat(type, "; charset=utf-8")}},
                        .body = std::move(body)};
  };
  if (format == "text") {
    return plain(outcome.text() + "\n", "text/plain");
  }
  if (format == "srt") {
    return plain(subtitles(outcome, false), "application/x-subrip");
  }
  if (format == "vtt") {
    return plain(subtitles(outcome, true), "text/vtt");
  }
  return json_response(format == "verbose_json" ? verbose_json(outcome)
                                                : Json::object({{"text", outcome.text()}}));
}

void transcriptions(ServerContext& context, const HttpRequest& http, const Writer& writer) {
  const auto backend = context.backend();
  check_input_modality(backend->description(), Modality::kAudio);
  MediaRequest parsed =
      parse_media_request(http,
                          backend->description(),
                          context.media(),
                          {.needs_prompt = false, .media = {"file"}, .output = Modality::kText});
  context.check_model(*backend, parsed.model);
  if (parsed.request.media.size() != 1) {
    throw ApiError(ErrorCode::kInvalidArgument, "[request] \"file\": expected one", "file");
  }
  constexpr std::array<std::string_view, 5> kFormats = {
      "json", "text", "verbose_json", "srt", "vtt"};
  const std::string format = parsed.response_format.empty() ? "json" : parsed.response_format;
  if (std::ranges::find(kFormats, format) == kFormats.end()) {
    refuse_format(format, str_cat("one of ", str_join(kFormats, ", ")));
  }
  parsed.request.request_id = context.new_id("transcript-");
  std::shared_ptr<Answer> answer;
  if (parsed.stream) {
    answer = std::make_shared<TranscriptStream>(context, writer);
  } else {
    answer = std::make_shared<DocumentAnswer>(
        context, writer, 1, [format](std::vector<Outcome>& outcomes) {
          return transcript_document(outcomes.front(), format);
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

// The routes of /v1/videos.
#include "mstar/base/str_cat.h"
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/api_error.h"
#include "mstar/server/encoding.h"
#include "mstar/server/openai/media_events.h"
#include "mstar/server/openai/media_request.h"
#include "mstar/server/openai/video_jobs.h"
#include "mstar/server/openai/video_stream.h"

namespace mstar {

namespace {

using Writer = std::shared_ptr<ResponseWriter>;

MediaRequest parse_video(ServerContext& context, const Backend& backend, const HttpRequest& http) {
  MediaRequest parsed = parse_media_request(
      http,
      backend.description(),
      context.media(),
      {.media = {"input_reference", "image", "video"}, .output = Modality::kVideo});
  context.check_model(backend, parsed.model);
  if (!parsed.output_format.empty() && parsed.output_format != "mp4") {
    throw ApiError(
        ErrorCode::kInvalidArgument,
        str_cat("[request] \"output_format\": found \"", parsed.output_format, "\", expected mp4"),
        "output_format");
  }
  prefer_mp4(backend.description(), parsed.request);
  const Json* format = parsed.request.parameters.find("video_format");
  if (format != nullptr && *format != Json("mp4")) {
    throw ApiError(ErrorCode::kInvalidArgument,
                   str_cat("[request] \"video_format\": found ",
                           format->dump(),
                           ", this route makes mp4; /generate has others"),
                   "video_format");
  }
  parsed.request.request_id = context.new_id("video_");
  return parsed;
}

std::string video_of(const Outcome& outcome) {
  std::string video;
  for (const OutputChunk& chunk : outcome.chunks) {
    if (chunk.modality == Modality::kVideo) {
      video += chunk.data;
    }
  }
  if (video.empty()) {
    throw Error(ErrorCode::kInternal, "[videos] the model made no video");
  }
  return video;
}

HttpResponse mp4_response(std::string video) {
  return {.status = 200, .headers = {{"Content-Type", "video/mp4"}}, .body = std::move(video)};
}

// Server-sent events: the steps, and the video when it is there (a streamed one in pieces).
class VideoEvents final : public MediaEvents {
 public:
  VideoEvents(ServerContext& context, Writer writer)
      : MediaEvents(context, std::move(writer), "video_generation") {}

 protected:
  void chunk(size_t, OutputChunk chunk) override {
    if (chunk.modality == Modality::kVideo && !chunk.data.empty()) {
      send("completed",
           Json::object({{"created_at", unix_seconds()},
                         {"b64_json", encode_base64(chunk.data)},
                         {"metadata", chunk.metadata}}));
    }
  }
};

void answer_now(ServerContext& context, const HttpRequest& http, Writer writer, bool as_json) {
  const auto backend = context.backend();
  MediaRequest parsed = parse_video(context, *backend, http);
  if (parsed.stream && !as_json) {
    throw ApiError(ErrorCode::kInvalidArgument,
                   "[request] \"stream\": this route answers with the file",
                   "stream");
  }
  if (parsed.stream) {
    auto events = std::make_shared<VideoEvents>(context, std::move(writer));
    events->run(*backend, {std::move(parsed.request)}, true);
    return;
  }
  if (!as_json && wants_video_stream(parsed.request)) {
    std::make_shared<VideoStreamAnswer>(context, std::move(writer))
        ->run(*backend, {std::move(parsed.request)});
    return;
  }
  auto answer = std::make_shared<DocumentAnswer>(
      context, std::move(writer), 1, [as_json](std::vector<Outcome>& outcomes) {
        std::string video = video_of(outcomes.front());
        if (!as_json) {
          return mp4_response(std::move(video));
        }
        Json data = Json(Json::Array{Json::object({{"b64_json", encode_base64(video)}})});
        return json_response(Json::object(
            {{"created", unix_seconds()}, {"data", std::move(data)}, {"output_format", "mp4"}}));
      });
  answer->run(*backend, {std::move(parsed.request)});
}

}  // namespace

void add_video_routes(ServerContext& context, VideoJobs& jobs, Router& router) {
  const auto id_of = [](const HttpRequest& request) {
    return request.path_values.find("id")->second;
  };
  const auto add = [&](const char* method, const char* pattern, Router::Handler handler) {
    router.add({.method = method, .pattern = pattern, .handler = std::move(handler)});
  };
  add("POST", "/v1/videos/generations", [&context](const HttpRequest& request, Writer writer) {
    answer_now(context, request, std::move(writer), true);
  });
  add("POST", "/v1/videos/sync", [&context](const HttpRequest& request, Writer writer) {
    answer_now(context, request, std::move(writer), false);
  });
  add("POST", "/v1/videos", [&context, &jobs](const HttpRequest& request, const Writer& writer) {
    const auto backend = context.backend();
    writer->send(
        json_response(jobs.start(*backend, parse_video(context, *backend, request).request)));
  });
  add("GET", "/v1/videos", [&jobs](const HttpRequest&, const Writer& writer) {
    writer->send(json_response(jobs.list()));
  });
  add("GET", "/v1/videos/{id}", [&jobs, id_of](const HttpRequest& request, const Writer& writer) {
    writer->send(json_response(jobs.get(id_of(request))));
  });
  add("GET",
      "/v1/videos/{id}/content",
      [&jobs, id_of](const HttpRequest& request, const Writer& writer) {
        writer->send(mp4_response(*jobs.content(id_of(request))));
      });
  add("DELETE",
      "/v1/videos/{id}",
      [&jobs, id_of](const HttpRequest& request, const Writer& writer) {
        writer->send(json_response(jobs.remove(id_of(request))));
      });
}

}  // namespace mstar

// POST /v1/images/generations and /v1/images/edits.
#include "mstar/base/str_cat.h"
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/encoding.h"
#include "mstar/server/openai/media_request.h"
#include "mstar/server/openai/request.h"

namespace mstar {

namespace {

constexpr int64_t kMostImages = 10;

HttpResponse images_document(const std::vector<Outcome>& outcomes) {
  Json data = Json::array();
  std::string size;
  for (const Outcome& outcome : outcomes) {
    for (const OutputChunk& chunk : outcome.chunks) {
      if (chunk.modality != Modality::kImage || chunk.data.empty()) {
        continue;
      }
      data.push_back(Json::object({{"b64_json", encode_base64(chunk.data)}}));
      const Json* width = chunk.metadata.find("width");
      const Json* height = chunk.metadata.find("height");
      if (width != nullptr && height != nullptr) {
        size = str_cat(width->dump(), "x", height->dump());
      }
    }
  }
  if (data.size() == 0) {
    throw Error(ErrorCode::kInternal, "[images] the model made no image");
  }
  Json document = Json::object({{"created", unix_seconds()}, {"data", std::move(data)}});
  if (!size.empty()) {
    document.set("size", size);
  }
  document.set("output_format", "png");
  return json_response(document);
}

void images(ServerContext& context,
            const HttpRequest& http,
            const std::shared_ptr<ResponseWriter>& writer,
            bool needs_image) {
  const auto backend = context.backend();
  MediaFields fields{.media = {}, .output = Modality::kImage, .max_choices = kMostImages};
  if (needs_image) {
    fields.media = {"image"};
  }
  MediaRequest parsed = parse_media_request(http, backend->description(), fields);
  context.check_model(*backend, parsed.model);
  if (needs_image && parsed.request.media.empty()) {
    throw ApiError(ErrorCode::kInvalidArgument, "[request] \"image\": is missing", "image");
  }
  if (!parsed.response_format.empty() && parsed.response_format != "b64_json") {
    throw ApiError(ErrorCode::kInvalidArgument,
                   str_cat("[request] \"response_format\": found \"",
                           parsed.response_format,
                           "\", expected b64_json"),
                   "response_format");
  }
  std::vector<ModelRequest> requests =
      repeat_request(parsed.request, parsed.num_choices, context.new_id("img-"));
  auto answer = std::make_shared<DocumentAnswer>(
      context, writer, requests.size(), [](std::vector<Outcome>& outcomes) {
        return images_document(outcomes);
      });
  answer->run(*backend, std::move(requests));
}

}  // namespace

void add_image_routes(ServerContext& context, Router& router) {
  const auto add = [&](const char* pattern, bool needs_image) {
    router.add({.method = "POST",
                .pattern = pattern,
                .handler = [&context, needs_image](const HttpRequest& request,
                                                   std::shared_ptr<ResponseWriter> writer) {
                  images(context, request, writer, needs_image);
                }});
  };
  add("/v1/images/generations", false);
  add("/v1/images/edits", true);
}

}  // namespace mstar

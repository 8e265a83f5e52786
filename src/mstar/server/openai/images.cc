// POST /v1/images/generations and /v1/images/edits.
#include <algorithm>

#include "mstar/base/str_cat.h"
#include "mstar/media/image.h"
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/encoding.h"
#include "mstar/server/openai/media_events.h"
#include "mstar/server/openai/media_request.h"
#include "mstar/server/openai/request.h"

namespace mstar {

namespace {

constexpr int64_t kMostImages = 10;

// How the pictures are handed out; models make PNG.
struct ImageFile {
  bool as_jpeg = false;
  int quality = 90;

  const char* name() const { return as_jpeg ? "jpeg" : "png"; }

  std::string file(const OutputChunk& chunk) const {
    return as_jpeg ? encode_jpeg(decode_image(chunk.data), quality) : chunk.data;
  }
};

ImageFile image_file(const MediaRequest& request) {
  ImageFile file;
  const std::string& word = request.output_format;
  file.as_jpeg = word == "jpeg" || word == "jpg";
  file.quality = static_cast<int>(std::max<int64_t>(request.output_compression, 1));
  if (!word.empty() && !file.as_jpeg && word != "png") {
    throw ApiError(
        ErrorCode::kInvalidArgument,
        str_cat("[request] \"output_format\": found \"", word, "\", expected png or jpeg"),
        "output_format");
  }
  return file;
}

bool is_image(const OutputChunk& chunk) {
  return chunk.modality == Modality::kImage && !chunk.data.empty();
}

std::string size_of(const OutputChunk& chunk) {
  const Json* width = chunk.metadata.find("width");
  const Json* height = chunk.metadata.find("height");
  return width != nullptr && height != nullptr ? str_cat(width->dump(), "x", height->dump()) : "";
}

HttpResponse images_document(const std::vector<Outcome>& outcomes, const ImageFile& file) {
  Json data = Json::array();
  std::string size;
  for (const Outcome& outcome : outcomes) {
    for (const OutputChunk& chunk : outcome.chunks) {
      if (is_image(chunk)) {
        data.push_back(Json::object({{"b64_json", encode_base64(file.file(chunk))}}));
        size = size_of(chunk);
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
  document.set("output_format", file.name());
  return json_response(document);
}

// Server-sent events: one for every step of every image, and each image when it is there.
class ImageEvents final : public MediaEvents {
 public:
  ImageEvents(ServerContext& context, std::shared_ptr<ResponseWriter> writer, const ImageFile& file)
      : MediaEvents(context, std::move(writer), "image_generation"), file_(file) {}

 protected:
  void chunk(size_t index, OutputChunk chunk) override {
    if (is_image(chunk)) {
      send("completed",
           Json::object({{"index", index},
                         {"created_at", unix_seconds()},
                         {"b64_json", encode_base64(file_.file(chunk))},
                         {"size", size_of(chunk)},
                         {"output_format", file_.name()}}));
    }
  }

 private:
  const ImageFile file_;
};

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
  const ImageFile file = image_file(parsed);
  std::vector<ModelRequest> requests =
      repeat_request(parsed.request, parsed.num_choices, context.new_id("img-"));
  std::shared_ptr<Answer> answer;
  if (parsed.stream) {
    answer = std::make_shared<ImageEvents>(context, writer, file);
  } else {
    answer = std::make_shared<DocumentAnswer>(
        context, writer, requests.size(), [file](std::vector<Outcome>& outcomes) {
          return images_document(outcomes, file);
        });
  }
  answer->run(*backend, std::move(requests), parsed.stream);
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

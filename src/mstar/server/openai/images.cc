// POST /v1/images/generations and /v1/images/edits.
#include <algorithm>
#include <optional>

#include "mstar/base/str_cat.h"
#include "mstar/media/image.h"
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/encoding.h"
#include "mstar/server/http/host.h"
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

  const char* content_type() const { return as_jpeg ? "image/jpeg" : "image/png"; }

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

constexpr std::string_view kFilePath = "/v1/images/files/";

// Puts pictures into answers: as base64, or kept here and named by URL.
class ImageCarrier {
 public:
  // `base` is "": as base64.
  ImageCarrier(ServerContext& context, const ImageFile& file, std::string base)
      : context_(context), file_(file), base_(std::move(base)) {}

  const ImageFile& file() const { return file_; }

  // Adds "b64_json" or "url" to `entry`.
  void put(const OutputChunk& chunk, Json& entry) const {
    std::string bytes = file_.file(chunk);
    if (base_.empty()) {
      entry.set("b64_json", encode_base64(bytes));
      return;
    }
    const std::string name = str_cat(context_.new_id("img-"), file_.as_jpeg ? ".jpg" : ".png");
    context_.images().add(name, {std::move(bytes), file_.content_type()});
    entry.set("url", str_cat(base_, kFilePath, name));
  }

 private:
  ServerContext& context_;
  const ImageFile file_;
  const std::string base_;
};

ImageCarrier image_carrier(ServerContext& context,
                           const HttpRequest& http,
                           const MediaRequest& request) {
  const auto refuse = [](const std::string& what) {
    throw ApiError(ErrorCode::kInvalidArgument,
                   str_cat("[request] \"response_format\": ", what),
                   "response_format");
  };
  std::string base;
  if (request.response_format == "url") {
    if (!context.images().is_on()) {
      refuse("this server keeps no pictures (--image-store-mb 0); ask for b64_json");
    }
    const std::optional<std::string> url = base_url(http);
    if (!url) {
      refuse("a URL needs a Host header that is a host and a port; ask for b64_json");
    }
    base = *url;
  } else if (!request.response_format.empty() && request.response_format != "b64_json") {
    refuse(str_cat("found \"", request.response_format, "\", expected b64_json or url"));
  }
  return {context, image_file(request), std::move(base)};
}

bool is_image(const OutputChunk& chunk) {
  return chunk.modality == Modality::kImage && !chunk.data.empty();
}

std::string size_of(const OutputChunk& chunk) {
  const Json* width = chunk.metadata.find("width");
  const Json* height = chunk.metadata.find("height");
  return width != nullptr && height != nullptr ? str_cat(width->dump(), "x", height->dump()) : "";
}

HttpResponse images_document(const std::vector<Outcome>& outcomes, const ImageCarrier& carrier) {
  Json data = Json::array();
  std::string size;
  for (const Outcome& outcome : outcomes) {
    for (const OutputChunk& chunk : outcome.chunks) {
      if (is_image(chunk)) {
        Json entry = Json::object();
        carrier.put(chunk, entry);
        data.push_back(std::move(entry));
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
  document.set("output_format", carrier.file().name());
  return json_response(document);
}

// Server-sent events: one for every step of every image, and each image when it is there.
class ImageEvents final : public MediaEvents {
 public:
  ImageEvents(ServerContext& context,
              std::shared_ptr<ResponseWriter> writer,
              const ImageCarrier& carrier)
      : MediaEvents(context, std::move(writer), "image_generation"), carrier_(carrier) {}

 protected:
  void chunk(size_t index, OutputChunk chunk) override {
    if (is_image(chunk)) {
      Json event = Json::object({{"index", index}, {"created_at", unix_seconds()}});
      carrier_.put(chunk, event);
      event.set("size", size_of(chunk));
      event.set("output_format", carrier_.file().name());
      send("completed", event);
    }
  }

 private:
  const ImageCarrier carrier_;
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
  MediaRequest parsed = parse_media_request(http, backend->description(), context.media(), fields);
  context.check_model(*backend, parsed.model);
  if (needs_image && parsed.request.media.empty()) {
    throw ApiError(ErrorCode::kInvalidArgument, "[request] \"image\": is missing", "image");
  }
  const ImageCarrier carrier = image_carrier(context, http, parsed);
  std::vector<ModelRequest> requests =
      repeat_request(parsed.request, parsed.num_choices, context.new_id("img-"));
  std::shared_ptr<Answer> answer;
  if (parsed.stream) {
    answer = std::make_shared<ImageEvents>(context, writer, carrier);
  } else {
    answer = std::make_shared<DocumentAnswer>(
        context, writer, requests.size(), [carrier](std::vector<Outcome>& outcomes) {
          return images_document(outcomes, carrier);
        });
  }
  answer->run(*backend, std::move(requests), parsed.stream);
}

void get_file(ServerContext& context, const HttpRequest& request, ResponseWriter& writer) {
  const std::string& name = request.path_values.find("name")->second;
  const auto image = context.images().find(name);
  if (image == nullptr) {
    throw ApiError(
        ErrorCode::kNotFound,
        "[images] there is no such picture, or no more: pictures are kept for a while only",
        "name",
        "image_not_found");
  }
  writer.send({.status = 200,
               .headers = {{"Content-Type", image->content_type},
                           {"Cache-Control", "private, max-age=60"},
                           {"X-Content-Type-Options", "nosniff"}},
               .body = image->bytes});
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
  router.add({.method = "GET",
              .pattern = str_cat(kFilePath, "{name}"),
              .handler = [&context](const HttpRequest& request,
                                    const std::shared_ptr<ResponseWriter>& writer) {
                get_file(context, request, *writer);
              }});
}

}  // namespace mstar

#include "mstar/models/cosmos3/serving_options.h"

#include <algorithm>
#include <charconv>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/image.h"
#include "mstar/media/video.h"
#include "mstar/models/cosmos3/gen_request.h"

namespace mstar::cosmos3 {

namespace {

constexpr int64_t kDefaultModelLen = 16384;  // tokens of a conversation

[[noreturn]] void refuse(std::string_view key, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[model_kwargs] \"", key, "\": ", what));
}

[[noreturn]] void too_large(const std::string& what, const char* flag, int64_t limit) {
  throw Error(ErrorCode::kTooLarge, str_cat(what, ", this server's --", flag, " is ", limit));
}

int64_t int_in(JsonReader& reader,
               std::string_view key,
               int64_t fallback,
               int64_t min,
               int64_t max) {
  const int64_t value = reader.get_int(key, fallback);
  if (value < min || value > max) {
    refuse(key, str_cat("found ", value, ", expected ", min, " to ", max));
  }
  return value;
}

std::vector<Modality> possible_outputs(const Cosmos3Config& config) {
  std::vector<Modality> outputs{Modality::kImage, Modality::kVideo};
  if (config.reasoner) {
    outputs.insert(outputs.begin(), Modality::kText);
  }
  if (config.can_make_sound()) {
    outputs.push_back(Modality::kAudio);
  }
  if (config.transformer.action_gen) {
    outputs.push_back(Modality::kAction);
  }
  return outputs;
}

// Of `possible` those that a deployment names.
std::vector<Modality> chosen_outputs(const Json& names, const std::vector<Modality>& possible) {
  std::vector<Modality> chosen;
  for (const Modality modality : possible) {
    for (size_t index = 0; names.is_array() && index < names.size(); ++index) {
      if (names[index].is_string() && names[index].get_string() == to_string(modality)) {
        chosen.push_back(modality);
        break;
      }
    }
  }
  if (!names.is_array() || chosen.empty() || chosen.size() != names.size()) {
    std::vector<std::string> words;
    for (const Modality modality : possible) {
      words.emplace_back(to_string(modality));
    }
    refuse("output_modalities",
           str_cat("found ", names.dump(), ", expected a list of some of ", str_join(words, ", ")));
  }
  return chosen;
}

// "192x320": height, then width, in pixels.
DitCaptures::Size parse_capture_size(const Json& word, int64_t cell) {
  int64_t height = 0;
  int64_t width = 0;
  if (word.is_string()) {
    const std::string& text = word.get_string();
    const size_t cross = std::min(text.find('x'), text.size());
    const char* end = text.data() + text.size();
    std::from_chars(text.data(), text.data() + cross, height);
    if (cross < text.size() && std::from_chars(text.data() + cross + 1, end, width).ptr != end) {
      width = 0;
    }
  }
  if (height < cell || width < cell || height > 4096 || width > 4096 || height % cell != 0 ||
      width % cell != 0) {
    refuse("capture_resolutions",
           str_cat("found ",
                   word.dump(),
                   ", expected \"HEIGHTxWIDTH\" in multiples of ",
                   cell,
                   " up to 4096"));
  }
  return {height / cell, width / cell};
}

DitCaptures parse_captures(JsonReader& reader, const Cosmos3Config& config) {
  constexpr int64_t kMostRows = 8;
  const int64_t cell = config.vae.scale_factor_spatial;
  const int64_t square = config.transformer.is_edge() ? 640 : 1024;
  Json sizes = Json::array();
  for (const std::string& size : {std::string("192x320"),
                                  std::string("480x832"),
                                  std::string("720x1280"),
                                  str_cat(square, "x", square)}) {
    sizes.push_back(size);
  }
  DitCaptures captures;
  const Json* given = reader.find("capture_resolutions");
  const Json& wanted = given != nullptr ? *given : sizes;
  if (!wanted.is_array()) {
    refuse("capture_resolutions", str_cat("found ", wanted.dump(), ", expected a list"));
  }
  for (const Json& word : wanted.get_array()) {
    captures.sizes.push_back(parse_capture_size(word, cell));
  }
  if (const Json* rows = reader.find("capture_batch_sizes")) {
    captures.batch_sizes.clear();
    for (size_t index = 0; rows->is_array() && index < rows->size(); ++index) {
      const Json& count = (*rows)[index];
      captures.batch_sizes.push_back(count.is_integer() ? static_cast<int>(count.get_int()) : 0);
    }
    if (captures.batch_sizes.empty() || std::ranges::min(captures.batch_sizes) < 1 ||
        std::ranges::max(captures.batch_sizes) > kMostRows) {
      refuse("capture_batch_sizes",
             str_cat("found ", rows->dump(), ", expected a list of 1 to ", kMostRows));
    }
  }
  return captures;
}

}  // namespace

void MediaCaps::check_picture(const MediaItem& item) const {
  if (!image_format(*item.bytes)) {
    return;
  }
  const ImageInfo info = read_image_info(*item.bytes, item.name);
  if (info.width * info.height > max_image_pixels) {
    too_large(str_cat("[", item.name, "] is ", info.width, "x", info.height, " pixels"),
              "max-image-pixels",
              max_image_pixels);
  }
}

void MediaCaps::check_film(const MediaItem& item) const {
  const auto size = static_cast<int64_t>(item.bytes->size());
  if (max_video_bytes > 0 && size > max_video_bytes) {
    too_large(
        str_cat("[", item.name, "] has ", size, " bytes"), "max-video-mb", max_video_bytes >> 20);
  }
  VideoLimits limits;  // the decoder's own come after, and say less
  limits.max_frames = int64_t{1} << 40;
  limits.max_seconds = 1e9;
  const VideoInfo info = read_video_info(*item.bytes, limits, item.name);
  if (info.num_frames > max_video_frames) {
    too_large(str_cat("[", item.name, "] has ", info.num_frames, " frames"),
              "max-video-frames",
              max_video_frames);
  }
  if (info.width * info.height > max_image_pixels) {
    too_large(str_cat("[", item.name, "] has frames of ", info.width, "x", info.height, " pixels"),
              "max-image-pixels",
              max_image_pixels);
  }
}

void MediaCaps::check_made(int64_t width, int64_t height, int64_t num_frames) const {
  if (width * height > max_image_pixels) {
    too_large(str_cat("[request] \"size\": found ", width, "x", height, " pixels"),
              "max-image-pixels",
              max_image_pixels);
  }
  if (num_frames > max_video_frames) {
    too_large(str_cat("[request] \"num_frames\": found ", num_frames),
              "max-video-frames",
              max_video_frames);
  }
}

ServingOptions ServingOptions::parse(const Json& model_kwargs, const Cosmos3Config& config) {
  constexpr int64_t kMost = int64_t{1} << 50;
  JsonReader reader(model_kwargs, "model_kwargs");
  ServingOptions out;
  out.max_concurrent_requests =
      int_in(reader, "max_concurrent_requests", out.max_concurrent_requests, 1, 1024);
  out.session_store_size = int_in(reader, "session_store_size", out.session_store_size, 0, kMost);
  out.session_store_bytes =
      int_in(reader, "session_store_bytes", out.session_store_bytes, 0, kMost);
  out.outputs = possible_outputs(config);
  if (const Json* chosen = reader.find("output_modalities")) {
    out.outputs = chosen_outputs(*chosen, out.outputs);
  }
  if (config.reasoner) {
    const int64_t longest = config.reasoner->max_position_embeddings;
    out.max_model_len =
        int_in(reader, "max_model_len", std::min(longest, kDefaultModelLen), 2, longest);
  }
  out.captures = parse_captures(reader, config);
  MediaCaps& media = out.media;
  media.max_image_pixels = int_in(reader, "max_image_pixels", media.max_image_pixels, 256, kMost);
  media.max_video_frames = int_in(reader, "max_video_frames", media.max_video_frames, 1, kMost);
  media.max_video_bytes = int_in(reader, "max_video_bytes", media.max_video_bytes, 0, kMost);
  reader.finish();
  return out;
}

}  // namespace mstar::cosmos3

#include "mstar/models/cosmos3/reasoner_config.h"

#include <cmath>
#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/cosmos3/config.h"

namespace mstar::cosmos3 {

namespace {

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[", where, "] ", what));
}

int64_t in_range(JsonReader& reader, std::string_view key, int64_t most) {
  const int64_t value = reader.get_int(key);
  if (value < 1 || value > most) {
    fail(reader.where(), str_cat("\"", key, "\": found ", value, ", expected 1 to ", most));
  }
  return value;
}

int32_t token_id(JsonReader& reader, std::string_view key) {
  const int64_t value = reader.get_int(key);
  if (value < 0 || value > (1 << 24)) {
    fail(reader.where(), str_cat("\"", key, "\": found ", value, ", expected 0 to 2^24"));
  }
  return static_cast<int32_t>(value);
}

// A preprocessor file's numbers; what the tower's sizes fix must agree with them.
void read_preprocessor(const std::string& path, const VisionConfig& vision, PixelRange& range) {
  const Json json = read_json_file(path);
  JsonReader reader(json, path);
  if (reader.get_int("patch_size", vision.patch_size) != vision.patch_size ||
      reader.get_int("merge_size", vision.spatial_merge_size) != vision.spatial_merge_size ||
      reader.get_int("temporal_patch_size", 1) != 1) {
    fail(path,
         "\"patch_size\", \"merge_size\" and \"temporal_patch_size\" differ from the tower's");
  }
  for (const char* key : {"image_mean", "image_std"}) {
    if (const Json* values = reader.find(key)) {
      for (const Json& value : values->get_array()) {
        if (value.get_double() != 0.5) {
          throw Error(ErrorCode::kUnsupported, str_cat("[", path, "] \"", key, "\" must be 0.5"));
        }
      }
    }
  }
  if (const Json* size = reader.find("size")) {
    JsonReader sizes(*size, path + ": size");
    range.min = sizes.get_int("shortest_edge", range.min);
    range.max = sizes.get_int("longest_edge", range.max);
  }
  if (range.min < 1 || range.max < range.min || range.max > (int64_t{1} << 32)) {
    fail(path, str_cat("\"size\": found ", range.min, " to ", range.max, " pixels"));
  }
}

void read_sampling(const std::string& path, FrameSampling& sampling) {
  const Json json = read_json_file(path);
  JsonReader reader(json, path);
  sampling.fps = reader.get_double("fps", sampling.fps);
  sampling.min_frames = reader.get_int("min_frames", sampling.min_frames);
  sampling.max_frames = reader.get_int("max_frames", sampling.max_frames);
  if (!(sampling.fps > 0.0) || sampling.fps > 1000.0 || sampling.min_frames < 1 ||
      sampling.max_frames < sampling.min_frames || sampling.max_frames > (1 << 16)) {
    fail(path, "\"fps\", \"min_frames\" and \"max_frames\" make no sense together");
  }
}

}  // namespace

int64_t VisionConfig::table_side() const {
  return std::llround(std::sqrt(static_cast<double>(num_patches)));
}

VisionConfig VisionConfig::parse(const Json& config, const std::string& where) {
  VisionConfig out;
  const Json& tower_json = config.at("vision_config");
  JsonReader tower(tower_json, where + ": vision_config");
  constexpr int64_t kMostWidth = 1 << 16;
  out.hidden_size = in_range(tower, "hidden_size", kMostWidth);
  out.intermediate_size = in_range(tower, "intermediate_size", kMostWidth);
  out.num_attention_heads = in_range(tower, "num_attention_heads", 256);
  out.num_hidden_layers = in_range(tower, "num_hidden_layers", 1024);
  out.num_channels = in_range(tower, "num_channels", 4);
  out.num_patches = in_range(tower, "num_patches", 1 << 20);
  out.patch_size = in_range(tower, "patch_size", 256);
  out.layer_norm_eps = static_cast<float>(tower.get_double("layer_norm_eps"));
  out.hidden_act = parse_activation(tower.get_string("hidden_act"));
  const Json& projector_json = config.at("projector_config");
  JsonReader projector(projector_json, where + ": projector_config");
  out.spatial_merge_size = in_range(projector, "spatial_merge_size", 16);
  out.merger_intermediate_size = in_range(projector, "merger_intermediate_size", kMostWidth);
  out.out_hidden_size = in_range(projector, "out_hidden_size", kMostWidth);
  if (in_range(projector, "input_hidden_size", kMostWidth) != out.hidden_size) {
    fail(projector.where(), "\"input_hidden_size\" differs from the tower's hidden_size");
  }
  if (projector.get_bool("use_postshuffle_norm", false)) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[", projector.where(), "] \"use_postshuffle_norm\" must be false"));
  }
  if (out.num_channels != 3) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[", tower.where(), "] \"num_channels\": only 3 is supported"));
  }
  if (out.hidden_size % out.num_attention_heads != 0) {
    fail(tower.where(), "hidden_size is no multiple of num_attention_heads");
  }
  if (out.table_side() * out.table_side() != out.num_patches) {
    fail(tower.where(), str_cat("\"num_patches\": found ", out.num_patches, ", expected a square"));
  }
  return out;
}

ReasonerConfig ReasonerConfig::load(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const Json json = read_json_file(path);
  JsonReader reader(json, path);
  ReasonerConfig config;
  config.vision = VisionConfig::parse(json, path);
  config.image_token_id = token_id(reader, "image_token_id");
  config.video_token_id = token_id(reader, "video_token_id");
  config.vision_start_token_id = token_id(reader, "vision_start_token_id");
  config.vision_end_token_id = token_id(reader, "vision_end_token_id");
  JsonReader text(reader.get("text_config"), path + ": text_config");
  config.eos_token_id = token_id(text, "eos_token_id");
  config.hidden_size = in_range(text, "hidden_size", 1 << 16);
  config.max_position_embeddings = in_range(text, "max_position_embeddings", 1 << 24);
  if (config.vision.out_hidden_size != config.hidden_size) {
    fail(path, "the projector's out_hidden_size differs from the text tower's hidden_size");
  }
  namespace fs = std::filesystem;
  if (const std::string image = folder + "/preprocessor_config.json"; fs::is_regular_file(image)) {
    read_preprocessor(image, config.vision, config.image);
  }
  if (const std::string video = folder + "/video_preprocessor_config.json";
      fs::is_regular_file(video)) {
    read_preprocessor(video, config.vision, config.video);
    read_sampling(video, config.sampling);
  }
  return config;
}

}  // namespace mstar::cosmos3

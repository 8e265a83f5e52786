#include "mstar/models/cosmos3/config.h"

#include <algorithm>
#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"

namespace mstar::cosmos3 {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[", where, "] ", what));
}

int64_t positive(JsonReader& reader, std::string_view key) {
  const int64_t value = reader.get_int(key);
  // Sizes beyond this make products of a few of them overflow.
  if (value < 1 || value > (int64_t{1} << 24)) {
    fail(reader.where(), str_cat("\"", key, "\": found ", value, ", expected 1 to 2^24"));
  }
  return value;
}

std::vector<int64_t> positive_list(JsonReader& reader, std::string_view key) {
  std::vector<int64_t> values;
  for (const Json& item : reader.get(key).get_array()) {
    values.push_back(item.get_int());
    if (values.back() < 1 || values.back() > (1 << 16)) {
      fail(reader.where(), str_cat("\"", key, "\": found ", values.back(), ", expected 1 to 2^16"));
    }
  }
  if (values.empty() || values.size() > 16) {
    fail(reader.where(),
         str_cat("\"", key, "\": found ", values.size(), " entries, expected 1 to 16"));
  }
  return values;
}

std::vector<float> float_list(JsonReader& reader, std::string_view key, int64_t size) {
  std::vector<float> values;
  for (const Json& item : reader.get(key).get_array()) {
    values.push_back(static_cast<float>(item.get_double()));
  }
  if (static_cast<int64_t>(values.size()) != size) {
    fail(reader.where(),
         str_cat("\"", key, "\": found ", values.size(), " numbers, expected ", size));
  }
  return values;
}

void expect_string(JsonReader& reader, std::string_view key, std::string_view wanted) {
  const std::string found = reader.get_string(key);
  if (found != wanted) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[",
                        reader.where(),
                        "] \"",
                        key,
                        "\": found \"",
                        found,
                        "\", only \"",
                        wanted,
                        "\" is supported"));
  }
}

void expect_bool(JsonReader& reader, std::string_view key, bool wanted) {
  if (reader.get_bool(key) != wanted) {
    throw Error(
        ErrorCode::kUnsupported,
        str_cat("[", reader.where(), "] \"", key, "\" must be ", wanted ? "true" : "false"));
  }
}

RopeConfig read_rope(JsonReader& reader, int64_t head_dim) {
  RopeConfig rope;
  rope.head_dim = head_dim;
  rope.theta = static_cast<float>(reader.get_double("rope_theta"));
  rope.layout = RopeConfig::Layout::kInterleaved;
  const std::vector<int64_t> axes = positive_list(reader, "rope_axes_dim");
  if (axes.size() != 3 || 2 * (axes[0] + axes[1] + axes[2]) != head_dim) {
    fail(reader.where(),
         str_cat("\"rope_axes_dim\" must be three sizes whose sum is half of head_dim ", head_dim));
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    rope.section[axis] = static_cast<int32_t>(axes[axis]);
  }
  return rope;
}

// Sizes that must fit together.
void check_sizes(const TransformerConfig& config, const std::string& where) {
  const int64_t patch = config.latent_patch_size;
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    fail(where, "num_attention_heads is no multiple of num_key_value_heads");
  }
  if (config.patch_latent_dim != config.latent_channel * patch * patch) {
    fail(where, "patch_latent_dim is not latent_channel * latent_patch_size^2");
  }
  if (config.num_hidden_layers > 1024) {
    fail(where, "\"num_hidden_layers\" is above 1024");
  }
}

}  // namespace

Json read_json_file(const std::string& path) {
  return Json::parse(read_text_file(path, kMaxConfigBytes), path);
}

TransformerConfig TransformerConfig::parse(const Json& json, const std::string& where) {
  JsonReader reader(json, where);
  expect_string(reader, "_class_name", "Cosmos3OmniTransformer");
  TransformerConfig config;
  config.hidden_size = positive(reader, "hidden_size");
  config.intermediate_size = positive(reader, "intermediate_size");
  config.num_hidden_layers = positive(reader, "num_hidden_layers");
  config.num_attention_heads = positive(reader, "num_attention_heads");
  config.num_key_value_heads = positive(reader, "num_key_value_heads");
  config.head_dim = positive(reader, "head_dim");
  config.vocab_size = positive(reader, "vocab_size");
  config.rms_norm_eps = static_cast<float>(reader.get_double("rms_norm_eps"));
  expect_bool(reader, "attention_bias", false);
  config.hidden_act = parse_activation(reader.get_string("hidden_act"));
  if (config.hidden_act != Activation::kSilu && config.hidden_act != Activation::kRelu2) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[", where, "] \"hidden_act\": only silu and relu2 are supported"));
  }
  // The squared-relu backbone is Nemotron's: no gate, and norms that round once.
  config.gated_mlp = config.hidden_act == Activation::kSilu;
  config.norm_rounding = config.gated_mlp ? RmsNormRounding::kBeforeWeight : RmsNormRounding::kOnce;
  config.qk_norm_for_text = reader.get_bool("qk_norm_for_text");
  config.use_und_k_norm_for_gen = reader.get_bool("use_und_k_norm_for_gen");
  config.rope = read_rope(reader, config.head_dim);

  config.latent_channel = positive(reader, "latent_channel");
  config.latent_patch_size = positive(reader, "latent_patch_size");
  config.patch_latent_dim = positive(reader, "patch_latent_dim");
  config.timestep_scale = static_cast<float>(reader.get_double("timestep_scale"));
  config.base_fps = reader.get_double("base_fps");
  config.enable_fps_modulation = reader.get_bool("enable_fps_modulation");
  expect_bool(reader, "unified_3d_mrope_reset_spatial_ids", true);
  config.temporal_modality_margin = reader.get_int("unified_3d_mrope_temporal_modality_margin");
  config.backbone_type = reader.get_string("backbone_type", "");

  config.sound_gen = reader.get_bool("sound_gen");
  if (config.sound_gen) {
    config.sound_dim = positive(reader, "sound_dim");
    config.sound_latent_fps = reader.get_double("sound_latent_fps");
  }
  config.action_gen = reader.get_bool("action_gen");
  if (config.action_gen) {
    config.action_dim = positive(reader, "action_dim");
    config.num_embodiment_domains = positive(reader, "num_embodiment_domains");
  }
  check_sizes(config, where);
  return config;
}

VaeConfig VaeConfig::parse(const Json& json, const std::string& where) {
  JsonReader reader(json, where);
  expect_string(reader, "_class_name", "AutoencoderKLWan");
  expect_bool(reader, "is_residual", true);
  VaeConfig config;
  config.base_dim = positive(reader, "base_dim");
  config.decoder_base_dim = positive(reader, "decoder_base_dim");
  config.z_dim = positive(reader, "z_dim");
  config.dim_mult = positive_list(reader, "dim_mult");
  config.num_res_blocks = positive(reader, "num_res_blocks");
  for (const Json& item : reader.get("temperal_downsample").get_array()) {
    config.temperal_downsample.push_back(item.get_bool());
  }
  if (config.temperal_downsample.size() + 1 != config.dim_mult.size()) {
    fail(where, "\"temperal_downsample\" must have one entry less than \"dim_mult\"");
  }
  if (reader.get("attn_scales").size() != 0) {
    throw Error(ErrorCode::kUnsupported, str_cat("[", where, "] \"attn_scales\" must be empty"));
  }
  config.in_channels = positive(reader, "in_channels");
  config.out_channels = positive(reader, "out_channels");
  config.patch_size = positive(reader, "patch_size");
  config.scale_factor_spatial = positive(reader, "scale_factor_spatial");
  config.scale_factor_temporal = positive(reader, "scale_factor_temporal");
  const int64_t patch_area = config.patch_size * config.patch_size;
  if (config.in_channels != 3 * patch_area || config.out_channels != 3 * patch_area) {
    fail(where, "in_channels and out_channels must be 3 * patch_size^2");
  }
  config.latents_mean = float_list(reader, "latents_mean", config.z_dim);
  config.latents_std = float_list(reader, "latents_std", config.z_dim);
  for (const float value : config.latents_std) {
    if (!(value > 0.0F)) {
      fail(where, "\"latents_std\" must be positive");
    }
  }
  return config;
}

int64_t VaeConfig::latent_frames(int64_t num_frames) const {
  return num_frames <= 1 ? 1 : 1 + (num_frames - 1) / scale_factor_temporal;
}

int64_t VaeConfig::pixel_frames(int64_t num_latents) const {
  return 1 + (num_latents - 1) * scale_factor_temporal;
}

SoundConfig SoundConfig::parse(const Json& json, const std::string& where) {
  JsonReader reader(json, where);
  SoundConfig config;
  config.sampling_rate = positive(reader, "sampling_rate");
  config.vocoder_input_dim = positive(reader, "vocoder_input_dim");
  config.dec_dim = positive(reader, "dec_dim");
  config.dec_c_mults = positive_list(reader, "dec_c_mults");
  config.dec_strides = positive_list(reader, "dec_strides");
  config.dec_out_channels = positive(reader, "dec_out_channels");
  if (config.dec_c_mults.size() != config.dec_strides.size()) {
    fail(where, "\"dec_c_mults\" and \"dec_strides\" must be of one length");
  }
  if (config.hop_size() > (1 << 20)) {
    fail(where, "the product of \"dec_strides\" is above 2^20");
  }
  expect_string(reader, "activation", "snakebeta");
  expect_bool(reader, "snake_logscale", true);
  expect_bool(reader, "dec_anti_aliasing", false);
  expect_bool(reader, "dec_use_tanh_at_final", false);
  expect_bool(reader, "dec_use_nearest_upsample", false);
  if (reader.has("latent_mean") || reader.has("latent_std")) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[", where, "] normalized sound latents are not supported"));
  }
  return config;
}

int64_t SoundConfig::hop_size() const {
  int64_t hop = 1;
  for (const int64_t stride : dec_strides) {
    hop = std::min<int64_t>(hop * stride, int64_t{1} << 40);
  }
  return hop;
}

SchedulerConfig SchedulerConfig::parse(const Json& json, const std::string& where) {
  JsonReader reader(json, where);
  const std::string name = reader.get_string("_class_name");
  SchedulerConfig config;
  config.num_train_timesteps = positive(reader, "num_train_timesteps");
  if (name == "FlowMatchEulerDiscreteScheduler") {
    config.kind = Kind::kStochasticEuler;
    expect_bool(reader, "stochastic_sampling", true);
    config.flow_shift = reader.get_double("shift");
    return config;
  }
  if (name != "UniPCMultistepScheduler") {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[",
                        where,
                        "] no scheduler \"",
                        name,
                        "\" (UniPCMultistepScheduler, FlowMatchEulerDiscreteScheduler)"));
  }
  expect_string(reader, "prediction_type", "flow_prediction");
  expect_string(reader, "solver_type", "bh2");
  expect_string(reader, "final_sigmas_type", "zero");
  expect_bool(reader, "predict_x0", true);
  expect_bool(reader, "use_flow_sigmas", true);
  expect_bool(reader, "lower_order_final", true);
  if (reader.get_int("solver_order") != 2) {
    throw Error(ErrorCode::kUnsupported, str_cat("[", where, "] \"solver_order\" must be 2"));
  }
  config.flow_shift = reader.get_double("flow_shift");
  config.use_karras_sigmas = reader.get_bool("use_karras_sigmas");
  if (config.use_karras_sigmas) {
    config.sigma_max = reader.get_double("sigma_max");
    config.sigma_min = reader.get_double("sigma_min");
    if (!(config.sigma_min > 0.0) || !(config.sigma_max > config.sigma_min)) {
      fail(where, "sigma_min and sigma_max must be positive and in order");
    }
  }
  return config;
}

bool Cosmos3Config::recognizes(const std::string& folder) {
  const std::string path = folder + "/transformer/config.json";
  if (!fs::is_regular_file(path)) {
    return false;
  }
  const Json json = read_json_file(path);
  const Json* name = json.find("_class_name");
  return name != nullptr && *name == Json("Cosmos3OmniTransformer");
}

Cosmos3Config Cosmos3Config::load(const std::string& folder) {
  Cosmos3Config config;
  config.folder = folder;
  const auto read = [&](const char* name, auto parse) {
    const std::string path = str_cat(folder, "/", name);
    return parse(read_json_file(path), path);
  };
  config.transformer = read("transformer/config.json", TransformerConfig::parse);
  config.vae = read("vae/config.json", VaeConfig::parse);
  config.scheduler = read("scheduler/scheduler_config.json", SchedulerConfig::parse);
  if (fs::is_directory(config.sound_folder())) {
    config.sound = read("sound_tokenizer/config.json", SoundConfig::parse);
  }
  if (const std::string path = folder + "/config.json"; fs::is_regular_file(path)) {
    const Json root = read_json_file(path);
    JsonReader reader(root, path);
    config.model_type = reader.get_string("model_type", "");
  }
  if (config.model_type == "cosmos3_edge" && fs::is_directory(config.vision_folder())) {
    config.reasoner = ReasonerConfig::load(folder);
    if (config.reasoner->hidden_size != config.transformer.hidden_size) {
      fail(folder, "config.json's text_config is of another width than the transformer");
    }
  }
  const std::string index_path = folder + "/model_index.json";
  const Json index = read_json_file(index_path);
  JsonReader reader(index, index_path);
  config.use_native_flow_schedule = reader.get_bool("use_native_flow_schedule", false);
  const std::string modular_path = folder + "/modular_model_index.json";
  if (fs::is_regular_file(modular_path)) {
    const Json modular = read_json_file(modular_path);
    JsonReader modular_reader(modular, modular_path);
    if (modular_reader.get_bool("is_distilled", false)) {
      for (const Json& sigma : modular_reader.get("distilled_sigmas").get_array()) {
        config.distilled_sigmas.push_back(sigma.get_double());
      }
    }
  }
  const bool stochastic = config.scheduler.kind == SchedulerConfig::Kind::kStochasticEuler;
  if (stochastic != config.is_distilled()) {
    fail(folder, "the stochastic scheduler and distilled_sigmas must come together");
  }
  if (config.vae.z_dim != config.transformer.latent_channel) {
    fail(folder, "the VAE's z_dim differs from the transformer's latent_channel");
  }
  if (config.can_make_sound() && config.sound->vocoder_input_dim != config.transformer.sound_dim) {
    fail(folder, "the sound tokenizer's width differs from the transformer's sound_dim");
  }
  return config;
}

std::string Cosmos3Config::tokenizer_folder() const {
  const std::string own = folder + "/text_tokenizer";
  return fs::is_directory(own) ? own : folder;
}

Json Cosmos3Config::to_json() const {
  Json json = Json::object();
  json.set("model_type", model_type);
  json.set("hidden_size", transformer.hidden_size);
  json.set("num_hidden_layers", transformer.num_hidden_layers);
  json.set("num_attention_heads", transformer.num_attention_heads);
  json.set("num_key_value_heads", transformer.num_key_value_heads);
  json.set("intermediate_size", transformer.intermediate_size);
  json.set("sound", can_make_sound());
  json.set("action", transformer.action_gen);
  json.set("reasoner", reasoner.has_value());
  json.set("distilled_steps", static_cast<int64_t>(distilled_sigmas.size()));
  json.set("native_flow_schedule", use_native_flow_schedule);
  return json;
}

}  // namespace mstar::cosmos3

#include "mstar/models/cosmos3/gen_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/cosmos3/pipeline.h"
#include "mstar/text/base64.h"

namespace mstar::cosmos3 {

namespace {

[[noreturn]] void refuse(std::string_view name, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[request] \"", name, "\": ", what));
}

int64_t int_or(const Json& parameters, std::string_view name, int64_t fallback) {
  const Json* value = parameters.find(name);
  return value == nullptr ? fallback : value->get_int();
}

double double_or(const Json& parameters, std::string_view name, double fallback) {
  const Json* value = parameters.find(name);
  return value == nullptr ? fallback : value->get_double();
}

std::string text_or(const Json& parameters, std::string_view name, std::string_view fallback) {
  const Json* value = parameters.find(name);
  return value == nullptr ? std::string(fallback) : value->get_string();
}

bool flag(const Json& parameters, std::string_view name) {
  const Json* value = parameters.find(name);
  return value != nullptr && value->get_bool();
}

// What one request may ask at most: three times 720p for eight seconds, and sound whose waveform
// fits memory at the decoder's full width.
constexpr int64_t kMaxVisionTokens = 131072;
constexpr double kMaxSoundSeconds = 60.0;

// Names that published embodiments go by.
constexpr std::array<std::pair<std::string_view, int64_t>, 17> kDomains = {{
    {"no_action", 0},
    {"av", 1},
    {"camera_pose", 2},
    {"hand_pose", 3},
    {"pusht", 4},
    {"libero", 5},
    {"umi", 6},
    {"bridge_orig_lerobot", 7},
    {"droid_lerobot", 8},
    {"robomind-franka", 8},
    {"galbot", 9},
    {"robomind-franka-dual", 12},
    {"robomind-ur", 13},
    {"agibotworld", 15},
    {"agibot_gear_gripper", 15},
    {"agibot_gear_gripper_ext", 15},
    {"fractal", 20},
}};

// "640x480".
std::pair<int64_t, int64_t> parse_size(const std::string& text) {
  const size_t cross = text.find('x');
  int64_t width = 0;
  int64_t height = 0;
  const char* end = text.data() + text.size();
  const bool parsed =
      cross != std::string::npos &&
      std::from_chars(text.data(), text.data() + cross, width).ptr == text.data() + cross &&
      std::from_chars(text.data() + cross + 1, end, height).ptr == end;
  if (!parsed || width < 16 || height < 16 || width > 4096 || height > 4096) {
    refuse("size", str_cat("found \"", text, "\", expected \"WxH\" with sides of 16 to 4096"));
  }
  return {width, height};
}

// "0,1", 0 or [0, 1]: sorted, each once.
std::vector<int64_t> parse_indexes(const Json& value) {
  std::vector<int64_t> indexes;
  if (value.is_string()) {
    const std::string& text = value.get_string();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      int64_t index = -1;
      const char* last = text.data() + comma;
      if (std::from_chars(text.data() + begin, last, index).ptr != last) {
        index = -1;
      }
      indexes.push_back(index);
      begin = comma + 1;
    }
  } else if (value.is_array()) {
    for (const Json& item : value.get_array()) {
      indexes.push_back(item.is_integer() ? item.get_int() : -1);
    }
  } else {
    indexes.push_back(value.is_integer() ? value.get_int() : -1);
  }
  std::ranges::sort(indexes);
  indexes.erase(std::unique(indexes.begin(), indexes.end()), indexes.end());
  if (indexes.empty() || indexes.front() < 0) {
    refuse("condition_frame_indexes_vision", "expected latent frames of 0 or more");
  }
  return indexes;
}

// One request being settled.
class Planner {
 public:
  Planner(const Cosmos3Config& config,
          const Json& parameters,
          Modality wants,
          const Conditioning& conditioning)
      : config_(config),
        parameters_(parameters),
        wants_(wants),
        conditioning_(conditioning),
        mode_(text_or(parameters, "action_mode", "")) {}

  void plan(GenRequest& out) {
    check_possible();
    plan_frames(out);
    plan_sizes(out);
    plan_layout(out);
    plan_conditioning(out);
    plan_noise(out);
    plan_actions(out);
    plan_sound(out);
    plan_steps(out);
    plan_guidance(out);
    out.walk = walk(out);
  }

 private:
  bool is_action() const { return !mode_.empty(); }

  bool is_edge() const { return config_.transformer.is_edge(); }

  // What this checkpoint cannot do at all.
  void check_possible() const {
    const bool wants_sound = flag(parameters_, "generate_sound");
    if (wants_sound && !config_.can_make_sound()) {
      refuse("generate_sound", "this checkpoint has no sound heads");
    }
    if ((wants_ == Modality::kAction || is_action()) && !config_.transformer.action_gen) {
      refuse("action_mode", "this checkpoint has no action heads");
    }
    if (wants_ == Modality::kAction && !is_action()) {
      refuse("action_mode", "an action output needs \"policy\" or \"inverse_dynamics\"");
    }
    if (is_action() && wants_sound) {
      refuse("generate_sound", "actions and sound do not go together");
    }
    if (config_.is_distilled() && (is_action() || wants_sound || conditioning_.is_video)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "[request] this distilled checkpoint makes images, and videos from a picture");
    }
    const bool needs_video = mode_ == "inverse_dynamics";
    if (is_action() && conditioning_.num_frames == 0) {
      refuse("action_mode", str_cat(mode_, needs_video ? " needs a video" : " needs an image"));
    }
    if (needs_video && !conditioning_.is_video) {
      refuse("action_mode", "inverse_dynamics needs a video");
    }
  }

  void plan_frames(GenRequest& out) const {
    out.fps = double_or(parameters_, "fps", 24.0);
    const int64_t chunk = int_or(parameters_, "action_chunk_size", 16);
    int64_t fallback = 1;
    if (is_action()) {
      fallback = chunk + 1;
    } else if (wants_ == Modality::kVideo) {
      fallback = usual_size(config_, wants_).num_frames;
    }
    out.num_frames = int_or(parameters_, "num_frames", frames_of_seconds(out.fps, fallback));
    if (wants_ == Modality::kImage && out.num_frames != 1) {
      refuse("num_frames", "an image has one frame; ask for a video");
    }
  }

  // The clip that VAE can make nearest to the asked length.
  int64_t frames_of_seconds(double fps, int64_t fallback) const {
    const Json* given = parameters_.find("seconds");
    if (given == nullptr) {
      return fallback;
    }
    double seconds = given->is_number() ? given->get_double() : 0.0;
    if (given->is_string()) {
      const std::string& text = given->get_string();
      const char* end = text.data() + text.size();
      const auto result = std::from_chars(text.data(), end, seconds);
      seconds = result.ec == std::errc() && result.ptr == end ? seconds : 0.0;
    }
    constexpr double kMostSeconds = 600.0;
    if (!(seconds > 0.0 && seconds <= kMostSeconds)) {
      refuse("seconds", str_cat("found ", given->dump(), ", expected up to ", kMostSeconds));
    }
    if (parameters_.contains("num_frames")) {
      refuse("seconds", "the length is given twice, as num_frames too");
    }
    const auto factor = static_cast<double>(config_.vae.scale_factor_temporal);
    return config_.vae.pixel_frames(1 + std::llround(seconds * fps / factor));
  }

  void plan_sizes(GenRequest& out) const {
    const MadeSize usual =
        usual_size(config_, out.num_frames > 1 ? Modality::kVideo : Modality::kImage);
    out.width = is_action() ? 832 : usual.width;
    out.height = is_action() ? 480 : usual.height;
    const Json* size = parameters_.find("size");
    if (size != nullptr && size->get_string() != "auto") {
      std::tie(out.width, out.height) = parse_size(size->get_string());
    }
    out.width = int_or(parameters_, "width", out.width);
    out.height = int_or(parameters_, "height", out.height);
    const int64_t cell = config_.vae.scale_factor_spatial;
    if (out.width % cell != 0 || out.height % cell != 0) {
      refuse("size",
             str_cat("found ", out.width, "x", out.height, ", expected multiples of ", cell));
    }
  }

  void plan_layout(GenRequest& out) const {
    GenLayout& layout = out.plan.layout;
    layout.frames = config_.vae.latent_frames(out.num_frames);
    layout.latent_height = out.height / config_.vae.scale_factor_spatial;
    layout.latent_width = out.width / config_.vae.scale_factor_spatial;
    layout.fps = out.fps;
    if (parameters_.contains("window_mode") && wants_ != Modality::kVideo) {
      refuse("window_mode", "makes videos; ask for one");
    }
    if (conditioning_.session != nullptr && conditioning_.num_frames > 0) {
      refuse("resume_session", "a video that goes on starts with its own frames, not with others");
    }
    plan_windows(config_, parameters_, conditioning_.session, out);
    layout.clean_frames.assign(static_cast<size_t>(layout.frames), false);
    const int64_t num_tokens = layout.num_tokens(config_.transformer.latent_patch_size);
    if (num_tokens > kMaxVisionTokens) {
      refuse("num_frames",
             str_cat(out.num_frames,
                     " frames of ",
                     out.width,
                     "x",
                     out.height,
                     " are ",
                     num_tokens,
                     " tokens, at most ",
                     kMaxVisionTokens,
                     " are made at a time"));
    }
  }

  void plan_conditioning(GenRequest& out) const {
    if (conditioning_.num_frames == 0 || (out.num_frames == 1 && !is_action())) {
      return;
    }
    GenLayout& layout = out.plan.layout;
    std::vector<int64_t> clean{0};
    out.num_condition_frames = 1;
    if (mode_ == "inverse_dynamics") {
      for (int64_t frame = 1; frame < layout.frames; ++frame) {
        clean.push_back(frame);
      }
      out.num_condition_frames = out.num_frames;
    } else if (conditioning_.is_video && !is_action()) {
      const Json* given = parameters_.find("condition_frame_indexes_vision");
      clean = given == nullptr ? std::vector<int64_t>{0, 1} : parse_indexes(*given);
      if (clean.back() >= layout.frames) {
        refuse(
            "condition_frame_indexes_vision",
            str_cat("found ", clean.back(), ", the video has ", layout.frames, " latent frames"));
      }
      out.num_condition_frames =
          std::min(clean.back() * config_.vae.scale_factor_temporal + 1, out.num_frames);
      out.keep_last = text_or(parameters_, "condition_video_keep", "first") == "last";
    }
    for (const int64_t frame : clean) {
      layout.clean_frames[static_cast<size_t>(frame)] = true;
    }
  }

  void plan_noise(GenRequest& out) const {
    const Json* given = parameters_.find("noise");
    if (given == nullptr) {
      return;
    }
    if (out.windows) {
      refuse("noise", "windows draw theirs from the seed");
    }
    const GenLayout& layout = out.plan.layout;
    const Shape shape{config_.transformer.latent_channel,
                      layout.frames,
                      layout.latent_height,
                      layout.latent_width};
    std::string bytes;
    try {
      bytes = decode_base64(given->get_string(), "noise");
    } catch (const Error&) {
      refuse("noise", "is not base64");
    }
    if (static_cast<int64_t>(bytes.size()) != shape.num_elements() * 4) {
      refuse("noise",
             str_cat("found ",
                     bytes.size(),
                     " bytes, expected f32 ",
                     to_string(shape),
                     ": ",
                     shape.num_elements() * 4));
    }
    out.noise = Tensor::empty(shape, DType::kF32);
    std::memcpy(out.noise.bytes(), bytes.data(), bytes.size());
    const float* values = out.noise.data<float>();
    constexpr float kMost = 1e4F;
    if (!std::all_of(values, values + out.noise.num_elements(), [](float value) {
          return std::abs(value) <= kMost;
        })) {
      refuse("noise", "expected finite numbers of at most 10000");
    }
  }

  int64_t domain() const {
    if (const Json* id = parameters_.find("domain_id")) {
      return id->get_int();
    }
    const std::string name = text_or(parameters_, "domain_name", "");
    const auto* found = std::ranges::find(
        kDomains, std::string_view(name), &std::pair<std::string_view, int64_t>::first);
    if (found == kDomains.end() || found->second >= config_.transformer.num_embodiment_domains) {
      refuse("domain_name",
             str_cat("found \"",
                     name,
                     "\", expected a known embodiment or a "
                     "domain_id"));
    }
    return found->second;
  }

  void plan_actions(GenRequest& out) const {
    if (!is_action()) {
      return;
    }
    GenLayout& layout = out.plan.layout;
    layout.num_actions =
        int_or(parameters_, "action_chunk_size", std::max<int64_t>(out.num_frames - 1, 1));
    if (out.num_frames != layout.num_actions && out.num_frames != layout.num_actions + 1) {
      refuse("num_frames",
             str_cat("found ", out.num_frames, ", expected ", layout.num_actions, " or one more"));
    }
    layout.action_offset = out.num_frames == layout.num_actions ? 0 : 1;
    layout.action_fps = double_or(parameters_, "action_fps", out.fps);
    layout.domain = domain();
    layout.clean_actions = mode_ == "forward_dynamics";
    int64_t raw_dim = int_or(parameters_, "raw_action_dim", 0);
    if (layout.clean_actions) {
      out.given_actions = given_actions(layout.num_actions, raw_dim);
    }
    if (raw_dim == 0) {
      refuse("raw_action_dim", "is needed for actions");
    }
    out.plan.raw_action_dim = raw_dim;
  }

  // Actions of the request, the last one repeated up to the chunk's length; none: zeros.
  Tensor given_actions(int64_t chunk, int64_t& raw_dim) const {
    const int64_t width = config_.transformer.action_dim;
    Tensor out = Tensor::zeros({chunk, width}, DType::kF32);
    const Json* given = parameters_.find("action");
    if (given == nullptr) {
      return out;
    }
    if (!given->is_array() || given->size() == 0 || given->size() > 4096) {
      refuse("action", "expected a list of actions, each a list of numbers");
    }
    for (int64_t row = 0; row < chunk; ++row) {
      const size_t from = std::min(static_cast<size_t>(row), given->size() - 1);
      const Json& one = (*given)[from];
      if (!one.is_array() || one.size() == 0 || static_cast<int64_t>(one.size()) > width) {
        refuse("action", str_cat("action ", from, ": expected 1 to ", width, " numbers"));
      }
      if (raw_dim == 0) {
        raw_dim = static_cast<int64_t>(one.size());
      }
      if (static_cast<int64_t>(one.size()) != raw_dim) {
        refuse("action",
               str_cat("action ", from, ": found ", one.size(), " numbers, expected ", raw_dim));
      }
      for (size_t i = 0; i < one.size(); ++i) {
        const double value = one[i].is_number() ? one[i].get_double() : std::nan("");
        if (!std::isfinite(value) || std::abs(value) > 1e6) {
          refuse("action", str_cat("action ", from, ": expected finite numbers"));
        }
        out.data<float>()[row * width + static_cast<int64_t>(i)] = static_cast<float>(value);
      }
    }
    return out;
  }

  void plan_sound(GenRequest& out) const {
    if (!flag(parameters_, "generate_sound")) {
      return;
    }
    if (out.num_frames == 1) {
      refuse("generate_sound", "only videos have sound");
    }
    std::optional<double> seconds;
    if (const Json* given = parameters_.find("sound_duration")) {
      seconds = given->get_double();
    }
    out.sound = sound_length(
        out.num_frames, out.fps, seconds, config_.sound->sampling_rate, config_.sound->hop_size());
    if (static_cast<double>(out.sound.num_samples) >
        kMaxSoundSeconds * static_cast<double>(config_.sound->sampling_rate)) {
      refuse("sound_duration", str_cat("sound of more than ", kMaxSoundSeconds, " seconds"));
    }
    out.plan.layout.num_sound = out.sound.num_latents;
  }

  void plan_steps(GenRequest& out) const {
    int64_t steps = out.num_frames > 1 ? (is_edge() ? 20 : 35) : 50;
    double shift = config_.scheduler.flow_shift;
    if (is_action()) {
      steps = 30;
      shift = is_edge() ? 10.0 : 5.0;
    } else if (conditioning_.is_video || out.windows) {
      shift = 10.0;
    } else if (out.num_frames == 1 && conditioning_.num_frames == 0) {
      shift = 3.0;
    } else if (is_edge() && out.num_frames > 1) {
      shift = 12.0;
    }
    steps = int_or(parameters_, "num_inference_steps", steps);
    shift = double_or(parameters_, "flow_shift", shift);
    bool karras = config_.scheduler.use_karras_sigmas && !config_.use_native_flow_schedule;
    if (const Json* given = parameters_.find("use_karras_sigmas")) {
      karras = given->get_bool();
    }
    out.plan.schedule = make_schedule(config_, steps, shift, karras);
    out.plan.distilled = config_.is_distilled();
  }

  void plan_guidance(GenRequest& out) const {
    Guidance& guidance = out.plan.guidance;
    guidance.scale =
        static_cast<float>(double_or(parameters_, "guidance_scale", is_action() ? 1.0 : 6.0));
    if (config_.is_distilled()) {
      guidance.scale = 1.0F;
    }
    const bool plain_image = out.num_frames == 1 && conditioning_.num_frames == 0 && !is_action();
    if (plain_image) {
      guidance.interval = {400.0, 1000.0};
    }
    if (const Json* given = parameters_.find("guidance_interval")) {
      if (given->size() != 2 || (*given)[0].get_double() > (*given)[1].get_double()) {
        refuse("guidance_interval", "expected two time steps, the smaller one first");
      }
      guidance.interval = {(*given)[0].get_double(), (*given)[1].get_double()};
    }
  }

  std::string walk(const GenRequest& out) const {
    if (mode_ == "forward_dynamics") {
      return "action_video_gen";
    }
    if (is_action()) {
      return "action_gen";
    }
    if (out.windows) {
      return std::string(kWindowWalk);
    }
    if (out.plan.layout.num_sound > 0) {
      return "video_sound_gen";
    }
    return wants_ == Modality::kVideo || out.num_frames > 1 ? "video_gen" : "image_gen";
  }

  const Cosmos3Config& config_;
  const Json& parameters_;
  Modality wants_;
  Conditioning conditioning_;
  std::string mode_;
};

}  // namespace

const GenRequest& gen_request(const CurrentForwardPassInfo& info) {
  return *info.values.at<GenRequestPtr>(kGenRequest);
}

ConditioningResize conditioning_resize(const Cosmos3Config& config) {
  return config.transformer.is_edge() ? ConditioningResize::kAspectCrop
                                      : ConditioningResize::kStretch;
}

MadeSize usual_size(const Cosmos3Config& config, Modality made) {
  if (config.transformer.is_edge()) {
    return made == Modality::kVideo ? MadeSize{832, 480, 121} : MadeSize{640, 640, 1};
  }
  return {1024, 1024, made == Modality::kVideo ? 17 : 1};
}

GenRequestPtr plan_request(const Cosmos3Config& config,
                           const PromptEncoder& prompts,
                           const std::string& prompt,
                           const Json& parameters,
                           Modality wants,
                           const Conditioning& conditioning,
                           uint64_t seed) {
  auto out = std::make_shared<GenRequest>();
  out->seed = seed;
  Planner(config, parameters, wants, conditioning).plan(*out);
  const bool is_action = out->plan.layout.num_actions > 0;
  PromptOptions& options = out->prompt_options;
  options.use_system_prompt = !is_action && flag(parameters, "use_system_prompt");
  options.use_resolution_template = !is_action && flag(parameters, "use_resolution_template");
  options.use_duration_template = !is_action && flag(parameters, "use_duration_template");
  options.num_frames = out->num_frames;
  options.fps = out->fps;
  options.height = out->height;
  options.width = out->width;
  options.max_sequence_length = int_or(parameters, "max_sequence_length", 4096);
  out->cond_ids = prompts.encode(prompt, options, false);
  if (out->has_guidance()) {
    out->uncond_ids = prompts.encode(text_or(parameters, "negative_prompt", ""), options, true);
  }
  return out;
}

}  // namespace mstar::cosmos3

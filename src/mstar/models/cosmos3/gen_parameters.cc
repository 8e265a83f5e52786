#include "mstar/models/cosmos3/gen_request.h"

namespace mstar::cosmos3 {

namespace {

using Type = RequestParameter::Type;

void add_sizes(std::vector<RequestParameter>& out) {
  out.push_back({.name = "size",
                 .type = Type::kString,
                 .unit = "pixels",
                 .help = "width and height as \"WxH\", multiples of 16",
                 .max_length = 16});
  for (const char* side : {"width", "height"}) {
    out.push_back({.name = side,
                   .type = Type::kInt,
                   .min = 16,
                   .max = 4096,
                   .unit = "pixels",
                   .help = "one side, a multiple of 16; overrides size"});
  }
  out.push_back({.name = "num_frames",
                 .type = Type::kInt,
                 .min = 1,
                 .max = 1 << 20,
                 .unit = "frames",
                 .help = "1 makes an image; videos come out at the next 4k + 1 below"});
  out.push_back({.name = "seconds",
                 .type = Type::kAny,
                 .unit = "seconds",
                 .help = "length of the video instead of num_frames: a number, also as text"});
  out.push_back({.name = "fps",
                 .type = Type::kFloat,
                 .fallback = 24.0,
                 .min = 1.0,
                 .max = 240.0,
                 .unit = "frames per second",
                 .help = "rate of the video"});
}

void add_sampling(std::vector<RequestParameter>& out) {
  out.push_back({.name = "num_inference_steps",
                 .type = Type::kInt,
                 .min = 1,
                 .max = 100,
                 .unit = "steps",
                 .help = "denoising steps"});
  out.push_back(
      {.name = "guidance_scale",
       .type = Type::kFloat,
       .min = 1.0,
       .max = 100.0,
       .help = "how much the prompt outweighs the negative prompt; 1 turns guidance off"});
  out.push_back({.name = "guidance_interval",
                 .type = Type::kFloatList,
                 .min = 0.0,
                 .max = 1000.0,
                 .help = "first and last time step with guidance",
                 .max_length = 2});
  out.push_back({.name = "flow_shift",
                 .type = Type::kFloat,
                 .min = 0.01,
                 .max = 100.0,
                 .help = "moves steps toward more noise; no effect on karras schedules"});
  out.push_back({.name = "use_karras_sigmas",
                 .type = Type::kBool,
                 .help = "the karras schedule instead of an even one"});
  out.push_back({.name = "seed", .type = Type::kInt, .min = 0.0, .help = "same seed, same result"});
  constexpr int kMaxNoiseBytes = 1 << 30;  // a request's body is bounded before
  out.push_back({.name = "noise",
                 .type = Type::kString,
                 .help = "what the latents start from instead of the seed's noise: base64 of f32 "
                         "[channels, latent frames, height / 16, width / 16]",
                 .max_length = kMaxNoiseBytes});
}

void add_prompts(std::vector<RequestParameter>& out) {
  out.push_back({.name = "negative_prompt",
                 .type = Type::kString,
                 .fallback = "",
                 .help = "what to steer away from",
                 .max_length = 65536});
  out.push_back({.name = "max_sequence_length",
                 .type = Type::kInt,
                 .fallback = 4096,
                 .min = 1,
                 .max = kMaxPromptTokens,
                 .unit = "tokens",
                 .help = "prompt tokens that are kept"});
  for (const char* name :
       {"use_system_prompt", "use_resolution_template", "use_duration_template"}) {
    out.push_back({.name = name,
                   .type = Type::kBool,
                   .fallback = false,
                   .help = "adds the sentence the model was trained with"});
  }
}

void add_conditioning(std::vector<RequestParameter>& out) {
  out.push_back({.name = "condition_frame_indexes_vision",
                 .type = Type::kAny,
                 .help = "latent frames taken from the given video: a number, \"0,1\" or a list"});
  out.push_back({.name = "condition_video_keep",
                 .type = Type::kString,
                 .fallback = "first",
                 .choices = {"first", "last"},
                 .help = "which end of the given video is used"});
}

void add_actions(const Cosmos3Config& config, std::vector<RequestParameter>& out) {
  // Without action heads requests still get an answer that says so.
  const TransformerConfig& heads = config.transformer;
  const int64_t num_domains = heads.action_gen ? heads.num_embodiment_domains : 32;
  const int64_t width = heads.action_gen ? heads.action_dim : 64;
  out.push_back({.name = "action_mode",
                 .type = Type::kString,
                 .choices = {"forward_dynamics", "inverse_dynamics", "policy"},
                 .help = "what is predicted from what"});
  out.push_back({.name = "action_chunk_size",
                 .type = Type::kInt,
                 .min = 1,
                 .max = 1024,
                 .unit = "actions",
                 .help = "actions in the clip; num_frames - 1, or 16"});
  out.push_back({.name = "domain_id",
                 .type = Type::kInt,
                 .min = 0,
                 .max = static_cast<double>(num_domains - 1),
                 .help = "embodiment the actions belong to; outweighs domain_name"});
  out.push_back({.name = "domain_name",
                 .type = Type::kString,
                 .help = "name of the embodiment",
                 .max_length = 64});
  out.push_back({.name = "raw_action_dim",
                 .type = Type::kInt,
                 .min = 1,
                 .max = static_cast<double>(width),
                 .help = "numbers in one action"});
  out.push_back({.name = "action_fps",
                 .type = Type::kFloat,
                 .min = 1.0,
                 .max = 1000.0,
                 .unit = "actions per second",
                 .help = "rate of the actions; fps unless given"});
  out.push_back({.name = "action",
                 .type = Type::kAny,
                 .help = "forward dynamics: actions as a list of lists of numbers"});
}

}  // namespace

std::vector<RequestParameter> generation_parameters(const Cosmos3Config& config) {
  std::vector<RequestParameter> out;
  add_sizes(out);
  add_sampling(out);
  add_prompts(out);
  add_conditioning(out);
  add_actions(config, out);
  add_window_parameters(out);
  out.push_back({.name = "generate_sound",
                 .type = Type::kBool,
                 .fallback = false,
                 .help = "a sound track for the video",
                 .aliases = {"sound_gen"}});
  out.push_back({.name = "video_format",
                 .type = Type::kString,
                 .choices = {"mp4", "rgb24"},
                 .help = "mp4, or rgb24: bare frames without loss; mp4 unless given, rgb24 with "
                         "stream_video"});
  out.push_back({.name = "sound_duration",
                 .type = Type::kFloat,
                 .min = 0.0,
                 .max = 600.0,
                 .unit = "seconds",
                 .help = "length of the sound; as long as the video unless given"});
  return out;
}

}  // namespace mstar::cosmos3

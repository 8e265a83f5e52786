// Cosmos3: prompts, conditioning pictures, whole generations with recorded noise.
#include <algorithm>
#include <cstdlib>

#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/models/cosmos3/conditioning.h"
#include "mstar/models/cosmos3/pipeline.h"
#include "mstar/models/cosmos3/vae_ops.h"

namespace mstar::golden {

namespace {

using namespace cosmos3;  // NOLINT: the family under test

Tensor ids_tensor(const std::vector<int32_t>& ids) {
  return Tensor::from(ids, {static_cast<int64_t>(ids.size())}).to(DType::kI64);
}

std::string config_text(const Json& config, std::string_view key) {
  const Json* value = config.find(key);
  return value == nullptr || value->is_null() ? "" : value->get_string();
}

bool flag(const Json* json, std::string_view key) {
  const Json* value = json == nullptr ? nullptr : json->find(key);
  return value != nullptr && value->get_bool();
}

void run_prompt_ids(const GoldenCase& golden, RunContext&, CaseResult& result) {
  for (const char* checkpoint : {"nano", "edge"}) {
    const PromptEncoder prompts =
        PromptEncoder::load(str_cat(golden.folder, "/checkpoints/", checkpoint, "/text_tokenizer"));
    for (const auto& [key, one] : golden.config.get_object()) {
      if (!one.is_object() || config_text(one, "checkpoint") != checkpoint) {
        continue;
      }
      PromptOptions options;
      options.use_system_prompt = flag(&one, "use_system_prompt");
      options.use_resolution_template = flag(&one, "use_resolution_template");
      options.use_duration_template = flag(&one, "use_duration_template");
      options.num_frames = one.at("num_frames").get_int();
      options.fps = one.at("fps").get_double();
      options.height = one.at("height").get_int();
      options.width = one.at("width").get_int();
      const std::string& prompt = one.at("prompt").get_string();
      result.expect(str_cat("out.", key, ".cond"),
                    ids_tensor(prompts.encode(prompt, options, false)));
      result.expect(str_cat("out.", key, ".uncond"), ids_tensor(prompts.encode("", options, true)));
    }
  }
}

// Pictures [3, h, w] u8, as recorded, to [1, h, w, 3].
Tensor picture_last(const Tensor& picture) {
  const int order[] = {1, 2, 0};
  return picture.permute(order).copy().unsqueeze(0);
}

Tensor to_first(const Tensor& last) {
  const int order[] = {3, 0, 1, 2};
  return last.permute(order).copy().unsqueeze(0);
}

void run_conditioning(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  for (const auto& [name, role] : golden.roles) {
    if (role != "output") {
      continue;
    }
    // out.50x70.crop_16x24
    const size_t dot = name.find('.', 4);
    const std::string source = str_cat("in.", name.substr(4, dot - 4));
    const std::string what = name.substr(dot + 1);
    const std::string size = what.substr(what.find('_') + 1);
    const int64_t height = std::stoll(size);
    const int64_t width = std::stoll(size.substr(size.find('x') + 1));
    const Tensor pixels = condition_pixels(
        context.stream,
        picture_last(golden.tensor(source)),
        height,
        width,
        what.starts_with("crop") ? ConditioningResize::kAspectCrop : ConditioningResize::kStretch);
    const int order[] = {0, 3, 1, 2};
    result.expect(name, pixels.permute(order).copy());
  }
}

Tensor without_batch(const Tensor& x) {
  return x.copy().select(0, 0).copy();
}

// The pixels a case conditions on, [frames, h, w, 3] in [-1, 1]; undefined without any.
Tensor conditioning_of(const GoldenCase& golden,
                       RunContext& context,
                       int64_t height,
                       int64_t width) {
  Tensor frames;
  if (golden.has("in.image")) {
    frames = picture_last(golden.tensor("in.image"));
  } else if (golden.has("in.video")) {
    const int order[] = {0, 2, 3, 1};
    frames = golden.tensor("in.video").permute(order).copy();
  } else {
    return {};
  }
  const bool crop = config_text(golden.config, "conditioning_resize") == "aspect_crop";
  return condition_pixels(context.stream,
                          frames,
                          height,
                          width,
                          crop ? ConditioningResize::kAspectCrop : ConditioningResize::kStretch);
}

// Which latent frames are clean, and how many pixel frames make them.
void mark_clean(const GoldenCase& golden,
                const Cosmos3Config& config,
                GenLayout& layout,
                Tensor& pixels) {
  layout.clean_frames.assign(static_cast<size_t>(layout.frames), false);
  if (!pixels.defined()) {
    return;
  }
  std::vector<int64_t> clean{0};
  if (golden.config.contains("condition_frame_indexes_vision")) {
    clean = golden.get_ints("condition_frame_indexes_vision");
    const int64_t kept = *std::ranges::max_element(clean) * config.vae.scale_factor_temporal + 1;
    pixels = pixels.slice(0, 0, std::min(kept, pixels.dim(0)));
  } else if (config_text(golden.config, "action_mode") == "inverse_dynamics") {
    for (int64_t frame = 1; frame < layout.frames; ++frame) {
      clean.push_back(frame);
    }
  }
  for (const int64_t frame : clean) {
    layout.clean_frames[static_cast<size_t>(frame)] = true;
  }
}

// Encoded frames in their places of a whole latent clip.
Tensor anchor_of(const Pipeline& pipeline,
                 RunContext& context,
                 const GenLayout& layout,
                 const Tensor& pixels) {
  if (!pixels.defined()) {
    return {};
  }
  const Tensor encoded = pipeline.encoder().encode(context.stream, pixels);
  Tensor anchor = Tensor::zeros(
      {encoded.dim(0), layout.frames, layout.latent_height, layout.latent_width}, DType::kF32);
  const int64_t plane = layout.latent_height * layout.latent_width;
  for (int64_t channel = 0; channel < encoded.dim(0); ++channel) {
    std::copy_n(encoded.data<float>() + channel * encoded.dim(1) * plane,
                encoded.dim(1) * plane,
                anchor.data<float>() + channel * layout.frames * plane);
  }
  return anchor;
}

// Given actions, the last one repeated up to the chunk's length.
Tensor given_actions(const Tensor& actions, int64_t chunk, int64_t width) {
  Tensor out = Tensor::zeros({chunk, width}, DType::kF32);
  for (int64_t row = 0; row < chunk; ++row) {
    const int64_t from = std::min(row, actions.dim(0) - 1);
    std::copy_n(actions.data<float>() + from * actions.dim(1),
                actions.dim(1),
                out.data<float>() + row * width);
  }
  return out;
}

void plan_actions(const GoldenCase& golden,
                  const Cosmos3Config& config,
                  Pipeline::Request& request) {
  const std::string mode = config_text(golden.config, "action_mode");
  if (mode.empty()) {
    return;
  }
  GenLayout& layout = request.plan.layout;
  layout.num_actions = golden.get_int("chunk");
  layout.action_offset = layout.num_actions == golden.get_int("num_frames") ? 0 : 1;
  layout.action_fps = layout.fps;
  layout.domain = golden.get_int("domain_id");
  request.plan.raw_action_dim = golden.get_int("raw_action_dim");
  layout.clean_actions = mode == "forward_dynamics";
  request.start.actions = layout.clean_actions ? given_actions(golden.tensor("in.action"),
                                                               layout.num_actions,
                                                               config.transformer.action_dim)
                                               : golden.tensor("in.action_noise").copy();
}

void expect_pixels(const GoldenCase& golden,
                   const Pipeline& pipeline,
                   RunContext& context,
                   const Tensor& latents,
                   CaseResult& result) {
  if (!golden.has("out.pixels_unclamped")) {
    return;
  }
  VaeCache cache;
  const Tensor pixels = pipeline.decoder().decode(context.stream, latents, cache);
  result.expect("out.pixels_unclamped", to_first(pixels));
  if (golden.has("out.uint8")) {
    Tensor bytes = Tensor::empty(pixels.shape(), DType::kU8);
    to_bytes(context.stream, pixels, bytes);
    result.expect("out.uint8", to_first(bytes));
  }
}

void plan_video(const GoldenCase& golden,
                RunContext& context,
                const Pipeline& pipeline,
                Pipeline::Request& request) {
  const Cosmos3Config& config = pipeline.config();
  GenLayout& layout = request.plan.layout;
  const int64_t height = golden.get_int("height");
  const int64_t width = golden.get_int("width");
  layout.fps = golden.get_double("fps");
  layout.frames = config.vae.latent_frames(golden.get_int("num_frames"));
  layout.latent_height = height / config.vae.scale_factor_spatial;
  layout.latent_width = width / config.vae.scale_factor_spatial;
  Tensor pixels = conditioning_of(golden, context, height, width);
  mark_clean(golden, config, layout, pixels);
  request.start.vision = without_batch(golden.tensor("in.noise"));
  request.anchor = anchor_of(pipeline, context, layout, pixels);
}

void run_end_to_end(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Pipeline pipeline(str_cat(golden.folder, "/", golden.get_string("checkpoint")),
                          context.pool);
  const Cosmos3Config& config = pipeline.config();
  Pipeline::Request request;
  plan_video(golden, context, pipeline, request);
  plan_actions(golden, config, request);
  GenLayout& layout = request.plan.layout;
  if (golden.has("in.sound_noise")) {
    request.start.sound = golden.tensor("in.sound_noise").copy();
    layout.num_sound = request.start.sound.dim(1);
  }
  PromptOptions options;
  const Json* templates = golden.config.find("templates");
  options.use_system_prompt = flag(templates, "use_system_prompt");
  options.use_resolution_template = flag(templates, "add_resolution_template");
  options.use_duration_template = flag(templates, "add_duration_template");
  options.num_frames = golden.get_int("num_frames");
  options.fps = layout.fps;
  options.height = golden.get_int("height");
  options.width = golden.get_int("width");
  const bool captioned = golden.config.contains("caption");
  request.cond_ids =
      pipeline.prompt().encode(golden.get_string(captioned ? "caption" : "prompt"), options, false);
  request.uncond_ids =
      pipeline.prompt().encode(golden.get_string("negative_prompt"), options, true);
  result.expect("out.cond_ids", ids_tensor(request.cond_ids));
  result.expect("out.uncond_ids", ids_tensor(request.uncond_ids));

  const double shift = golden.get_double("flow_shift", config.scheduler.flow_shift);
  request.plan.schedule =
      make_schedule(config, golden.get_int("steps"), shift, config.scheduler.use_karras_sigmas);
  request.plan.guidance.scale = static_cast<float>(golden.get_double("guidance_scale"));
  const GenState final_state = pipeline.run(context.stream, request);
  result.expect("out.latents", final_state.vision.unsqueeze(0));
  if (golden.has("out.action")) {
    result.expect("out.action", final_state.actions);
  }
  expect_pixels(golden, pipeline, context, final_state.vision, result);
  if (golden.has("out.waveform")) {
    Tensor wave = pipeline.sound()->decode(context.stream, final_state.sound);
    std::transform(wave.data<float>(),
                   wave.data<float>() + wave.num_elements(),
                   wave.data<float>(),
                   [](float value) { return std::clamp(value, -1.0F, 1.0F); });
    result.expect("out.waveform", wave);
  }
}

void run_distilled(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Pipeline pipeline(str_cat(golden.folder, "/", golden.get_string("weights")), context.pool);
  Pipeline::Request request;
  plan_video(golden, context, pipeline, request);
  request.cond_ids = pipeline.prompt().encode(golden.get_string("prompt"), {}, false);
  result.expect("out.cond_ids", ids_tensor(request.cond_ids));
  request.plan.schedule = make_schedule(pipeline.config(), 4, 1.0, false);
  request.plan.distilled = true;
  const Tensor noise = golden.tensor("in.step_noise").copy();
  for (int64_t step = 0; step < request.plan.schedule.num_steps(); ++step) {
    request.step_noise.push_back({without_batch(noise.select(0, step)), {}, {}});
  }
  const GenState final_state = pipeline.run(context.stream, request);
  result.expect("out.latents", final_state.vision.unsqueeze(0));
  expect_pixels(golden, pipeline, context, final_state.vision, result);
}

}  // namespace

void add_cosmos3_pipeline_kinds(Registry& registry) {
  registry.add_prefix("prompt-ids", run_prompt_ids);
  registry.add_prefix("conditioning-resize", run_conditioning);
  registry.add_prefix("e2e-", run_end_to_end);
  registry.add_prefix("e2e-distilled-", run_distilled);
}

}  // namespace mstar::golden

// What a client's request means for this checkpoint: parameters checked and resolved, prompt
// tokenized, layout, schedule and guidance settled. Made once outside the step loop, then shared
// read-only by all nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/models/cosmos3/conditioning.h"
#include "mstar/models/cosmos3/config.h"
#include "mstar/models/cosmos3/denoise.h"
#include "mstar/models/cosmos3/memory_estimate.h"
#include "mstar/models/cosmos3/prompt.h"
#include "mstar/models/cosmos3/window_plan.h"

namespace mstar::cosmos3 {

// Where a generation walk finds a request's facts among CurrentForwardPassInfo::values.
inline constexpr std::string_view kGenRequest = "cosmos3_request";

// Prompt tokens that are kept at most, before the two that end the text.
inline constexpr int64_t kMaxPromptTokens = 4096;

struct GenRequest {
  std::string walk;  // the generation walk: image_gen, video_gen, …
  std::vector<int32_t> cond_ids;
  std::vector<int32_t> uncond_ids;  // empty without guidance
  PromptOptions prompt_options;     // how both were made
  GenPlan plan;
  uint64_t seed = 0;
  int64_t height = 0;  // pixels
  int64_t width = 0;
  int64_t num_frames = 1;  // pixel frames, as asked
  double fps = 0.0;
  Tensor noise;          // [latent channels, frames, height, width] f32; undefined: by the seed
  Tensor given_actions;  // [num_actions, action_dim] f32, forward dynamics only
  SoundLength sound;

  // Conditioning: which frames of the client's clip are encoded.
  int64_t num_condition_frames = 0;  // pixel frames; 0: no conditioning
  bool keep_last = false;            // from the clip's end instead of its start

  std::optional<WindowPlan> windows;  // nothing: the whole clip at once; else `plan` is window 0's

  bool has_guidance() const { return plan.guidance.enabled(); }

  // Passes of the transformer after the prompt's.
  int64_t num_iterations() const {
    const int64_t num_steps = plan.schedule.num_steps();
    return windows ? windows->num_iterations(num_steps) : num_steps;
  }
};

using GenRequestPtr = std::shared_ptr<const GenRequest>;

// The request of a step's info. Throws Error(kInternal) when the conductor lost it.
const GenRequest& gen_request(const CurrentForwardPassInfo& info);

// All parameters this checkpoint understands, with its defaults.
std::vector<RequestParameter> generation_parameters(const Cosmos3Config& config);

// What the client sent besides text.
struct Conditioning {
  int64_t num_frames = 0;  // 1: an image; more: a clip
  bool is_video = false;
  WindowSessionPtr session;  // the video that this one goes on with; null: none
};

// Settles everything. `parameters` are resolved; `wants` the asked output. Throws
// Error(kInvalidArgument) naming the parameter for what this checkpoint cannot do.
GenRequestPtr plan_request(const Cosmos3Config& config,
                           const PromptEncoder& prompts,
                           const std::string& prompt,
                           const Json& parameters,
                           Modality wants,
                           const Conditioning& conditioning,
                           uint64_t seed);

// What a request makes that says nothing about sizes.
MadeSize usual_size(const Cosmos3Config& config, Modality made);

// How this checkpoint fits conditioning pictures.
ConditioningResize conditioning_resize(const Cosmos3Config& config);

}  // namespace mstar::cosmos3

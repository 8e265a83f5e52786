// What a checkpoint with a reasoner has beside the generator: the vision tower's sizes, how
// pictures and clips are prepared for it, and the tokens that stand for them. Read from the
// checkpoint's own files (config.json, preprocessor_config.json, video_preprocessor_config.json).
// Plain data.
#pragma once

#include <cstdint>
#include <string>

#include "mstar/base/json.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar::cosmos3 {

// vision_config and projector_config: a SigLIP2 tower without a class token, then a projector that
// makes one text-space row of every block of merge_size x merge_size patches.
struct VisionConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_attention_heads = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_channels = 0;
  int64_t num_patches = 0;  // rows of the learned position table: a square grid
  int64_t patch_size = 0;   // pixels
  float layer_norm_eps = 0.0F;
  Activation hidden_act = Activation::kGeluTanh;
  int64_t spatial_merge_size = 0;
  int64_t merger_intermediate_size = 0;
  int64_t out_hidden_size = 0;

  int64_t patch_dim() const { return num_channels * patch_size * patch_size; }

  // Sides of prepared pictures are multiples of this, in pixels.
  int64_t factor() const { return patch_size * spatial_merge_size; }

  int64_t table_side() const;  // of the position table

  static VisionConfig parse(const Json& config, const std::string& where);
};

// Pixels a prepared picture, or all frames of a clip together, may have.
struct PixelRange {
  int64_t min = 0;
  int64_t max = 0;
};

// How frames are picked from a clip.
struct FrameSampling {
  double fps = 2.0;
  int64_t min_frames = 4;
  int64_t max_frames = 768;
};

struct ReasonerConfig {
  VisionConfig vision;
  PixelRange image{.min = 65536, .max = 16777216};
  PixelRange video{.min = 4096, .max = 25165824};
  FrameSampling sampling;
  int32_t image_token_id = 0;
  int32_t video_token_id = 0;
  int32_t vision_start_token_id = 0;
  int32_t vision_end_token_id = 0;
  int32_t eos_token_id = 0;
  int64_t hidden_size = 0;  // of the text tower
  int64_t max_position_embeddings = 0;

  // Reads `folder`. Throws Error(kInvalidArgument) naming file and field.
  static ReasonerConfig load(const std::string& folder);
};

}  // namespace mstar::cosmos3

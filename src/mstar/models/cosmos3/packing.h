// Where the tokens of one request stand: the generation sequence [vision | sound | action], its
// positions, and the arithmetic of clip lengths. Plain data and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mstar/models/cosmos3/config.h"
#include "mstar/tensor/tensor.h"

namespace mstar::cosmos3 {

// The generation tokens of one request. The same for both guidance branches but for positions.
struct GenLayout {
  int64_t frames = 0;         // latent frames
  int64_t latent_height = 0;  // of one frame, in latent pixels
  int64_t latent_width = 0;
  std::vector<bool> clean_frames;  // [frames]: conditioning, without noise and velocity
  double fps = 0.0;                // of the video; moves its positions in time
  int64_t start_frame_offset = 0;  // latent frames before this window

  int64_t num_sound = 0;    // sound tokens, all noisy
  int64_t num_actions = 0;  // action tokens
  bool clean_actions = false;
  int64_t action_offset = 0;  // 1: the first action leads to the second frame
  double action_fps = 0.0;
  int64_t domain = 0;  // embodiment domain of the actions

  int64_t grid_height(int64_t patch) const { return (latent_height + patch - 1) / patch; }

  int64_t grid_width(int64_t patch) const { return (latent_width + patch - 1) / patch; }

  int64_t tokens_per_frame(int64_t patch) const { return grid_height(patch) * grid_width(patch); }

  int64_t num_vision(int64_t patch) const { return frames * tokens_per_frame(patch); }

  int64_t num_tokens(int64_t patch) const { return num_vision(patch) + num_sound + num_actions; }

  bool all_frames_noisy() const;
};

// Positions of text, [3, count] f32: 0, 1, … on all three axes.
Tensor text_positions(int64_t count);

// Positions of a grid of media tokens, [3, frames * rows * columns] f32, frame by frame, row by
// row.
struct MediaGrid {
  int64_t frames = 1;
  int64_t rows = 1;
  int64_t columns = 1;
  double offset = 0.0;  // of the first frame in time
  std::optional<double> fps;
  double factor = 1.0;       // frames of the source behind one token
  double base_factor = 1.0;  // the same at the base rate
  double base_fps = 0.0;
  int64_t start_frame_offset = 0;
};

Tensor media_positions(const MediaGrid& grid);

// Positions of the whole generation sequence behind `num_text` text tokens, [3, num_tokens] f32.
Tensor gen_positions(const TransformerConfig& config,
                     int64_t temporal_factor,
                     const GenLayout& layout,
                     int64_t num_text);

// [num_tokens] u8: which rows get the time embedding and have a velocity.
Tensor noisy_rows(const GenLayout& layout, int64_t patch);

// A sound track: its samples, and the latent frames that hold them.
struct SoundLength {
  int64_t num_samples = 0;
  int64_t num_latents = 0;
};

// `seconds` nothing: as long as the video.
SoundLength sound_length(int64_t num_frames,
                         double fps,
                         std::optional<double> seconds,
                         int64_t sampling_rate,
                         int64_t hop_size);

}  // namespace mstar::cosmos3

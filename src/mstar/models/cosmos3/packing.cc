#include "mstar/models/cosmos3/packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mstar/base/check.h"

namespace mstar::cosmos3 {

namespace {

constexpr double kActionFactor = 1.0;  // one action a frame of its own clip

// The columns of several [3, n] tensors one after the other.
Tensor join_columns(const std::vector<Tensor>& parts) {
  int64_t total = 0;
  for (const Tensor& part : parts) {
    total += part.dim(1);
  }
  Tensor out = Tensor::empty({3, total}, DType::kF32);
  int64_t column = 0;
  for (const Tensor& part : parts) {
    const int64_t count = part.dim(1);
    for (int64_t axis = 0; axis < 3 && count > 0; ++axis) {
      std::memcpy(out.data<float>() + axis * total + column,
                  part.data<float>() + axis * count,
                  static_cast<size_t>(count) * sizeof(float));
    }
    column += count;
  }
  return out;
}

}  // namespace

bool GenLayout::all_frames_noisy() const {
  return std::ranges::find(clean_frames, true) == clean_frames.end();
}

Tensor text_positions(int64_t count) {
  Tensor out = Tensor::empty({3, count}, DType::kF32);
  float* values = out.data<float>();
  for (int64_t axis = 0; axis < 3; ++axis) {
    for (int64_t index = 0; index < count; ++index) {
      values[axis * count + index] = static_cast<float>(index);
    }
  }
  return out;
}

Tensor media_positions(const MediaGrid& grid) {
  const int64_t per_frame = grid.rows * grid.columns;
  const int64_t count = grid.frames * per_frame;
  Tensor out = Tensor::empty({3, count}, DType::kF32);
  float* time = out.data<float>();
  float* row = time + count;
  float* column = row + count;
  const bool modulated = grid.fps.has_value() && grid.frames > 1;
  for (int64_t frame = 0; frame < grid.frames; ++frame) {
    // Rounded to f32 after every operation, in this order: media stand at positions above 15000,
    // where another order moves the angles.
    float at = 0.0F;
    if (modulated) {
      const auto rate = static_cast<float>(*grid.fps / grid.factor);
      const auto base_rate = static_cast<float>(grid.base_fps / grid.base_factor);
      at = static_cast<float>(frame) + static_cast<float>(grid.start_frame_offset);
      at = at / rate;
      at = at * base_rate;
      at = at + static_cast<float>(grid.offset);
    } else {
      at = static_cast<float>(frame) + static_cast<float>(std::trunc(grid.offset));
      at = at + static_cast<float>(grid.start_frame_offset);
    }
    for (int64_t cell = 0; cell < per_frame; ++cell) {
      const int64_t index = frame * per_frame + cell;
      time[index] = at;
      row[index] = static_cast<float>(cell / grid.columns);
      column[index] = static_cast<float>(cell % grid.columns);
    }
  }
  return out;
}

Tensor gen_positions(const TransformerConfig& config,
                     int64_t temporal_factor,
                     const GenLayout& layout,
                     int64_t num_text) {
  const int64_t patch = config.latent_patch_size;
  MediaGrid vision;
  vision.frames = layout.frames;
  vision.rows = layout.grid_height(patch);
  vision.columns = layout.grid_width(patch);
  vision.offset = static_cast<double>(num_text + config.temporal_modality_margin);
  vision.factor = static_cast<double>(temporal_factor);
  vision.base_factor = vision.factor;
  vision.base_fps = config.base_fps;
  vision.start_frame_offset = layout.start_frame_offset;
  if (config.enable_fps_modulation) {
    vision.fps = layout.fps;
  }
  std::vector<Tensor> parts{media_positions(vision)};
  if (layout.num_sound > 0) {
    MediaGrid sound;
    sound.frames = layout.num_sound;
    sound.offset = vision.offset;
    sound.base_fps = config.base_fps;
    if (config.enable_fps_modulation) {
      sound.fps = config.sound_latent_fps;
    }
    parts.push_back(media_positions(sound));
  }
  if (layout.num_actions > 0) {
    MediaGrid action;
    action.frames = layout.num_actions;
    action.offset = vision.offset;
    action.factor = kActionFactor;
    action.base_factor = static_cast<double>(temporal_factor);
    action.base_fps = config.base_fps;
    action.start_frame_offset = layout.action_offset;
    if (config.enable_fps_modulation) {
      action.fps = layout.action_fps;
    }
    parts.push_back(media_positions(action));
  }
  return join_columns(parts);
}

Tensor noisy_rows(const GenLayout& layout, int64_t patch) {
  MSTAR_CHECK(static_cast<int64_t>(layout.clean_frames.size()) == layout.frames,
              layout.clean_frames.size(),
              " marks for ",
              layout.frames,
              " frames");
  const int64_t per_frame = layout.tokens_per_frame(patch);
  Tensor out = Tensor::empty({layout.num_tokens(patch)}, DType::kU8);
  uint8_t* next = out.data<uint8_t>();
  for (int64_t frame = 0; frame < layout.frames; ++frame) {
    const uint8_t noisy = layout.clean_frames[static_cast<size_t>(frame)] ? 0 : 1;
    next = std::fill_n(next, per_frame, noisy);
  }
  next = std::fill_n(next, layout.num_sound, uint8_t{1});
  std::fill_n(next, layout.num_actions, static_cast<uint8_t>(layout.clean_actions ? 0 : 1));
  return out;
}

SoundLength sound_length(int64_t num_frames,
                         double fps,
                         std::optional<double> seconds,
                         int64_t sampling_rate,
                         int64_t hop_size) {
  const double asked = seconds.value_or(static_cast<double>(num_frames) / fps);
  const double duration = std::max(asked, 1.0 / std::max(fps, 1.0));
  SoundLength out;
  // Ties go to the even number, as in the reference.
  out.num_samples =
      std::max<int64_t>(1, std::llrint(duration * static_cast<double>(sampling_rate)));
  out.num_latents = std::max<int64_t>(1, (out.num_samples + hop_size - 1) / hop_size);
  return out;
}

}  // namespace mstar::cosmos3

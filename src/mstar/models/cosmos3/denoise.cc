#include "mstar/models/cosmos3/denoise.h"

#include <cmath>
#include <numbers>

#include "mstar/base/check.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar::cosmos3 {

namespace {

Tensor own_copy(Stream& stream, const Tensor& x) {
  if (!x.defined()) {
    return {};
  }
  Tensor out = stream.empty(x.shape(), DType::kF32);
  ops::copy(stream, x, out);
  return out;
}

// SplitMix64 (Steele, Lea and Flood 2014): a bijection that mixes a counter well.
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// In (0, 1].
double unit(uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 1.0) * 0x1.0p-53;
}

}  // namespace

Denoiser::Denoiser(Stream& stream, GenPlan plan, const GenState& start, const Tensor& anchor)
    : plan_(std::move(plan)),
      state_{own_copy(stream, start.vision),
             own_copy(stream, start.sound),
             own_copy(stream, start.actions)},
      anchor_(own_copy(stream, anchor)),
      vision_(plan_.schedule),
      sound_(plan_.schedule),
      actions_(plan_.schedule) {
  MSTAR_CHECK(plan_.layout.all_frames_noisy() || anchor_.defined(), "clean frames without anchor");
  pin(stream);
}

void Denoiser::pin(Stream& stream) {
  for (int64_t frame = 0; frame < plan_.layout.frames; ++frame) {
    if (plan_.layout.clean_frames[static_cast<size_t>(frame)]) {
      Tensor to = state_.vision.slice(1, frame, frame + 1);
      ops::copy(stream, anchor_.slice(1, frame, frame + 1), to);
    }
  }
  if (state_.actions.defined() && plan_.raw_action_dim < state_.actions.dim(1)) {
    Tensor rest = state_.actions.slice(1, plan_.raw_action_dim, state_.actions.dim(1));
    const Tensor zeros = Tensor::zeros(rest.shape(), DType::kF32);
    ops::copy(stream, zeros, rest);
    stream.synchronize();  // zeros must live until the op ran
  }
}

void Denoiser::advance(Stream& stream, const GenState& velocity, const GenState& noise) {
  MSTAR_CHECK(!finished(), "step ", step_);
  const auto move =
      [&](const Tensor& own_velocity, const Tensor& own_noise, UniPC& solver, Tensor& sample) {
        if (plan_.distilled) {
          stochastic_euler_step(stream, plan_.schedule, step_, own_velocity, own_noise, sample);
        } else {
          solver.step(stream, own_velocity, sample);
        }
      };
  move(velocity.vision, noise.vision, vision_, state_.vision);
  if (state_.sound.defined()) {
    move(velocity.sound, noise.sound, sound_, state_.sound);
  }
  if (state_.actions.defined() && !plan_.layout.clean_actions) {
    move(velocity.actions, noise.actions, actions_, state_.actions);
  }
  pin(stream);
  ++step_;
}

Tensor gaussian_noise(const Shape& shape, uint64_t seed, uint64_t stream_number) {
  Tensor out = Tensor::empty(shape, DType::kF32);
  float* values = out.data<float>();
  const int64_t size = out.num_elements();
  const uint64_t key = mix(mix(seed) + stream_number);
  // Box and Muller's two normal values out of two uniform ones.
  for (int64_t i = 0; i < size; i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(unit(mix(key + static_cast<uint64_t>(i)))));
    const double angle = 2.0 * std::numbers::pi * unit(mix(key + static_cast<uint64_t>(i) + 1));
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < size) {
      values[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }
  return out;
}

GenState draw_noise(const TransformerConfig& config, const GenLayout& layout, uint64_t seed) {
  GenState noise;
  noise.vision = gaussian_noise(
      {config.latent_channel, layout.frames, layout.latent_height, layout.latent_width}, seed, 0);
  if (layout.num_sound > 0) {
    noise.sound = gaussian_noise({config.sound_dim, layout.num_sound}, seed, 1);
  }
  if (layout.num_actions > 0) {
    noise.actions = gaussian_noise({layout.num_actions, config.action_dim}, seed, 2);
  }
  return noise;
}

}  // namespace mstar::cosmos3

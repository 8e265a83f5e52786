// One request on its way from noise to a result: what is planned once, and what moves every step.
#pragma once

#include <cstdint>
#include <vector>

#include "mstar/models/cosmos3/guidance.h"
#include "mstar/models/cosmos3/packing.h"
#include "mstar/models/cosmos3/scheduler.h"
#include "mstar/models/cosmos3/transformer.h"

namespace mstar::cosmos3 {

// Settled before the first step and the same in all of them.
struct GenPlan {
  GenLayout layout;
  Schedule schedule;
  Guidance guidance;
  bool distilled = false;      // stochastic Euler steps instead of UniPC
  int64_t raw_action_dim = 0;  // action columns from here on stay zero
};

// The samples and solvers of one request. Belongs to the thread that runs its steps.
class Denoiser {
 public:
  // `start` holds noise (and given actions). `anchor` [channels, frames, h, w]: what the layout's
  // clean frames show; undefined when there are none. Both are copied.
  Denoiser(Stream& stream, GenPlan plan, const GenState& start, const Tensor& anchor);

  const GenPlan& plan() const { return plan_; }

  const GenState& state() const { return state_; }

  int64_t step_index() const { return step_; }

  bool finished() const { return step_ == plan_.schedule.num_steps(); }

  float timestep() const { return plan_.schedule.timesteps[static_cast<size_t>(step_)]; }

  // One step with the guided velocity. `noise` is read by distilled plans, except in the last step.
  void advance(Stream& stream, const GenState& velocity, const GenState& noise);

 private:
  void pin(Stream& stream);

  GenPlan plan_;
  GenState state_;
  Tensor anchor_;
  int64_t step_ = 0;
  UniPC vision_;
  UniPC sound_;
  UniPC actions_;
};

// Standard normal values of `shape`: a function of seed and stream number alone.
Tensor gaussian_noise(const Shape& shape, uint64_t seed, uint64_t stream_number);

// Noise for everything a plan denoises, drawn in the order vision, sound, actions.
GenState draw_noise(const TransformerConfig& config, const GenLayout& layout, uint64_t seed);

}  // namespace mstar::cosmos3

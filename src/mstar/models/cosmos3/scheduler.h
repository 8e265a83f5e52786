// Noise schedules and solvers of the denoise loop. Schedules are made in double and kept in f32,
// as the reference does; solver states belong to one request. Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mstar/models/cosmos3/config.h"
#include "mstar/tensor/stream.h"

namespace mstar::cosmos3 {

// Noise levels of all steps. sigmas [steps + 1], the last one 0; timesteps [steps], whole numbers
// under UniPC. Steps are addressed by index: two may have the same timestep.
struct Schedule {
  std::vector<float> sigmas;
  std::vector<float> timesteps;

  int64_t num_steps() const { return static_cast<int64_t>(timesteps.size()); }
};

// The native flow-matching grid before the shift: num_inference_steps values evenly spaced from
// 1 - 1/num_train_timesteps toward 0, 0 left out.
std::vector<double> native_flow_sigmas(int64_t num_inference_steps, int64_t num_train_timesteps);

Schedule karras_schedule(int64_t num_steps, double sigma_min, double sigma_max, int64_t num_train);
Schedule linear_schedule(int64_t num_steps, double shift, int64_t num_train);
Schedule native_schedule(int64_t num_steps, double shift, int64_t num_train);
Schedule distilled_schedule(const std::vector<double>& sigmas, int64_t num_train);

// UniPC of order 2 (bh2, x0 prediction, flow velocities): a corrector over the last two x0
// predictions, then a predictor. One sample of one request.
class UniPC {
 public:
  explicit UniPC(Schedule schedule);

  const Schedule& schedule() const { return schedule_; }

  int64_t step_index() const { return step_; }

  bool finished() const { return step_ == schedule_.num_steps(); }

  // Moves `sample` (contiguous) one step on, in place; `velocity` is like it. f32, or bf16: then
  // rounded at every factor, product and sum, as torch does. Enqueued on the stream.
  void step(Stream& stream, const Tensor& velocity, Tensor& sample);

 private:
  Tensor correct(Stream& stream, const Tensor& x0, const Tensor& sample) const;
  float log_snr(int64_t index) const;

  Schedule schedule_;
  int64_t step_ = 0;
  int order_ = 0;       // of the step before
  Tensor before_last_;  // x0 predictions of the two steps before
  Tensor last_;
  Tensor last_sample_;  // corrected sample of the step before
};

// The stochastic Euler step of distilled checkpoints: to x0, then back to the next noise level with
// fresh noise. In place; `noise` has the sample's shape and may be undefined in the last step.
void stochastic_euler_step(Stream& stream,
                           const Schedule& schedule,
                           int64_t step,
                           const Tensor& velocity,
                           const Tensor& noise,
                           Tensor& sample);

}  // namespace mstar::cosmos3

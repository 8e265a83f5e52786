#include "mstar/models/cosmos3/scheduler.h"

#include <cmath>
#include <initializer_list>

#include "mstar/base/check.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/models/cosmos3/elementwise.h"
#include "mstar/tensor/float16.h"

namespace mstar::cosmos3 {

namespace {

// numpy.linspace, its last value exact.
std::vector<double> linspace(double begin, double end, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  const double step = count > 1 ? (end - begin) / static_cast<double>(count - 1) : 0.0;
  for (int64_t index = 0; index < count; ++index) {
    values[static_cast<size_t>(index)] = static_cast<double>(index) * step + begin;
  }
  if (count > 1) {
    values.back() = end;
  }
  return values;
}

Schedule make_schedule(const std::vector<double>& sigmas, int64_t num_train) {
  Schedule schedule;
  for (const double sigma : sigmas) {
    schedule.sigmas.push_back(static_cast<float>(sigma));
    schedule.timesteps.push_back(
        static_cast<float>(static_cast<int64_t>(sigma * static_cast<double>(num_train))));
  }
  schedule.sigmas.push_back(0.0F);
  return schedule;
}

Schedule shifted(std::vector<double> sigmas, double shift, int64_t num_train) {
  for (double& sigma : sigmas) {
    sigma = shift * sigma / (1.0 + (shift - 1.0) * sigma);
  }
  // At sigma 1 the signal-to-noise ratio has no logarithm.
  if (std::abs(sigmas.front() - 1.0) < 1e-6) {
    sigmas.front() -= 1e-6;
  }
  return make_schedule(sigmas, num_train);
}

Tensor widened(Stream& stream, const Tensor& x) {
  Tensor out = stream.empty(x.shape(), DType::kF32);
  ops::copy(stream, x, out);
  return out;
}

// x, its values those that bf16 has.
Tensor rounded(Stream& stream, const Tensor& x) {
  Tensor narrow = stream.empty(x.shape(), DType::kBF16);
  ops::copy(stream, x, narrow);
  return widened(stream, narrow);
}

// The sum of the terms as torch makes it of bf16 tensors, from left to right: the factor is
// rounded, then the product, then the sum.
Tensor rounded_sum(Stream& stream, std::initializer_list<Term> terms) {
  Tensor sum;
  for (const Term& term : terms) {
    const float factor = to_float(to_bfloat16(term.factor));
    Tensor product = stream.empty(term.x.shape(), DType::kF32);
    combine(stream, {{factor, term.x}}, product);
    product = rounded(stream, product);
    if (sum.defined()) {
      Tensor both = stream.empty(product.shape(), DType::kF32);
      combine(stream, {{1.0F, sum}, {1.0F, product}}, both);
      product = rounded(stream, both);
    }
    sum = product;
  }
  return sum;
}

// A divisor stays f32.
Tensor rounded_quotient(Stream& stream, const Tensor& x, float divisor) {
  Tensor out = stream.empty(x.shape(), DType::kF32);
  combine(stream, {{1.0F / divisor, x}}, out);
  return rounded(stream, out);
}

}  // namespace

std::vector<double> native_flow_sigmas(int64_t num_inference_steps, int64_t num_train_timesteps) {
  std::vector<double> sigmas =
      linspace(1.0 - 1.0 / static_cast<double>(num_train_timesteps), 0.0, num_inference_steps + 1);
  sigmas.pop_back();
  return sigmas;
}

Schedule karras_schedule(int64_t num_steps, double sigma_min, double sigma_max, int64_t num_train) {
  constexpr double kRho = 7.0;
  const double low = std::pow(sigma_min, 1.0 / kRho);
  const double high = std::pow(sigma_max, 1.0 / kRho);
  std::vector<double> sigmas = linspace(0.0, 1.0, num_steps);
  for (double& sigma : sigmas) {
    const double edm = std::pow(high + sigma * (low - high), kRho);
    sigma = edm / (edm + 1.0);
  }
  return make_schedule(sigmas, num_train);
}

Schedule linear_schedule(int64_t num_steps, double shift, int64_t num_train) {
  std::vector<double> sigmas = linspace(1.0, 1.0 / static_cast<double>(num_train), num_steps + 1);
  sigmas.pop_back();
  return shifted(std::move(sigmas), shift, num_train);
}

Schedule native_schedule(int64_t num_steps, double shift, int64_t num_train) {
  return shifted(native_flow_sigmas(num_steps, num_train), shift, num_train);
}

Schedule distilled_schedule(const std::vector<double>& sigmas, int64_t num_train) {
  Schedule schedule;
  for (const double sigma : sigmas) {
    schedule.sigmas.push_back(static_cast<float>(sigma));
    schedule.timesteps.push_back(schedule.sigmas.back() * static_cast<float>(num_train));
  }
  schedule.sigmas.push_back(0.0F);
  return schedule;
}

UniPC::UniPC(Schedule schedule) : schedule_(std::move(schedule)) {
  MSTAR_CHECK(schedule_.num_steps() > 0, "a schedule without steps");
}

float UniPC::log_snr(int64_t index) const {
  const float sigma = schedule_.sigmas[static_cast<size_t>(index)];
  return std::log(1.0F - sigma) - std::log(sigma);
}

// The sample of this step, improved by what the model now says about it: a linear combination of
// the last sample and the x0 predictions, with the coefficients written out.
Tensor UniPC::correct(Stream& stream, const Tensor& x0, const Tensor& sample) const {
  const auto now = static_cast<size_t>(step_);
  const float sigma = schedule_.sigmas[now];
  const float h = log_snr(step_) - log_snr(step_ - 1);
  const float phi = std::expm1(-h);
  const float scale = (1.0F - sigma) * phi;
  const float keep = sigma / schedule_.sigmas[now - 1];
  const bool rounds = sample.dtype() == DType::kBF16;
  Tensor out = stream.empty(sample.shape(), DType::kF32);
  if (order_ == 1) {
    if (rounds) {
      const Tensor change = rounded_sum(stream, {{1.0F, x0}, {-1.0F, last_}});
      return rounded_sum(stream,
                         {{1.0F, rounded_sum(stream, {{keep, last_sample_}, {-scale, last_}})},
                          {-scale, rounded_sum(stream, {{0.5F, change}})}});
    }
    combine(stream, {{keep, last_sample_}, {-scale * 0.5F, last_}, {-scale * 0.5F, x0}}, out);
    return out;
  }
  const float rk = (log_snr(step_ - 2) - log_snr(step_ - 1)) / h;
  const float a1 = phi / -h - 1.0F;
  const float b1 = a1 / phi;
  const float a2 = a1 / -h - 0.5F;
  const float b2 = 2.0F * a2 / phi;
  const float rho0 = (b1 - b2) / (1.0F - rk);
  const float rho1 = b1 - rho0;
  if (rounds) {
    const Tensor change = rounded_sum(stream, {{1.0F, x0}, {-1.0F, last_}});
    const Tensor slope =
        rounded_quotient(stream, rounded_sum(stream, {{1.0F, before_last_}, {-1.0F, last_}}), rk);
    return rounded_sum(stream,
                       {{1.0F, rounded_sum(stream, {{keep, last_sample_}, {-scale, last_}})},
                        {-scale, rounded_sum(stream, {{rho0, slope}, {rho1, change}})}});
  }
  combine(stream,
          {{keep, last_sample_},
           {-scale * (1.0F - rho0 / rk - rho1), last_},
           {-scale * rho0 / rk, before_last_},
           {-scale * rho1, x0}},
          out);
  return out;
}

void UniPC::step(Stream& stream, const Tensor& velocity, Tensor& sample) {
  MSTAR_CHECK(!finished(), "step ", step_);
  const bool rounds = sample.dtype() == DType::kBF16;
  const auto now = static_cast<size_t>(step_);
  const float sigma = schedule_.sigmas[now];
  const float next = schedule_.sigmas[now + 1];
  // What a step keeps is f32 either way; with bf16 samples the values are such.
  const Tensor from = rounds ? widened(stream, sample) : sample;
  Tensor x0;
  if (rounds) {
    x0 = rounded_sum(stream, {{1.0F, from}, {-sigma, widened(stream, velocity)}});
  } else {
    x0 = stream.empty(sample.shape(), DType::kF32);
    combine(stream, {{1.0F, sample}, {-sigma, velocity}}, x0);
  }
  Tensor corrected;
  if (step_ > 0) {
    corrected = correct(stream, x0, sample);
  } else {
    corrected = stream.empty(sample.shape(), DType::kF32);
    combine(stream, {{1.0F, from}}, corrected);
  }
  const int order = step_ == 0 || step_ + 1 == schedule_.num_steps() ? 1 : 2;
  if (next == 0.0F) {
    ops::copy(stream, x0, sample);
  } else {
    const float h = log_snr(step_ + 1) - log_snr(step_);
    const float scale = (1.0F - next) * std::expm1(-h);
    const float rk = order == 1 ? 0.0F : (log_snr(step_ - 1) - log_snr(step_)) / h;
    if (rounds) {
      Tensor moved = rounded_sum(stream, {{next / sigma, corrected}, {-scale, x0}});
      if (order == 2) {
        const Tensor slope =
            rounded_quotient(stream, rounded_sum(stream, {{1.0F, last_}, {-1.0F, x0}}), rk);
        moved =
            rounded_sum(stream, {{1.0F, moved}, {-scale, rounded_sum(stream, {{0.5F, slope}})}});
      }
      ops::copy(stream, moved, sample);
    } else if (order == 1) {
      combine(stream, {{next / sigma, corrected}, {-scale, x0}}, sample);
    } else {
      combine(stream,
              {{next / sigma, corrected},
               {-scale * (1.0F - 0.5F / rk), x0},
               {-scale * 0.5F / rk, last_}},
              sample);
    }
  }
  before_last_ = last_;
  last_ = x0;
  last_sample_ = corrected;
  order_ = order;
  ++step_;
}

void stochastic_euler_step(Stream& stream,
                           const Schedule& schedule,
                           int64_t step,
                           const Tensor& velocity,
                           const Tensor& noise,
                           Tensor& sample) {
  const auto now = static_cast<size_t>(step);
  const float sigma = schedule.sigmas[now];
  const float next = schedule.sigmas[now + 1];
  if (next == 0.0F) {
    combine(stream, {{1.0F, sample}, {-sigma, velocity}}, sample);
    return;
  }
  const float keep = 1.0F - next;
  combine(stream, {{keep, sample}, {-keep * sigma, velocity}, {next, noise}}, sample);
}

}  // namespace mstar::cosmos3

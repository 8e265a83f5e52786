#include "mstar/models/whisper/features.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "mstar/base/check.h"

namespace mstar::whisper {

namespace {

constexpr double kFloor = 1e-10;  // of the energies, before the logarithm
constexpr double kRange = 8.0;    // powers of ten that are kept below the loudest

// Slaney's scale: linear to 1 kHz, then 27 steps for every factor of 6.4.
constexpr double kHzPerMel = 200.0 / 3.0;
constexpr double kLogBeginHz = 1000.0;
constexpr double kLogBeginMel = kLogBeginHz / kHzPerMel;

double log_step() {
  return std::log(6.4) / 27.0;
}

double hz_to_mel(double hz) {
  return hz < kLogBeginHz ? hz / kHzPerMel : kLogBeginMel + std::log(hz / kLogBeginHz) / log_step();
}

double mel_to_hz(double mel) {
  return mel < kLogBeginMel ? mel * kHzPerMel
                            : kLogBeginHz * std::exp(log_step() * (mel - kLogBeginMel));
}

int64_t smallest_factor(int64_t number) {
  for (int64_t factor = 2; factor * factor <= number; ++factor) {
    if (number % factor == 0) {
      return factor;
    }
  }
  return number;
}

}  // namespace

LogMel::LogMel(const Config& config) : config_(config) {
  MSTAR_CHECK(config.num_mel_bins > 0 && config.n_fft > 1 && config.hop_length > 0 &&
              config.num_frames > 0 && config.sampling_rate > 0);
  for (int64_t index = 0; index < config.n_fft; ++index) {
    const double angle =
        2.0 * std::numbers::pi * static_cast<double>(index) / static_cast<double>(config.n_fft);
    window_.push_back(0.5 - 0.5 * std::cos(angle));
    twiddles_.push_back({std::cos(angle), -std::sin(angle)});
  }
  make_filters();
}

void LogMel::make_filters() {
  const int64_t num_bins = config_.n_fft / 2 + 1;
  const double top = hz_to_mel(static_cast<double>(config_.sampling_rate) / 2.0);
  const auto corner = [&](int64_t index) {
    return mel_to_hz(top * static_cast<double>(index) /
                     static_cast<double>(config_.num_mel_bins + 1));
  };
  for (int64_t mel = 0; mel < config_.num_mel_bins; ++mel) {
    const double low = corner(mel);
    const double middle = corner(mel + 1);
    const double high = corner(mel + 2);
    Filter& filter = filters_.emplace_back();
    for (int64_t bin = 0; bin < num_bins; ++bin) {
      const double hz =
          static_cast<double>(bin * config_.sampling_rate) / static_cast<double>(config_.n_fft);
      const double height = std::min((hz - low) / (middle - low), (high - hz) / (high - middle));
      if (height <= 0.0) {
        continue;
      }
      if (filter.weights.empty()) {
        filter.first = bin;
      }
      filter.weights.push_back(height * 2.0 / (high - low));  // equal areas
    }
  }
}

// Mixed-radix Cooley-Tukey: `size` values at distance `stride` -> their spectrum.
void LogMel::transform(const Complex* in, int64_t stride, Complex* out, int64_t size) const {
  if (size == 1) {
    *out = *in;
    return;
  }
  const int64_t radix = smallest_factor(size);
  const int64_t part = size / radix;
  for (int64_t index = 0; index < radix; ++index) {
    transform(in + index * stride, stride * radix, out + index * part, part);
  }
  const int64_t period = config_.n_fft;
  std::vector<Complex> terms(static_cast<size_t>(radix));
  for (int64_t k = 0; k < part; ++k) {
    for (int64_t index = 0; index < radix; ++index) {
      const Complex& value = out[index * part + k];
      const Complex& turn = twiddles_[static_cast<size_t>(index * k * (period / size))];
      terms[static_cast<size_t>(index)] = {value.re * turn.re - value.im * turn.im,
                                           value.re * turn.im + value.im * turn.re};
    }
    for (int64_t to = 0; to < radix; ++to) {
      Complex sum;
      for (int64_t index = 0; index < radix; ++index) {
        const Complex& value = terms[static_cast<size_t>(index)];
        const Complex& turn = twiddles_[static_cast<size_t>(index * to % radix * (period / radix))];
        sum.re += value.re * turn.re - value.im * turn.im;
        sum.im += value.re * turn.im + value.im * turn.re;
      }
      out[to * part + k] = sum;
    }
  }
}

Tensor LogMel::operator()(std::span<const float> audio) const {
  const int64_t length = num_samples();
  const auto given = std::min<int64_t>(length, static_cast<int64_t>(audio.size()));
  // Sample `index` of the filled-up sound, which is mirrored at its ends.
  const auto sample = [&](int64_t index) {
    index = index < 0 ? -index : index >= length ? 2 * (length - 1) - index : index;
    return index >= 0 && index < given ? static_cast<double>(audio[static_cast<size_t>(index)])
                                       : 0.0;
  };
  Tensor features = Tensor::empty({config_.num_frames, config_.num_mel_bins}, DType::kF32);
  auto* to = features.data<float>();
  std::vector<Complex> frame(static_cast<size_t>(config_.n_fft));
  std::vector<Complex> spectrum(frame.size());
  std::vector<double> energies(frame.size());
  double highest = std::log10(kFloor);
  for (int64_t row = 0; row < config_.num_frames; ++row) {
    const int64_t begin = row * config_.hop_length - config_.n_fft / 2;
    for (size_t index = 0; index < frame.size(); ++index) {
      frame[index] = {sample(begin + static_cast<int64_t>(index)) * window_[index], 0.0};
    }
    transform(frame.data(), 1, spectrum.data(), config_.n_fft);
    for (size_t bin = 0; bin < spectrum.size(); ++bin) {
      energies[bin] = spectrum[bin].re * spectrum[bin].re + spectrum[bin].im * spectrum[bin].im;
    }
    for (const Filter& filter : filters_) {
      double sum = 0.0;
      for (size_t index = 0; index < filter.weights.size(); ++index) {
        sum += filter.weights[index] * energies[static_cast<size_t>(filter.first) + index];
      }
      const double value = std::log10(std::max(sum, kFloor));
      highest = std::max(highest, value);
      *to++ = static_cast<float>(value);
    }
  }
  const auto lowest = static_cast<float>(highest - kRange);
  for (float* value = features.data<float>(); value != to; ++value) {
    *value = (std::max(*value, lowest) + 4.0F) / 4.0F;
  }
  return features;
}

std::vector<size_t> LogMel::pieces(std::span<const float> audio) const {
  const auto longest = static_cast<size_t>(num_samples());
  const auto step = static_cast<size_t>(config_.hop_length);
  const size_t quiet = std::min(static_cast<size_t>(config_.sampling_rate) / 5, longest / 10);
  std::vector<size_t> ends;
  size_t begin = 0;
  while (audio.size() - begin > longest) {
    size_t best = begin + longest;
    double least = std::numeric_limits<double>::infinity();
    for (size_t from = begin + longest * 4 / 5; from + quiet <= begin + longest; from += step) {
      double energy = 0.0;
      for (const float sample : audio.subspan(from, quiet)) {
        energy += static_cast<double>(sample) * sample;
      }
      if (energy < least) {
        least = energy;
        best = from + quiet / 2;
      }
    }
    ends.push_back(best);
    begin = best;
  }
  ends.push_back(audio.size());
  return ends;
}

}  // namespace mstar::whisper

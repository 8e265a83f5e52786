// From one sample rate to another.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <vector>

#include "mstar/base/check.h"
#include "mstar/media/audio.h"

namespace mstar {

namespace {

// Zero crossings of the sinc on either side, the window's shape and where the pass band ends, as
// a part of half the lower rate: below -90 dB outside, flat to 0.9 of the band.
constexpr int64_t kZeroCrossings = 48;
constexpr double kKaiserBeta = 9.0;
constexpr double kCutoff = 0.94;
constexpr int64_t kMaxPhases = 4096;  // odd ratios take the nearest one

// Modified Bessel function of order 0, by its series.
double bessel_i0(double x) {
  double sum = 1.0;
  double term = 1.0;
  for (int k = 1; term > sum * 1e-17; ++k) {
    const double half = x / (2.0 * k);
    term *= half * half;
    sum += term;
  }
  return sum;
}

// Filters for every phase between two input samples.
struct Polyphase {
  int64_t num_phases = 0;
  int64_t half = 0;         // taps on either side
  std::vector<float> taps;  // [num_phases, 2 half]; tap t belongs to the input floor + t - half + 1

  Polyphase(int64_t up, int64_t down) {
    num_phases = std::min(up, kMaxPhases);
    const double band =
        kCutoff * std::min(1.0, static_cast<double>(up) / static_cast<double>(down));
    half = static_cast<int64_t>(std::ceil(static_cast<double>(kZeroCrossings) / band));
    taps.resize(static_cast<size_t>(num_phases * 2 * half));
    const double scale = 1.0 / bessel_i0(kKaiserBeta);
    std::vector<double> row(static_cast<size_t>(2 * half));
    for (int64_t phase = 0; phase < num_phases; ++phase) {
      const double fraction = static_cast<double>(phase) / static_cast<double>(num_phases);
      double sum = 0.0;
      for (int64_t tap = 0; tap < 2 * half; ++tap) {
        const double x = static_cast<double>(tap - half + 1) - fraction;
        const double edge = x / static_cast<double>(half);
        const double window = std::abs(edge) >= 1.0
                                  ? 0.0
                                  : bessel_i0(kKaiserBeta * std::sqrt(1.0 - edge * edge)) * scale;
        const double angle = std::numbers::pi * band * x;
        const double sinc = std::abs(angle) < 1e-12 ? 1.0 : std::sin(angle) / angle;
        row[static_cast<size_t>(tap)] = sinc * window;
        sum += sinc * window;
      }
      // A constant stays the constant it is, at every phase.
      for (int64_t tap = 0; tap < 2 * half; ++tap) {
        taps[static_cast<size_t>(phase * 2 * half + tap)] =
            static_cast<float>(row[static_cast<size_t>(tap)] / sum);
      }
    }
  }
};

// `padded` has `half` zeros before the samples and behind them.
void filter(const Polyphase& polyphase,
            const std::vector<float>& padded,
            int64_t up,
            int64_t down,
            std::span<float> out) {
  int64_t whole = 0;  // position of the output in the input, as whole + part / up
  int64_t part = 0;
  for (float& value : out) {
    int64_t phase = part;
    int64_t first = whole;
    if (polyphase.num_phases != up) {
      phase = (part * polyphase.num_phases + up / 2) / up;
      if (phase == polyphase.num_phases) {
        phase = 0;
        ++first;
      }
    }
    const float* taps = polyphase.taps.data() + phase * 2 * polyphase.half;
    const float* from = padded.data() + first + 1;
    float sums[8] = {};
    int64_t tap = 0;
    for (; tap + 8 <= 2 * polyphase.half; tap += 8) {
      for (int64_t lane = 0; lane < 8; ++lane) {
        sums[lane] += taps[tap + lane] * from[tap + lane];
      }
    }
    for (; tap < 2 * polyphase.half; ++tap) {
      sums[0] += taps[tap] * from[tap];
    }
    value = std::accumulate(std::begin(sums), std::end(sums), 0.0F);
    part += down;
    whole += part / up;
    part %= up;
  }
}

}  // namespace

AudioClip resample(const AudioClip& clip, int64_t sample_rate) {
  MSTAR_CHECK(sample_rate > 0 && clip.sample_rate > 0, "sample_rate=", sample_rate);
  if (sample_rate == clip.sample_rate) {
    return clip;
  }
  const int64_t divisor = std::gcd(sample_rate, clip.sample_rate);
  const int64_t up = sample_rate / divisor;
  const int64_t down = clip.sample_rate / divisor;
  const int64_t num_frames = clip.num_frames();
  const int64_t num_out = (num_frames * up + down - 1) / down;
  const Polyphase polyphase(up, down);
  AudioClip out{Tensor::empty({clip.num_channels(), num_out}, DType::kF32), sample_rate};
  std::vector<float> padded(static_cast<size_t>(num_frames + 2 * polyphase.half + 1));
  for (int64_t channel = 0; channel < clip.num_channels(); ++channel) {
    const float* from = clip.samples.data<float>() + channel * clip.samples.stride(0);
    for (int64_t frame = 0; frame < num_frames; ++frame) {
      padded[static_cast<size_t>(polyphase.half + frame)] = from[frame * clip.samples.stride(1)];
    }
    filter(polyphase,
           padded,
           up,
           down,
           {out.samples.data<float>() + channel * num_out, static_cast<size_t>(num_out)});
  }
  return out;
}

}  // namespace mstar

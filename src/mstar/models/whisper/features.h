#pragma once

// What the encoder hears: the logarithm of a sound's spectrum on the mel scale.

#include <cstdint>
#include <span>
#include <vector>

#include "mstar/tensor/tensor.h"

namespace mstar::whisper {

// Spectra of overlapping windows, summed by triangular filters that are evenly spaced on the mel
// scale of Slaney's Auditory Toolbox. Immutable once built, thread-safe.
class LogMel {
 public:
  struct Config {
    int64_t num_mel_bins = 0;
    int64_t sampling_rate = 16000;
    int64_t n_fft = 400;       // samples of a window
    int64_t hop_length = 160;  // samples from one window to the next
    int64_t num_frames = 0;    // windows of the result
  };

  explicit LogMel(const Config& config);

  // `audio` at the sampling rate, cut or filled up with silence to num_samples() -> [num_frames,
  // num_mel_bins] f32, about -1 to 1: log10 of the energies, no lower than 8 below the highest.
  Tensor operator()(std::span<const float> audio) const;

  int64_t num_samples() const { return config_.num_frames * config_.hop_length; }

  double seconds() const {
    return static_cast<double>(num_samples()) / static_cast<double>(config_.sampling_rate);
  }

  const Config& config() const { return config_; }

  // Where to cut a longer sound so that no piece has more than num_samples(): each cut is at the
  // quietest fifth of a second in the last fifth of a piece, so that words stay whole. The end of
  // each piece, the last one is audio.size(). Never empty.
  std::vector<size_t> pieces(std::span<const float> audio) const;

 private:
  // Energies of a filter's frequencies: weights[first], …
  struct Filter {
    int64_t first = 0;
    std::vector<double> weights;
  };

  struct Complex {
    double re = 0.0;
    double im = 0.0;
  };

  void make_filters();
  void transform(const Complex* in, int64_t stride, Complex* out, int64_t size) const;

  Config config_;
  std::vector<Filter> filters_;    // [num_mel_bins]
  std::vector<double> window_;     // [n_fft]
  std::vector<Complex> twiddles_;  // [n_fft] exp(-2 pi i k / n_fft)
};

}  // namespace mstar::whisper

// Any bytes: a sound within the limits with finite samples, or an Error.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/media/audio.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const mstar::AudioLimits limits{.max_seconds = 2.0, .max_channels = 4};
  try {
    const mstar::AudioClip clip = mstar::read_audio(bytes, limits, "fuzz");
    if (clip.num_channels() > limits.max_channels || clip.seconds() > limits.max_seconds) {
      std::abort();
    }
    for (const float value : clip.samples.to_floats()) {
      if (!std::isfinite(value)) {
        std::abort();
      }
    }
  } catch (const mstar::Error&) {
  }
  return 0;
}

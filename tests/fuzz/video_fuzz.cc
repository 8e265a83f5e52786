// Any bytes: frames within the limits, or an Error; the same for the sound beside them.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/media/video.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const mstar::VideoLimits limits{.max_side = 512,
                                  .max_pixels = 1 << 14,
                                  .max_frames = 32,
                                  .max_kept_bytes = 1 << 20,
                                  .max_seconds = 60.0};
  try {
    const mstar::VideoInfo info = mstar::read_video_info(bytes, limits, "fuzz");
    if (info.width * info.height > limits.max_pixels || info.num_frames > limits.max_frames) {
      std::abort();
    }
    const mstar::VideoClip clip = mstar::read_video(bytes, {.indexes = {0, 3, 40}}, limits, "fuzz");
    if (clip.frames.dim(0) != 3 || clip.frames.size_bytes() > limits.max_kept_bytes) {
      std::abort();
    }
  } catch (const mstar::Error&) {
  }
  try {
    const mstar::AudioLimits sound{.max_seconds = 5.0, .max_channels = 4};
    if (mstar::read_sound_track(bytes, sound, "fuzz").num_channels() > sound.max_channels) {
      std::abort();
    }
  } catch (const mstar::Error&) {
  }
  return 0;
}

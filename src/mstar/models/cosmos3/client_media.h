// Pictures and clips that clients send, as frames. Pure functions, any thread. Throw
// Error(kUnsupportedMedia) for bytes that are not what they are sent as, Error(kTooLarge) for too
// many pixels, frames or seconds.
#pragma once

#include <span>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/models/cosmos3/vision_input.h"

namespace mstar::cosmos3 {

// [height, width, 3] u8.
Tensor read_picture(const MediaItem& item);

// A clip before its frames are decoded.
struct ClipInfo {
  PixelSize size;
  int64_t num_frames = 0;
  double fps = 0.0;  // 24 where the file does not say
};

ClipInfo read_clip_info(const MediaItem& item);

// The frames of those ascending indices, [indices, height, width, 3] u8; where the clip ends before
// one of them, its last frame.
Tensor read_clip_frames(const MediaItem& item, std::span<const int64_t> indices);

}  // namespace mstar::cosmos3

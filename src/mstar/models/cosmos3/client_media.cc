#include "mstar/models/cosmos3/client_media.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/image.h"
#include "mstar/media/video.h"

namespace mstar::cosmos3 {

namespace {

constexpr double kDefaultFps = 24.0;

// A quarter of an hour: more than the sampling's frames look at in any detail.
VideoLimits clip_limits() {
  VideoLimits limits;
  limits.max_frames = 30000;
  limits.max_seconds = 900.0;
  return limits;
}

}  // namespace

Tensor read_picture(const MediaItem& item) {
  return decode_image(*item.bytes, item.name);
}

ClipInfo read_clip_info(const MediaItem& item) {
  const VideoInfo info = read_video_info(*item.bytes, clip_limits(), item.name);
  if (info.num_frames < 1) {
    throw Error(ErrorCode::kUnsupportedMedia, str_cat("[", item.name, "] the video has no frames"));
  }
  return {.size = {info.height, info.width},
          .num_frames = info.num_frames,
          .fps = info.fps > 0.0 ? info.fps : kDefaultFps};
}

Tensor read_clip_frames(const MediaItem& item, std::span<const int64_t> indices) {
  VideoSelection selection;
  selection.indexes.assign(indices.begin(), indices.end());
  return read_video(*item.bytes, selection, clip_limits(), item.name).frames;
}

}  // namespace mstar::cosmos3

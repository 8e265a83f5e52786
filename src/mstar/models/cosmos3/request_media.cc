#include "mstar/models/cosmos3/request_media.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/image.h"
#include "mstar/media/video.h"

namespace mstar::cosmos3 {

RequestMedia::RequestMedia(const ModelRequest& request) {
  for (const MediaItem& item : request.media) {
    if (item.modality != Modality::kImage && item.modality != Modality::kVideo) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[",
                          item.name,
                          "] generation goes on from an image or a video, not from ",
                          to_string(item.modality)));
    }
    if (item_ != nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "[request] found several images or videos, expected one to go on from");
    }
    item_ = &item;
  }
  if (item_ != nullptr) {
    num_frames_ = is_video() ? std::max<int64_t>(
                                   read_video_info(*item_->bytes, {}, item_->name).num_frames, 1)
                             : 1;
  }
}

Conditioning RequestMedia::conditioning() const {
  return {.num_frames = num_frames_, .is_video = is_video()};
}

Tensor RequestMedia::frames(const GenRequest& plan) const {
  if (item_ == nullptr || plan.num_condition_frames == 0) {
    return {};
  }
  if (!is_video()) {
    return decode_image(*item_->bytes, item_->name).unsqueeze(0);
  }
  const int64_t count = std::min(plan.num_condition_frames, num_frames_);
  VideoSelection selection{.first = count};
  if (plan.keep_last) {
    for (int64_t index = num_frames_ - count; index < num_frames_; ++index) {
      selection.indexes.push_back(index);
    }
  }
  return read_video(*item_->bytes, selection, {}, item_->name).frames;
}

}  // namespace mstar::cosmos3

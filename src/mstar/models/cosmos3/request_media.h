// The picture or film a client sends: its header first, its frames once the request is planned.
#pragma once

#include "mstar/engine/model.h"
#include "mstar/models/cosmos3/gen_request.h"

namespace mstar::cosmos3 {

// One item at most; the request must outlive it. Thread-compatible.
class RequestMedia {
 public:
  // Reads headers only. Throws Error(kInvalidArgument) for several items or another kind, and what
  // media/ throws for bytes that cannot be read or are too large.
  explicit RequestMedia(const ModelRequest& request);

  bool is_given() const { return item_ != nullptr; }

  bool is_video() const { return item_ != nullptr && item_->modality == Modality::kVideo; }

  // What planning needs to know.
  Conditioning conditioning() const;

  // Decodes what `plan` conditions on: [frames, height, width, 3] u8, from the film's start or its
  // end; as many as there are, if the plan wants more. Undefined where it wants none.
  Tensor frames(const GenRequest& plan) const;

 private:
  const MediaItem* item_ = nullptr;
  int64_t num_frames_ = 0;  // of the item
};

}  // namespace mstar::cosmos3

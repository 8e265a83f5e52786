// What a deployment's model_kwargs say about a served Cosmos3 checkpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/engine/model.h"
#include "mstar/models/cosmos3/config.h"
#include "mstar/models/cosmos3/dit_submodule.h"

namespace mstar::cosmos3 {

// The most that a client may send or ask for. Looked at before pixels are read or made.
struct MediaCaps {
  int64_t max_image_pixels = int64_t{64} << 20;  // of a picture, or one frame of a film
  int64_t max_video_frames = 30000;
  int64_t max_video_bytes = 0;  // of one film that is sent; 0: what a request may carry

  // Throw Error(kTooLarge) naming file or parameter, what was found, the flag and its limit;
  // headers alone are read. A file that is no picture is for its decoder to refuse.
  void check_picture(const MediaItem& item) const;
  void check_film(const MediaItem& item) const;
  void check_made(int64_t width, int64_t height, int64_t num_frames) const;
};

struct ServingOptions {
  int64_t max_concurrent_requests = 16;
  int64_t session_store_size = 8;
  int64_t session_store_bytes = int64_t{4} << 30;
  int64_t max_model_len = 0;      // tokens of a conversation; 0: no reasoner
  std::vector<Modality> outputs;  // what is served of what the checkpoint can make
  DitCaptures captures;
  MediaCaps media;

  // Throws Error(kInvalidArgument) naming the key for values out of range and unknown keys.
  static ServingOptions parse(const Json& model_kwargs, const Cosmos3Config& config);
};

}  // namespace mstar::cosmos3

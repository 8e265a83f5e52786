#pragma once

#include <string>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/server/http/message.h"
#include "mstar/server/media_access.h"

namespace mstar {

// A request for images, a video or a transcription, from JSON or from a form.
struct MediaRequest {
  ModelRequest request;  // one user message: the media, then the prompt
  std::string model;
  std::string response_format;       // "" when absent
  std::string output_format;         // of files: "png", "mp4"; "" when absent
  int64_t output_compression = 100;  // of lossy ones: 0 to 100, 100 keeps most
  int64_t num_choices = 1;
  bool stream = false;
};

// Which fields carry the prompt and the media of a route.
struct MediaFields {
  std::string_view prompt = "prompt";
  bool needs_prompt = true;
  std::vector<std::string_view> media;  // uploads, or URIs that MediaAccess allows
  Modality output = Modality::kImage;
  int64_t max_choices = 1;
};

// Fields that are not those go to the model's table; "size": "WxH" becomes its width and height
// where it has no size of its own, and "auto" is absent. Throws Error naming the field.
MediaRequest parse_media_request(const HttpRequest& http,
                                 const ModelDescription& model,
                                 const MediaAccess& media,
                                 const MediaFields& fields);

}  // namespace mstar

#include "mstar/server/openai/video_stream.h"

namespace mstar {

void VideoStreamAnswer::chunk(size_t, OutputChunk chunk) {
  if (chunk.modality != Modality::kVideo || chunk.data.empty()) {
    return;
  }
  if (!started_) {
    started_ = true;
    writer().start(200, {{"Content-Type", "video/mp4"}, {"Cache-Control", "no-cache"}});
  }
  writer().write(chunk.data);
}

void VideoStreamAnswer::done(size_t, const Completion&) {}

void VideoStreamAnswer::all_done() {
  if (!started_) {
    throw Error(ErrorCode::kInternal, "[videos] the model made no video");
  }
  writer().finish();
}

void VideoStreamAnswer::failed(const Error& error) {
  if (started_) {
    writer().abort();
  } else {
    writer().send(error_response(error));
  }
}

bool wants_video_stream(const ModelRequest& request) {
  const Json* streams = request.parameters.find("stream_video");
  return streams != nullptr && streams->is_bool() && streams->get_bool();
}

void prefer_mp4(const ModelDescription& model, ModelRequest& request) {
  if (model.parameters.find("video_format") != nullptr &&
      !request.parameters.contains("video_format")) {
    request.parameters.set("video_format", "mp4");
  }
}

}  // namespace mstar

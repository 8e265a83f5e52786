#pragma once

#include <memory>
#include <string_view>

#include "mstar/server/answer.h"

namespace mstar {

// Answers with a film that is sent while it is made: 200 with the first bytes, then what comes. A
// failure before them is a document; one after them cuts the connection, so that nobody takes half
// a film for a whole one. A client that reads slowly holds its own request back.
class VideoStreamAnswer final : public Answer {
 public:
  using Answer::Answer;

 protected:
  void chunk(size_t index, OutputChunk chunk) override;
  void done(size_t index, const Completion& completion) override;
  void all_done() override;
  void failed(const Error& error) override;

 private:
  bool started_ = false;
};

// Whether the request asks for its video in pieces ("stream_video").
bool wants_video_stream(const ModelRequest& request);

// Asks for MP4 where the model has a choice ("video_format") and the client made none.
void prefer_mp4(const ModelDescription& model, ModelRequest& request);

}  // namespace mstar

// What a generation's walks emit, as a client gets it: PNG, MP4, PCM, actions. One request.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/media/video.h"
#include "mstar/models/cosmos3/gen_request.h"

namespace mstar::cosmos3 {

// How videos are handed out.
struct VideoOutput {
  bool as_mp4 = true;         // else bare 8-bit RGB frames one after the other
  bool streams = false;       // a piece for every emission of frames, else everything at the end
  int64_t sampling_rate = 0;  // of the checkpoint's sound
  int64_t num_channels = 0;
};

// Chunks by modality. All metadata hold format and seed.
//   image   a PNG each; format "png", width, height
//   video   MP4 (H.264, with the sound beside it as AAC where the walk makes some); format "mp4",
//           width, height, num_frames, fps, seconds, has_sound. Or format "rgb24". A streamed
//           video is a fragmented MP4, or frames, in pieces: metadata tell of each piece, with
//           first_frame.
//   audio   interleaved 16-bit little-endian samples; format "pcm16", sample_rate, num_channels
//   action  f32 little-endian, row-major; format "f32", shape
class GenOutputStream : public OutputStream {
 public:
  // `wanted`: modalities the client asked for; others are not handed out by themselves.
  GenOutputStream(GenRequestPtr request, std::vector<Modality> wanted, const VideoOutput& video);

  std::vector<OutputChunk> write(Modality modality,
                                 std::string_view edge,
                                 const TensorList& tensors) override;

  std::vector<OutputChunk> finish() override;

 private:
  bool wants(Modality modality) const;
  OutputChunk chunk_of(Modality modality) const;
  void write_images(const Tensor& frames, std::vector<OutputChunk>& chunks) const;
  void write_frames(const Tensor& frames, std::vector<OutputChunk>& chunks);
  void write_sound(const Tensor& samples, std::vector<OutputChunk>& chunks);
  void start_video(const Tensor& frames);
  // The bytes of frames [first, end) so far.
  OutputChunk video_chunk(int64_t first, std::string data) const;

  GenRequestPtr request_;
  const std::vector<Modality> wanted_;
  const VideoOutput video_;
  std::optional<VideoWriter> writer_;  // made with the first frames
  std::vector<AudioClip> sound_;       // that came before them
  std::string raw_;                    // frames, when neither MP4 nor streamed
  int64_t num_frames_ = 0;
  int64_t height_ = 0;
  int64_t width_ = 0;
};

// A conversation's text, then what is generated from it. One request.
class TextAndMediaStream : public OutputStream {
 public:
  TextAndMediaStream(std::unique_ptr<OutputStream> text, std::unique_ptr<OutputStream> media)
      : text_(std::move(text)), media_(std::move(media)) {}

  std::vector<OutputChunk> write(Modality modality,
                                 std::string_view edge,
                                 const TensorList& tensors) override {
    return (modality == Modality::kText ? text_ : media_)->write(modality, edge, tensors);
  }

  std::vector<OutputChunk> finish() override {
    std::vector<OutputChunk> chunks = text_->finish();
    for (OutputChunk& chunk : media_->finish()) {
      chunks.push_back(std::move(chunk));
    }
    return chunks;
  }

 private:
  std::unique_ptr<OutputStream> text_;
  std::unique_ptr<OutputStream> media_;
};

}  // namespace mstar::cosmos3

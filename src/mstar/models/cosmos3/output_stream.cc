#include "mstar/models/cosmos3/output_stream.h"

#include <algorithm>
#include <utility>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/image.h"

namespace mstar::cosmos3 {

namespace {

std::string bytes_of(const Tensor& tensor) {
  const Tensor dense = tensor.is_contiguous() ? tensor : tensor.copy();
  return std::string(reinterpret_cast<const char*>(dense.bytes()),
                     static_cast<size_t>(dense.size_bytes()));
}

}  // namespace

GenOutputStream::GenOutputStream(GenRequestPtr request,
                                 std::vector<Modality> wanted,
                                 const VideoOutput& video)
    : request_(std::move(request)), wanted_(std::move(wanted)), video_(video) {}

bool GenOutputStream::wants(Modality modality) const {
  return std::ranges::find(wanted_, modality) != wanted_.end();
}

OutputChunk GenOutputStream::chunk_of(Modality modality) const {
  OutputChunk chunk;
  chunk.modality = modality;
  chunk.metadata.set("seed", request_->seed);
  return chunk;
}

void GenOutputStream::write_images(const Tensor& frames, std::vector<OutputChunk>& chunks) const {
  for (int64_t frame = 0; frame < frames.dim(0); ++frame) {
    OutputChunk& chunk = chunks.emplace_back(chunk_of(Modality::kImage));
    chunk.data = encode_png(frames.select(0, frame));
    chunk.metadata.set("format", "png");
    chunk.metadata.set("height", frames.dim(1));
    chunk.metadata.set("width", frames.dim(2));
  }
}

void GenOutputStream::start_video(const Tensor& frames) {
  height_ = frames.dim(1);
  width_ = frames.dim(2);
  if (!video_.as_mp4) {
    return;
  }
  const bool has_sound = request_->plan.layout.num_sound > 0;
  writer_.emplace(VideoOptions{.width = width_,
                               .height = height_,
                               .fps = request_->fps,
                               .sample_rate = has_sound ? video_.sampling_rate : 0,
                               .num_channels = has_sound ? video_.num_channels : 0,
                               .fragmented = video_.streams});
  for (const AudioClip& clip : std::exchange(sound_, {})) {
    writer_->add_sound(clip);
  }
}

void GenOutputStream::write_frames(const Tensor& frames, std::vector<OutputChunk>& chunks) {
  if (!wants(Modality::kVideo)) {
    return;
  }
  if (num_frames_ == 0) {
    start_video(frames);
  }
  const int64_t first = std::exchange(num_frames_, num_frames_ + frames.dim(0));
  std::string piece;
  if (writer_) {
    writer_->add_frames(frames.is_contiguous() ? frames : frames.copy());
    piece = writer_->take();
  } else if (video_.streams) {
    piece = bytes_of(frames);
  } else {
    raw_ += bytes_of(frames);
  }
  if (!piece.empty()) {
    chunks.push_back(video_chunk(first, std::move(piece)));
  }
}

OutputChunk GenOutputStream::video_chunk(int64_t first, std::string data) const {
  OutputChunk chunk = chunk_of(Modality::kVideo);
  chunk.data = std::move(data);
  Json& metadata = chunk.metadata;
  const int64_t count = num_frames_ - first;
  metadata.set("format", video_.as_mp4 ? "mp4" : "rgb24");
  metadata.set("height", height_);
  metadata.set("width", width_);
  metadata.set("num_frames", count);
  metadata.set("fps", request_->fps);
  metadata.set("seconds", static_cast<double>(count) / request_->fps);
  if (video_.streams) {
    metadata.set("first_frame", first);
  }
  if (video_.as_mp4) {
    metadata.set("has_sound", request_->plan.layout.num_sound > 0);
  }
  return chunk;
}

void GenOutputStream::write_sound(const Tensor& samples, std::vector<OutputChunk>& chunks) {
  const std::string pcm = bytes_of(samples);
  if (wants(Modality::kAudio)) {
    OutputChunk& chunk = chunks.emplace_back(chunk_of(Modality::kAudio));
    chunk.data = pcm;
    chunk.metadata.set("format", "pcm16");
    chunk.metadata.set("sample_rate", video_.sampling_rate);
    chunk.metadata.set("num_channels", samples.dim(1));
  }
  if (wants(Modality::kVideo) && video_.as_mp4) {
    const AudioClip clip = from_pcm16(pcm, video_.sampling_rate, samples.dim(1));
    if (writer_) {
      writer_->add_sound(clip);
    } else {
      sound_.push_back(clip);
    }
  }
}

std::vector<OutputChunk> GenOutputStream::write(Modality modality,
                                                std::string_view,
                                                const TensorList& tensors) {
  std::vector<OutputChunk> chunks;
  for (const Tensor& tensor : tensors) {
    switch (modality) {
      case Modality::kImage: write_images(tensor, chunks); break;
      case Modality::kVideo: write_frames(tensor, chunks); break;
      case Modality::kAudio: write_sound(tensor, chunks); break;
      case Modality::kAction: {
        OutputChunk& chunk = chunks.emplace_back(chunk_of(modality));
        chunk.data = bytes_of(tensor);
        chunk.metadata.set("format", "f32");
        chunk.metadata.set("shape", Json(Json::Array{tensor.dim(0), tensor.dim(1)}));
        break;
      }
      default:
        throw Error(ErrorCode::kInternal,
                    str_cat("[cosmos3] nothing is known of outputs of kind ", to_string(modality)));
    }
  }
  return chunks;
}

std::vector<OutputChunk> GenOutputStream::finish() {
  std::vector<OutputChunk> chunks;
  if (num_frames_ == 0) {
    return chunks;
  }
  std::string rest = writer_ ? writer_->finish() : std::exchange(raw_, {});
  if (!rest.empty()) {
    chunks.push_back(video_chunk(video_.streams ? num_frames_ : 0, std::move(rest)));
  }
  return chunks;
}

}  // namespace mstar::cosmos3

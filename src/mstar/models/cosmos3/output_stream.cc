#include "mstar/models/cosmos3/output_stream.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/png.h"

namespace mstar::cosmos3 {

namespace {

std::string bytes_of(const Tensor& tensor) {
  const Tensor dense = tensor.is_contiguous() ? tensor : tensor.copy();
  return std::string(reinterpret_cast<const char*>(dense.bytes()),
                     static_cast<size_t>(dense.size_bytes()));
}

}  // namespace

OutputChunk GenOutputStream::chunk_of(Modality modality, const Tensor& tensor) const {
  OutputChunk chunk;
  chunk.modality = modality;
  Json& metadata = chunk.metadata;
  switch (modality) {
    case Modality::kVideo:
      chunk.data = bytes_of(tensor);
      metadata.set("format", "rgb24");
      metadata.set("num_frames", tensor.dim(0));
      metadata.set("height", tensor.dim(1));
      metadata.set("width", tensor.dim(2));
      metadata.set("fps", request_->fps);
      break;
    case Modality::kAudio:
      chunk.data = bytes_of(tensor);
      metadata.set("format", "pcm16");
      metadata.set("sampling_rate", sampling_rate_);
      metadata.set("channels", tensor.dim(1));
      break;
    case Modality::kAction:
      chunk.data = bytes_of(tensor);
      metadata.set("format", "f32");
      metadata.set("shape", Json(Json::Array{tensor.dim(0), tensor.dim(1)}));
      break;
    default:
      throw Error(ErrorCode::kInternal,
                  str_cat("[cosmos3] nothing is known of outputs of kind ", to_string(modality)));
  }
  return chunk;
}

std::vector<OutputChunk> GenOutputStream::write(Modality modality,
                                                std::string_view,
                                                const TensorList& tensors) {
  std::vector<OutputChunk> chunks;
  for (const Tensor& tensor : tensors) {
    if (modality != Modality::kImage) {
      chunks.push_back(chunk_of(modality, tensor));
    } else {
      for (int64_t frame = 0; frame < tensor.dim(0); ++frame) {
        OutputChunk& chunk = chunks.emplace_back();
        chunk.modality = modality;
        chunk.data = encode_png(tensor.select(0, frame));
        chunk.metadata.set("format", "png");
        chunk.metadata.set("height", tensor.dim(1));
        chunk.metadata.set("width", tensor.dim(2));
      }
    }
  }
  for (OutputChunk& chunk : chunks) {
    chunk.metadata.set("seed", request_->seed);
  }
  return chunks;
}

}  // namespace mstar::cosmos3

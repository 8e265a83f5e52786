// What a generation's walks emit, as a client gets it: PNG, frames, PCM, actions. One request.
#pragma once

#include <string_view>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/models/cosmos3/gen_request.h"

namespace mstar::cosmos3 {

// Chunks by modality, each whole:
//   image   PNG; metadata format "png", width, height, seed
//   video   8-bit RGB frames one after the other; format "rgb24", width, height, num_frames, fps,
//           seed. The program that answers the client wraps them in a container.
//   audio   interleaved 16-bit little-endian samples; format "pcm16", sampling_rate, channels
//   action  f32 little-endian, row-major; format "f32", shape
class GenOutputStream : public OutputStream {
 public:
  GenOutputStream(GenRequestPtr request, int64_t sampling_rate)
      : request_(std::move(request)), sampling_rate_(sampling_rate) {}

  std::vector<OutputChunk> write(Modality modality,
                                 std::string_view edge,
                                 const TensorList& tensors) override;

  std::vector<OutputChunk> finish() override { return {}; }

 private:
  OutputChunk chunk_of(Modality modality, const Tensor& tensor) const;

  GenRequestPtr request_;
  int64_t sampling_rate_;
};

}  // namespace mstar::cosmos3

// The nodes beside the transformer: conditioning pixels to latents, latents to pixels, sound
// latents to a waveform. They keep nothing of a request between steps. Executor thread.
#pragma once

#include <memory>
#include <string_view>

#include "mstar/engine/submodule.h"
#include "mstar/models/cosmos3/conditioning.h"
#include "mstar/models/cosmos3/gen_request.h"
#include "mstar/models/cosmos3/sound.h"
#include "mstar/models/cosmos3/vae.h"

namespace mstar::cosmos3 {

// image_inputs or video_inputs [frames, h, w, 3] u8 -> cond_latents [z_dim, latent frames, h, w]
// f32: clean frames in their places, zeros elsewhere.
class Cosmos3VAEEncoderSubmodule : public NodeSubmodule {
 public:
  Cosmos3VAEEncoderSubmodule(std::unique_ptr<VaeEncoder> vae, ConditioningResize resize)
      : vae_(std::move(vae)), resize_(resize) {}

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override;

  NamedTensors forward(std::string_view graph_walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override;

 private:
  std::unique_ptr<VaeEncoder> vae_;
  ConditioningResize resize_;
};

// latents -> image_output or video_output [frames, height, width, 3] u8.
class Cosmos3VAEDecoderSubmodule : public NodeSubmodule {
 public:
  explicit Cosmos3VAEDecoderSubmodule(std::shared_ptr<const VaeDecoder> vae)
      : vae_(std::move(vae)) {}

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override;

  NamedTensors forward(std::string_view graph_walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override;

 private:
  std::shared_ptr<const VaeDecoder> vae_;
};

// sound_latents [channels, frames] -> audio_output [samples, channels] i16, of the request's
// length.
class Cosmos3AudioDecoderSubmodule : public NodeSubmodule {
 public:
  explicit Cosmos3AudioDecoderSubmodule(std::unique_ptr<SoundDecoder> sound_tokenizer)
      : sound_tokenizer_(std::move(sound_tokenizer)) {}

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override;

  NamedTensors forward(std::string_view graph_walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override;

 private:
  std::unique_ptr<SoundDecoder> sound_tokenizer_;
};

// Encoded frames [z, t, h, w] in the places of `layout`'s clean frames, zeros elsewhere.
Tensor place_anchor(const Tensor& encoded, const GenLayout& layout);

// Of a client's frames [n, h, w, 3] those that are encoded: `count` from the start or the end, the
// last one repeated when there are too few.
Tensor choose_frames(const Tensor& frames, int64_t count, bool keep_last);

}  // namespace mstar::cosmos3

// The streaming decoder of videos that are made in windows: a partition of its own, one chunk a
// finished window. Executor thread.
#pragma once

#include <memory>

#include "mstar/engine/submodule.h"
#include "mstar/models/cosmos3/gen_request.h"
#include "mstar/models/cosmos3/vae.h"
#include "mstar/models/cosmos3/window_sessions.h"

namespace mstar::cosmos3 {

// window_latents [channels, frames, h, w] f32 (new frames alone) -> video_output [pixel frames,
// height, width, 3] u8. The decoder's causal cache is kept from window to window, so the frames are
// those of the whole video decoded at once. Latent frames beyond what was asked for, which only
// fill the last window, are not decoded. The stream's end brings an empty chunk, which makes
// nothing.
//
// With a session the end of the video is kept once its last frame is there.
class Cosmos3VAEDecoderARSubmodule : public NodeSubmodule {
 public:
  Cosmos3VAEDecoderARSubmodule(std::shared_ptr<const VaeDecoder> vae,
                               std::shared_ptr<WindowSessions> sessions)
      : vae_(std::move(vae)), sessions_(std::move(sessions)) {}

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override;

  NamedTensors forward(std::string_view graph_walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override;

 private:
  // Where one request's video stands.
  struct Progress {
    VaeCache cache;
    int64_t num_units = 0;   // latent frames decoded
    int64_t num_frames = 0;  // pixel frames made
    Tensor tail;             // with a session: the last latent frames, like its `latents`
  };

  Progress& progress(RequestHandle request, const WindowPlan& windows);
  void store(const WindowPlan& windows, Progress& at) const;

  std::shared_ptr<const VaeDecoder> vae_;
  std::shared_ptr<WindowSessions> sessions_;
};

}  // namespace mstar::cosmos3

// The "vision_encoder" node: a conversation's pictures and clips to rows of the reasoner's text
// space. Keeps nothing of a request. Executor thread.
//   pixel_values [patches, patch_dim] u8, all media one after the other
//   vision_grid_thw [media, 3] i32: frames, patch rows and patch columns of each
//   -> vision_embeds [patches / merge_size^2, hidden_size] of the activations' type, in prompt
//      order
#pragma once

#include <memory>
#include <string_view>

#include "mstar/engine/submodule.h"
#include "mstar/models/cosmos3/vision_encoder.h"

namespace mstar::cosmos3 {

class Cosmos3VisionEncoderSubmodule : public NodeSubmodule {
 public:
  // `vision_model` is loaded, not finalized: its weights are read and packed, as `options` say,
  // with the first picture. A server that is asked about text only never holds them.
  Cosmos3VisionEncoderSubmodule(std::unique_ptr<VisionEncoder> vision_model,
                                const FinalizeOptions& options,
                                DType activation_dtype)
      : vision_model_(std::move(vision_model)),
        options_(options),
        activation_dtype_(activation_dtype) {}

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override;

  NamedTensors forward(std::string_view graph_walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override;

  bool has_weights() const { return has_weights_; }

 private:
  std::unique_ptr<VisionEncoder> vision_model_;
  FinalizeOptions options_;
  DType activation_dtype_;
  bool has_weights_ = false;
};

}  // namespace mstar::cosmos3

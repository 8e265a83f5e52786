#include "mstar/models/cosmos3/vision_submodule.h"

#include <vector>

#include "mstar/base/str_cat.h"
#include "mstar/models/cosmos3/pipeline.h"

namespace mstar::cosmos3 {

std::unique_ptr<NodeInputs> Cosmos3VisionEncoderSubmodule::prepare_inputs(
    std::string_view,
    const CurrentForwardPassInfo&,
    const NamedTensors& inputs,
    const PrepareContext&) {
  auto prepared = std::make_unique<NodeInputs>();
  prepared->tensor_inputs = inputs;
  return prepared;
}

NamedTensors Cosmos3VisionEncoderSubmodule::forward(std::string_view graph_walk,
                                                    const ModelInputsFromEngine& engine_inputs,
                                                    ForwardArgs& args) {
  if (!has_weights_) {
    vision_model_->finalize(options_);
    has_weights_ = true;
  }
  const CurrentForwardPassInfo& info = engine_inputs.single_request_info();
  const Tensor& grids = args.tensors.tensor("vision_grid_thw");
  std::vector<PatchGrid> media;
  for (int64_t row = 0; row < grids.dim(0); ++row) {
    const int32_t* sizes = grids.data<int32_t>() + 3 * row;
    media.push_back({.frames = sizes[0], .rows = sizes[1], .columns = sizes[2]});
  }
  const Tensor rows = vision_model_->encode(
      *engine_inputs.stream,
      args.tensors.tensor("pixel_values"),
      media,
      [&info] { return info.is_cancelled(); },
      activation_dtype_);
  expect_finite(*engine_inputs.stream, rows, str_cat("vision_encoder, ", graph_walk));
  NamedTensors outputs;
  outputs.set("vision_embeds", rows);
  return outputs;
}

}  // namespace mstar::cosmos3

// The reasoner's eyes: a SigLIP2 vision tower (patches to rows, attention within a frame) and the
// projector that turns every block of patches into one row of the text tower's width.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"
#include "mstar/components/linear.h"
#include "mstar/components/norm.h"
#include "mstar/models/cosmos3/reasoner_config.h"
#include "mstar/models/cosmos3/vision_input.h"

namespace mstar::cosmos3 {

// One pre-norm layer of the tower under the checkpoint's names.
class VisionLayer : public Module {
 public:
  explicit VisionLayer(const VisionConfig& config);

  // rows [frames * patches a frame, hidden_size]; `indptr` [frames + 1] i32 cuts them into frames.
  Tensor forward(Stream& stream, const Tensor& rows, const Tensor& indptr) const;

 private:
  Tensor heads(Stream& stream, const Linear& projection, const Tensor& rows) const;

  VisionConfig config_;
  LayerNorm layer_norm1_;
  LayerNorm layer_norm2_;
  Linear q_;
  Linear k_;
  Linear v_;
  Linear out_;
  Linear fc1_;
  Linear fc2_;
};

// const after finalize(): any number of threads may encode at the same time.
class VisionEncoder : public Module {
 public:
  explicit VisionEncoder(const VisionConfig& config);

  // Takes the tensors of vision_encoder/, by name and shape; their bytes are read by finalize().
  // Throws Error(kInvalidArgument) listing what is missing, unknown or mis-shaped.
  void load(const CheckpointReader& reader);

  const VisionConfig& config() const { return config_; }

  // Normalized patches [frames * rows * columns, patch_dim] f32 or bf16 in block order -> the
  // tower's rows [patches, hidden_size] of that type in the same order, after the last norm.
  Tensor tower(Stream& stream, const Tensor& patches, const PatchGrid& grid) const;

  // Those rows -> [patches / merge_size^2, out_hidden_size] of their type, one a block.
  Tensor project(Stream& stream, const Tensor& rows) const;

  // Patches of several pictures and clips one after the other, as to_patches() makes them ([all
  // patches, patch_dim] u8) -> their rows of text space in `dtype`, in order. Works on a few frames
  // at a time, so memory follows the largest frame; looks at `cancelled` in between.
  Tensor encode(Stream& stream,
                const Tensor& patches,
                std::span<const PatchGrid> grids,
                const std::function<bool()>& cancelled,
                DType dtype = DType::kF32) const;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  Tensor position_rows(Stream& stream, int64_t rows, int64_t columns) const;
  Tensor tower_rows(Stream& stream,
                    const Tensor& patches,
                    const PatchGrid& grid,
                    const Tensor& positions) const;

  VisionConfig config_;
  Linear patch_embedding_;
  Parameter* position_parameter_;
  Tensor position_embedding_;  // [1, side, side, hidden_size] f32
  std::vector<std::unique_ptr<VisionLayer>> layers_;
  LayerNorm post_layernorm_;
  LayerNorm projector_norm_;
  Linear linear_fc1_;
  Linear linear_fc2_;
};

}  // namespace mstar::cosmos3

#include "mstar/models/cosmos3/vision_encoder.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/load.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/attention.h"
#include "mstar/kernels/ops/embedding.h"
#include "mstar/kernels/ops/resize.h"

namespace mstar::cosmos3 {

namespace {

// Patches that are worked on together, unless one frame has more.
constexpr int64_t kMostPatches = 4096;

Epilogue with_activation(Activation activation) {
  Epilogue epilogue;
  epilogue.activation = activation;
  return epilogue;
}

Epilogue with_residual(const Tensor& residual) {
  Epilogue epilogue;
  epilogue.residual = residual;
  return epilogue;
}

}  // namespace

VisionLayer::VisionLayer(const VisionConfig& config)
    : config_(config),
      layer_norm1_(config.hidden_size, config.layer_norm_eps),
      layer_norm2_(config.hidden_size, config.layer_norm_eps),
      q_(config.hidden_size, config.hidden_size, true),
      k_(config.hidden_size, config.hidden_size, true),
      v_(config.hidden_size, config.hidden_size, true),
      out_(config.hidden_size, config.hidden_size, true),
      fc1_(config.hidden_size, config.intermediate_size, true),
      fc2_(config.intermediate_size, config.hidden_size, true) {
  add_module("layer_norm1", layer_norm1_);
  add_module("layer_norm2", layer_norm2_);
  add_module("self_attn.q_proj", q_);
  add_module("self_attn.k_proj", k_);
  add_module("self_attn.v_proj", v_);
  add_module("self_attn.out_proj", out_);
  add_module("mlp.fc1", fc1_);
  add_module("mlp.fc2", fc2_);
}

Tensor VisionLayer::heads(Stream& stream, const Linear& projection, const Tensor& rows) const {
  const int64_t count = config_.num_attention_heads;
  return projection.forward(stream, rows).view({rows.dim(0), count, config_.hidden_size / count});
}

Tensor VisionLayer::forward(Stream& stream, const Tensor& rows, const Tensor& indptr) const {
  const Tensor normed = layer_norm1_.forward(stream, rows);
  const Tensor q = heads(stream, q_, normed);
  Tensor attended = stream.empty(q.shape(), q.dtype());
  AttentionOptions options;
  options.causal = false;
  ops::ragged_attention(stream,
                        q,
                        heads(stream, k_, normed),
                        heads(stream, v_, normed),
                        indptr,
                        indptr,
                        options,
                        attended);
  const Tensor x = out_.forward(stream, attended.view(rows.shape()), with_residual(rows));
  const Tensor hidden =
      fc1_.forward(stream, layer_norm2_.forward(stream, x), with_activation(config_.hidden_act));
  return fc2_.forward(stream, hidden, with_residual(x));
}

VisionEncoder::VisionEncoder(const VisionConfig& config)
    : config_(config),
      patch_embedding_(config.patch_dim(), config.hidden_size, true),
      post_layernorm_(config.hidden_size, config.layer_norm_eps),
      projector_norm_(config.hidden_size, 1e-6F),
      linear_fc1_(config.hidden_size * config.spatial_merge_size * config.spatial_merge_size,
                  config.merger_intermediate_size,
                  true),
      linear_fc2_(config.merger_intermediate_size, config.out_hidden_size, true) {
  add_module("visual.embeddings.patch_embedding", patch_embedding_);
  position_parameter_ = &add_parameter("visual.embeddings.position_embedding.weight",
                                       {config.num_patches, config.hidden_size},
                                       ParameterKind::kFloating);
  for (int64_t index = 0; index < config.num_hidden_layers; ++index) {
    layers_.push_back(std::make_unique<VisionLayer>(config));
    add_module(str_cat("visual.encoder.layers.", index), *layers_.back());
  }
  add_module("visual.post_layernorm", post_layernorm_);
  add_module("projector.norm", projector_norm_);
  add_module("projector.linear_fc1", linear_fc1_);
  add_module("projector.linear_fc2", linear_fc2_);
}

void VisionEncoder::load(const CheckpointReader& reader) {
  NameMapping mapping;
  mapping.rename = {{"^model", ""}};
  load_strictly(reader, load_targets(), mapping);
}

void VisionEncoder::pack(const FinalizeOptions&) {
  const int64_t side = config_.table_side();
  position_embedding_ =
      position_parameter_->join().to(DType::kF32).view({1, side, side, config_.hidden_size});
  position_parameter_->release();
}

// The position table resized to one frame's grid, [rows * columns, hidden_size] in block order.
Tensor VisionEncoder::position_rows(Stream& stream, int64_t rows, int64_t columns) const {
  Tensor resized = stream.empty({1, rows, columns, config_.hidden_size}, DType::kF32);
  ops::resize(stream, position_embedding_, ResizeFilter::kBilinear, true, resized);
  const std::vector<int32_t> order = block_order(rows, columns, config_.spatial_merge_size);
  Tensor out = stream.empty({rows * columns, config_.hidden_size}, DType::kF32);
  ops::gather_rows(stream,
                   resized.view({rows * columns, config_.hidden_size}),
                   Tensor::from(order, {rows * columns}),
                   out);
  stream.synchronize();  // the order must live until the op ran
  return out;
}

Tensor VisionEncoder::tower_rows(Stream& stream,
                                 const Tensor& patches,
                                 const PatchGrid& grid,
                                 const Tensor& positions) const {
  const int64_t frame_patches = grid.rows * grid.columns;
  std::vector<int32_t> ends{0};
  Tensor x = patch_embedding_.forward(stream, patches);
  for (int64_t frame = 0; frame < grid.frames; ++frame) {
    const int64_t end = (frame + 1) * frame_patches;
    Tensor own = x.slice(0, end - frame_patches, end);
    ops::add(stream, own, positions, own);
    ends.push_back(static_cast<int32_t>(end));
  }
  const Tensor indptr = Tensor::from(ends, {grid.frames + 1});
  for (const auto& layer : layers_) {
    x = layer->forward(stream, x, indptr);
  }
  x = post_layernorm_.forward(stream, x);
  stream.synchronize();  // indptr must live until the ops ran
  return x;
}

Tensor VisionEncoder::tower(Stream& stream, const Tensor& patches, const PatchGrid& grid) const {
  MSTAR_CHECK(patches.num_dims() == 2 && patches.dim(0) == grid.num_patches() &&
                  patches.dim(1) == config_.patch_dim(),
              patches.to_string());
  return tower_rows(stream, patches, grid, position_rows(stream, grid.rows, grid.columns));
}

Tensor VisionEncoder::project(Stream& stream, const Tensor& rows) const {
  const Tensor normed = projector_norm_.forward(stream, rows);
  const Tensor joined = normed.view({-1, linear_fc1_.in_features()});
  return linear_fc2_.forward(
      stream, linear_fc1_.forward(stream, joined, with_activation(Activation::kGelu)));
}

Tensor VisionEncoder::encode(Stream& stream,
                             const Tensor& patches,
                             std::span<const PatchGrid> grids,
                             const std::function<bool()>& cancelled,
                             DType dtype) const {
  const int64_t block = config_.spatial_merge_size * config_.spatial_merge_size;
  Tensor out = stream.empty({patches.dim(0) / block, config_.out_hidden_size}, dtype);
  int64_t next = 0;
  for (const PatchGrid& grid : grids) {
    const Tensor positions = position_rows(stream, grid.rows, grid.columns);
    const int64_t frame_patches = grid.rows * grid.columns;
    const int64_t most = std::max<int64_t>(kMostPatches / frame_patches, 1);
    for (int64_t frame = 0; frame < grid.frames; frame += most) {
      if (cancelled && cancelled()) {
        throw Error(ErrorCode::kCancelled, "[vision_encoder] the request was cancelled");
      }
      const PatchGrid part{std::min(most, grid.frames - frame), grid.rows, grid.columns};
      const int64_t end = next + part.num_patches();
      const Tensor own = normalize_patches(stream, patches.slice(0, next, end), dtype);
      const Tensor rows = project(stream, tower_rows(stream, own, part, positions));
      Tensor to = out.slice(0, next / block, end / block);
      ops::copy(stream, rows, to);
      next = end;
    }
  }
  MSTAR_CHECK(next == patches.dim(0), next, " of ", patches.to_string());
  return out;
}

}  // namespace mstar::cosmos3

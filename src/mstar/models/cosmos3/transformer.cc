#include "mstar/models/cosmos3/transformer.h"

#include <algorithm>
#include <cmath>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/load.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/models/cosmos3/elementwise.h"

namespace mstar::cosmos3 {

namespace {

constexpr int64_t kTimeFeatures = 256;

Tensor as_f32(const Tensor& x) {
  return x.dtype() == DType::kF32 ? x : x.to(DType::kF32);
}

// x in `dtype`: itself when it already is.
Tensor cast(Stream& stream, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype && x.is_contiguous()) {
    return x;
  }
  Tensor out = stream.empty(x.shape(), dtype);
  ops::copy(stream, x, out);
  return out;
}

Tensor all_ones(int64_t count) {
  Tensor mask = Tensor::empty({count}, DType::kU8);
  std::fill_n(mask.data<uint8_t>(), count, uint8_t{1});
  return mask;
}

}  // namespace

TimeEmbedder::TimeEmbedder(int64_t hidden_size)
    : linear_1_(kTimeFeatures, hidden_size, true), linear_2_(hidden_size, hidden_size, true) {
  add_module("linear_1", linear_1_);
  add_module("linear_2", linear_2_);
}

Tensor TimeEmbedder::features(const std::vector<float>& scaled) {
  const auto rows = static_cast<int64_t>(scaled.size());
  constexpr int64_t kHalf = kTimeFeatures / 2;
  const auto log_period = static_cast<float>(-std::log(10000.0));
  Tensor out = Tensor::empty({rows, kTimeFeatures}, DType::kF32);
  float* row = out.data<float>();
  for (const float time : scaled) {
    for (int64_t i = 0; i < kHalf; ++i) {
      const float exponent = log_period * static_cast<float>(i) / static_cast<float>(kHalf);
      const float angle = time * std::exp(exponent);
      row[i] = std::cos(angle);
      row[kHalf + i] = std::sin(angle);
    }
    row += kTimeFeatures;
  }
  return out;
}

Tensor TimeEmbedder::forward(Stream& stream, const Tensor& features) const {
  Epilogue silu;
  silu.activation = Activation::kSilu;
  return linear_2_.forward(stream, linear_1_.forward(stream, features, silu));
}

DomainLinear::DomainLinear(int64_t domains, int64_t in_features, int64_t out_features)
    : domains_(domains), in_features_(in_features), out_features_(out_features) {
  weight_parameter_ =
      &add_parameter("fc.weight", {domains, in_features * out_features}, ParameterKind::kFloating);
  bias_parameter_ =
      &add_parameter("bias.weight", {domains, out_features}, ParameterKind::kFloating);
}

void DomainLinear::pack(const FinalizeOptions& options) {
  const Tensor weight = weight_parameter_->join();
  const Tensor bias = as_f32(bias_parameter_->join()).copy();
  for (int64_t domain = 0; domain < domains_; ++domain) {
    // Stored as in x out; packing wants out x in.
    const Tensor own = weight.select(0, domain).copy().view({in_features_, out_features_});
    weights_.push_back(
        PackedWeight::pack(own.transpose(0, 1).copy(), options.pool, options.weight_format));
    biases_.push_back(bias.select(0, domain));
  }
  weight_parameter_->release();
  bias_parameter_->release();
}

Tensor DomainLinear::forward(Stream& stream, const Tensor& x, int64_t domain, DType dtype) const {
  MSTAR_CHECK(domain >= 0 && domain < domains_, "domain ", domain);
  const auto index = static_cast<size_t>(domain);
  Epilogue epilogue;
  epilogue.bias = biases_[index];
  return linear_rows(stream, x, weights_[index], epilogue, dtype);
}

Transformer::Transformer(const TransformerConfig& config, bool with_head)
    : config_(config),
      inv_freq_(rope_inv_freq(config.rope)),
      embed_tokens_(config.vocab_size, config.hidden_size),
      norm_(config.hidden_size, config.rms_norm_eps, false, config.norm_rounding),
      norm_moe_gen_(config.hidden_size, config.rms_norm_eps, false, config.norm_rounding),
      proj_in_(config.patch_latent_dim, config.hidden_size, true),
      proj_out_(config.hidden_size, config.patch_latent_dim, true),
      time_embedder_(config.hidden_size) {
  add_module("embed_tokens", embed_tokens_);
  for (int64_t index = 0; index < config.num_hidden_layers; ++index) {
    layers_.push_back(std::make_unique<DecoderLayer>(config, static_cast<int32_t>(index)));
    add_module(str_cat("layers.", index), *layers_.back());
  }
  add_module("norm", norm_);
  add_module("norm_moe_gen", norm_moe_gen_);
  add_module("proj_in", proj_in_);
  add_module("proj_out", proj_out_);
  add_module("time_embedder", time_embedder_);
  if (with_head) {
    lm_head_ = std::make_unique<Linear>(config.hidden_size, config.vocab_size);
    add_module("lm_head", *lm_head_);
  }
  add_heads();
}

void Transformer::add_heads() {
  const int64_t hidden = config_.hidden_size;
  if (config_.action_gen) {
    const int64_t domains = config_.num_embodiment_domains;
    action_proj_in_ = std::make_unique<DomainLinear>(domains, config_.action_dim, hidden);
    action_proj_out_ = std::make_unique<DomainLinear>(domains, hidden, config_.action_dim);
    add_module("action_proj_in", *action_proj_in_);
    add_module("action_proj_out", *action_proj_out_);
    action_modality_parameter_ =
        &add_parameter("action_modality_embed", {hidden}, ParameterKind::kFloating);
  }
  if (config_.sound_gen) {
    audio_proj_in_ = std::make_unique<Linear>(config_.sound_dim, hidden, true);
    audio_proj_out_ = std::make_unique<Linear>(hidden, config_.sound_dim, true);
    add_module("audio_proj_in", *audio_proj_in_);
    add_module("audio_proj_out", *audio_proj_out_);
    audio_modality_parameter_ =
        &add_parameter("audio_modality_embed", {hidden}, ParameterKind::kFloating);
  }
}

void Transformer::pack(const FinalizeOptions&) {
  if (action_modality_parameter_ != nullptr) {
    action_modality_embed_ = as_f32(take_vector(*action_modality_parameter_));
  }
  if (audio_modality_parameter_ != nullptr) {
    audio_modality_embed_ = as_f32(take_vector(*audio_modality_parameter_));
  }
}

void Transformer::load(const CheckpointReader& reader, const FinalizeOptions& options) {
  NameMapping mapping;
  if (lm_head_ == nullptr) {
    mapping.skip = {"^lm_head.weight$"};
  }
  load_strictly(reader, load_targets(), mapping);
  finalize(options);
  reader.release_pages();
}

FinalizeOptions Transformer::options_of_child(std::string_view name,
                                              const FinalizeOptions& options) const {
  FinalizeOptions own = options;
  const bool widely_used = options.weight_format == WeightFormat::kBF16 && name != "time_embedder";
  if (!name.starts_with("layers.") && !widely_used) {
    own.weight_format = WeightFormat::kKeep;
  }
  return own;
}

RotaryTable Transformer::rotary(Stream& stream, const Tensor& positions) const {
  const Shape shape{positions.dim(-1), config_.head_dim / 2};
  RotaryTable table{stream.empty(shape, DType::kF32), stream.empty(shape, DType::kF32)};
  ops::rope_table(stream, positions, inv_freq_, config_.rope, table.cos, table.sin);
  return table;
}

Tensor Transformer::embed_text(Stream& stream, const Tensor& ids, DType dtype) const {
  return embed_tokens_.forward(stream, ids, dtype);
}

Tensor Transformer::prefill(Stream& stream,
                            Tensor rows,
                            const RotaryTable& rotary,
                            TowerAttention& attention,
                            bool with_rows) const {
  for (size_t index = 0; index < layers_.size(); ++index) {
    const bool keep_only = !with_rows && index + 1 == layers_.size();
    rows = layers_[index]->forward_und(stream, rows, rotary, attention, keep_only);
  }
  return with_rows ? norm_.forward(stream, rows) : Tensor();
}

Tensor Transformer::logits(Stream& stream, const Tensor& rows) const {
  MSTAR_CHECK(lm_head_ != nullptr, "no language head");
  Tensor out = stream.empty({rows.dim(0), config_.vocab_size}, DType::kF32);
  lm_head_->forward_into(stream, rows, {}, out);
  return out;
}

Tensor Transformer::time_features(float timestep) const {
  return TimeEmbedder::features({timestep * config_.timestep_scale});
}

Tensor Transformer::embed_gen(Stream& stream,
                              const GenLayout& layout,
                              const GenState& state,
                              float timestep,
                              DType dtype) const {
  return embed_gen(stream,
                   layout,
                   state,
                   time_features(timestep),
                   noisy_rows(layout, config_.latent_patch_size),
                   dtype);
}

Tensor Transformer::embed_gen(Stream& stream,
                              const GenLayout& layout,
                              const GenState& state,
                              const Tensor& features,
                              const Tensor& noisy,
                              DType dtype) const {
  const int64_t patch = config_.latent_patch_size;
  const int64_t num_vision = layout.num_vision(patch);
  Tensor rows = stream.empty({layout.num_tokens(patch), config_.hidden_size}, dtype);
  Tensor tokens = stream.empty({num_vision, config_.patch_latent_dim}, dtype);
  patchify(stream, state.vision, patch, tokens);
  Tensor vision_rows = rows.slice(0, 0, num_vision);
  proj_in_.forward_into(stream, tokens, {}, vision_rows);
  int64_t next = num_vision;
  if (layout.num_sound > 0) {
    MSTAR_CHECK(audio_proj_in_ != nullptr, "no sound heads");
    const Tensor frames = cast(stream, state.sound.transpose(0, 1), dtype);
    Tensor sound_rows = rows.slice(0, next, next + layout.num_sound);
    audio_proj_in_->forward_into(stream, frames, {}, sound_rows);
    add_row_where(stream, audio_modality_embed_, all_ones(layout.num_sound), sound_rows);
    next += layout.num_sound;
  }
  if (layout.num_actions > 0) {
    MSTAR_CHECK(action_proj_in_ != nullptr, "no action heads");
    const Tensor projected =
        action_proj_in_->forward(stream, cast(stream, state.actions, dtype), layout.domain, dtype);
    Tensor action_rows = rows.slice(0, next, next + layout.num_actions);
    ops::copy(stream, projected, action_rows);
    add_row_where(stream, action_modality_embed_, all_ones(layout.num_actions), action_rows);
  }
  const Tensor time = time_embedder_.forward(stream, features);
  add_row_where(stream, time.view({config_.hidden_size}), noisy, rows);
  return rows;
}

Tensor Transformer::denoise(Stream& stream,
                            Tensor rows,
                            const RotaryTable& rotary,
                            TowerAttention& attention) const {
  for (const auto& layer : layers_) {
    rows = layer->forward_gen(stream, rows, rotary, attention);
  }
  return norm_moe_gen_.forward(stream, rows);
}

// Velocities leave in f32, as the solvers keep them, whatever the rows are.
GenState Transformer::read_velocity(Stream& stream,
                                    const GenLayout& layout,
                                    const Tensor& rows) const {
  const int64_t patch = config_.latent_patch_size;
  const int64_t num_vision = layout.num_vision(patch);
  GenState velocity;
  velocity.vision = stream.empty(
      {config_.latent_channel, layout.frames, layout.latent_height, layout.latent_width},
      DType::kF32);
  Tensor tokens = stream.empty({num_vision, config_.patch_latent_dim}, DType::kF32);
  proj_out_.forward_into(stream, rows.slice(0, 0, num_vision), {}, tokens);
  unpatchify(stream, tokens, patch, velocity.vision);
  for (int64_t frame = 0; frame < layout.frames; ++frame) {
    if (layout.clean_frames[static_cast<size_t>(frame)]) {
      Tensor clean = velocity.vision.slice(1, frame, frame + 1);
      ops::fill(stream, 0.0F, clean);
    }
  }
  int64_t next = num_vision;
  if (layout.num_sound > 0) {
    const Tensor own = rows.slice(0, next, next + layout.num_sound);
    Tensor frames = stream.empty({layout.num_sound, config_.sound_dim}, DType::kF32);
    audio_proj_out_->forward_into(stream, own, {}, frames);
    velocity.sound = cast(stream, frames.transpose(0, 1), DType::kF32);
    next += layout.num_sound;
  }
  if (layout.num_actions > 0) {
    if (layout.clean_actions) {
      velocity.actions = Tensor::zeros({layout.num_actions, config_.action_dim}, DType::kF32);
    } else {
      const Tensor own = rows.slice(0, next, next + layout.num_actions);
      velocity.actions = action_proj_out_->forward(stream, own, layout.domain, DType::kF32);
    }
  }
  return velocity;
}

}  // namespace mstar::cosmos3

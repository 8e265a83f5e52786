// The Cosmos3 transformer: text ids to kept keys and values (once a prompt), noisy latents, sound
// and actions to flow velocities (once a step and guidance branch).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"
#include "mstar/components/embedding.h"
#include "mstar/models/cosmos3/packing.h"
#include "mstar/models/cosmos3/transformer_layer.h"

namespace mstar::cosmos3 {

// What is denoised together; undefined parts are absent.
struct GenState {
  Tensor vision;   // [latent_channel, frames, latent_height, latent_width] f32
  Tensor sound;    // [sound_dim, num_sound] f32
  Tensor actions;  // [num_actions, action_dim] f32
};

// 256 features of a time step, then two layers; always f32.
class TimeEmbedder : public Module {
 public:
  explicit TimeEmbedder(int64_t hidden_size);

  // scaled [n] f32 (time steps times the model's scale) -> [n, 256]: cosines, then sines.
  static Tensor features(const std::vector<float>& scaled);

  // -> [n, hidden_size] f32
  Tensor forward(Stream& stream, const Tensor& features) const;

 private:
  Linear linear_1_;
  Linear linear_2_;
};

// A linear layer with weights of its own for every embodiment domain. Checkpoint names: fc.weight
// [domains, in * out], bias.weight [domains, out].
class DomainLinear : public Module {
 public:
  DomainLinear(int64_t domains, int64_t in_features, int64_t out_features);

  // x [rows, in_features] -> [rows, out_features] of `dtype`. `domain` must exist (check).
  Tensor forward(Stream& stream, const Tensor& x, int64_t domain, DType dtype) const;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  int64_t domains_;
  int64_t in_features_;
  int64_t out_features_;
  Parameter* weight_parameter_;
  Parameter* bias_parameter_;
  std::vector<PackedWeight> weights_;
  std::vector<Tensor> biases_;
};

// const after load(): any number of threads may run prefill() and denoise() at the same time.
class Transformer : public Module {
 public:
  // `with_head`: also the language head, which only a reasoner reads.
  explicit Transformer(const TransformerConfig& config, bool with_head = false);

  // Fills and packs the weights of transformer/. Throws Error(kInvalidArgument) listing what is
  // missing, unknown or mis-shaped.
  void load(const CheckpointReader& reader, const FinalizeOptions& options);

  const TransformerConfig& config() const { return config_; }

  RotaryTable rotary(Stream& stream, const Tensor& positions) const;

  // ids [tokens] -> [tokens, hidden_size] of `dtype`.
  Tensor embed_text(Stream& stream, const Tensor& ids, DType dtype) const;

  // The understanding tower over embedded text (one or several prompts, as `attention` cuts
  // them). `with_rows`: also computes the final normed rows; else keys and values only.
  Tensor prefill(Stream& stream,
                 Tensor rows,
                 const RotaryTable& rotary,
                 TowerAttention& attention,
                 bool with_rows) const;

  // Normed rows of the understanding tower [rows, hidden_size] -> logits [rows, vocab_size] f32.
  // Only with the head (check).
  Tensor logits(Stream& stream, const Tensor& rows) const;

  // Generation rows of one request at one time step, [layout tokens, hidden_size] of `dtype`.
  // `timestep` before the model's scale.
  Tensor embed_gen(Stream& stream,
                   const GenLayout& layout,
                   const GenState& state,
                   float timestep,
                   DType dtype) const;

  // The same with what is made of the time step and the layout given, as a captured step needs it:
  // time_features() and noisy_rows().
  Tensor embed_gen(Stream& stream,
                   const GenLayout& layout,
                   const GenState& state,
                   const Tensor& features,
                   const Tensor& noisy,
                   DType dtype) const;

  // [1, 256] f32 of a time step before the model's scale.
  Tensor time_features(float timestep) const;

  // The generation tower: rows after the last layer, normed.
  Tensor denoise(Stream& stream,
                 Tensor rows,
                 const RotaryTable& rotary,
                 TowerAttention& attention) const;

  // Velocities of one request's rows; zero on clean frames and clean actions.
  GenState read_velocity(Stream& stream, const GenLayout& layout, const Tensor& rows) const;

 protected:
  void pack(const FinalizeOptions& options) override;

  // The two towers may be quantized; embeddings and heads keep the type they came in, or become
  // bf16 with everything else. The time embedding is f32 always.
  FinalizeOptions options_of_child(std::string_view name,
                                   const FinalizeOptions& options) const override;

 private:
  void add_heads();

  TransformerConfig config_;
  Tensor inv_freq_;
  Embedding embed_tokens_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  RMSNorm norm_;
  RMSNorm norm_moe_gen_;
  std::unique_ptr<Linear> lm_head_;  // null: a generator alone
  Linear proj_in_;
  Linear proj_out_;
  TimeEmbedder time_embedder_;
  std::unique_ptr<DomainLinear> action_proj_in_;  // null: no action heads
  std::unique_ptr<DomainLinear> action_proj_out_;
  std::unique_ptr<Linear> audio_proj_in_;  // null: no sound heads
  std::unique_ptr<Linear> audio_proj_out_;
  Parameter* action_modality_parameter_ = nullptr;
  Parameter* audio_modality_parameter_ = nullptr;
  Tensor action_modality_embed_;  // [hidden_size] f32
  Tensor audio_modality_embed_;
};

}  // namespace mstar::cosmos3

// What tells one Cosmos3 checkpoint from another, read from the checkpoint folder's own files.
// Architecture fields have no default: a missing one is an error naming file and field. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/norm.h"
#include "mstar/kernels/ops/rope.h"
#include "mstar/models/cosmos3/reasoner_config.h"

namespace mstar::cosmos3 {

// transformer/config.json: the two towers and the heads.
struct TransformerConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  Activation hidden_act = Activation::kSilu;
  bool gated_mlp = false;  // silu: down(silu(gate) * up); relu2: down(relu2(up))
  float rms_norm_eps = 0.0F;
  RmsNormRounding norm_rounding = RmsNormRounding::kOnce;
  bool qk_norm_for_text = false;
  bool use_und_k_norm_for_gen = false;
  RopeConfig rope;

  int64_t latent_channel = 0;
  int64_t latent_patch_size = 0;
  int64_t patch_latent_dim = 0;
  float timestep_scale = 0.0F;
  double base_fps = 0.0;
  bool enable_fps_modulation = false;
  int64_t temporal_modality_margin = 0;  // positions between text and media

  bool sound_gen = false;
  int64_t sound_dim = 0;
  double sound_latent_fps = 0.0;
  bool action_gen = false;
  int64_t action_dim = 0;
  int64_t num_embodiment_domains = 0;

  std::string backbone_type;  // empty on Nano and Super

  bool is_edge() const { return backbone_type == "cosmos3_edge_nemotron_dense"; }

  static TransformerConfig parse(const Json& json, const std::string& where);
};

// vae/config.json: AutoencoderKLWan with residual blocks.
struct VaeConfig {
  int64_t base_dim = 0;
  int64_t decoder_base_dim = 0;
  int64_t z_dim = 0;
  std::vector<int64_t> dim_mult;
  int64_t num_res_blocks = 0;
  std::vector<bool> temperal_downsample;  // the checkpoint's spelling
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t patch_size = 0;
  int64_t scale_factor_spatial = 0;
  int64_t scale_factor_temporal = 0;
  std::vector<float> latents_mean;  // [z_dim]
  std::vector<float> latents_std;   // [z_dim]

  static VaeConfig parse(const Json& json, const std::string& where);

  // Latent frames of `num_frames` pixel frames, and the pixel frames they decode to.
  int64_t latent_frames(int64_t num_frames) const;
  int64_t pixel_frames(int64_t num_latents) const;
};

// sound_tokenizer/config.json: the AVAE decoder.
struct SoundConfig {
  int64_t sampling_rate = 0;
  int64_t vocoder_input_dim = 0;  // latent channels
  int64_t dec_dim = 0;
  std::vector<int64_t> dec_c_mults;
  std::vector<int64_t> dec_strides;
  int64_t dec_out_channels = 0;

  static SoundConfig parse(const Json& json, const std::string& where);

  int64_t hop_size() const;  // samples of one latent frame
};

// scheduler/scheduler_config.json, of either solver.
struct SchedulerConfig {
  enum class Kind : uint8_t { kUniPC, kStochasticEuler };

  Kind kind = Kind::kUniPC;
  int64_t num_train_timesteps = 0;
  bool use_karras_sigmas = false;
  double sigma_max = 0.0;  // karras
  double sigma_min = 0.0;
  double flow_shift = 1.0;

  static SchedulerConfig parse(const Json& json, const std::string& where);
};

// A whole checkpoint folder.
struct Cosmos3Config {
  std::string folder;
  std::string model_type;  // of config.json: cosmos3_omni or cosmos3_edge
  TransformerConfig transformer;
  VaeConfig vae;
  std::optional<SoundConfig> sound;        // nothing: no sound_tokenizer folder
  std::optional<ReasonerConfig> reasoner;  // nothing: not an Edge, or no vision_encoder folder
  SchedulerConfig scheduler;
  bool use_native_flow_schedule = false;
  std::vector<double> distilled_sigmas;  // empty unless distilled

  bool is_distilled() const { return !distilled_sigmas.empty(); }

  bool can_make_sound() const { return transformer.sound_gen && sound.has_value(); }

  // Throws Error(kInvalidArgument) naming the file (or missing folder) and the field.
  static Cosmos3Config load(const std::string& folder);

  // Whether `folder` holds a Cosmos3 checkpoint.
  static bool recognizes(const std::string& folder);

  std::string transformer_folder() const { return folder + "/transformer"; }

  std::string vae_folder() const { return folder + "/vae"; }

  std::string sound_folder() const { return folder + "/sound_tokenizer"; }

  std::string vision_folder() const { return folder + "/vision_encoder"; }

  // text_tokenizer/ where it exists, else the root.
  std::string tokenizer_folder() const;

  Json to_json() const;  // for `mstar inspect`
};

// Throws Error(kInvalidArgument) naming path and reason.
Json read_json_file(const std::string& path);

}  // namespace mstar::cosmos3

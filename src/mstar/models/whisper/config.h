#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/models/whisper/features.h"

namespace mstar::whisper {

// Sizes of an encoder-decoder for speech, from its config.json. Architecture fields have no
// default: a missing one is an error.
struct WhisperConfig {
  int64_t d_model = 0;
  int64_t encoder_layers = 0;
  int64_t encoder_attention_heads = 0;
  int64_t encoder_ffn_dim = 0;
  int64_t decoder_layers = 0;
  int64_t decoder_attention_heads = 0;
  int64_t decoder_ffn_dim = 0;
  int64_t num_mel_bins = 0;
  int64_t max_source_positions = 0;  // rows that the encoder makes of one window of sound
  int64_t max_target_positions = 0;  // tokens, prompt and answer together
  int64_t vocab_size = 0;
  Activation activation_function = Activation::kGelu;
  bool scale_embedding = false;  // token embeddings times sqrt(d_model)
  bool tie_word_embeddings = true;

  // `where` starts error messages.
  static WhisperConfig from_hugging_face(const Json& json, const std::string& where);

  // For `mstar inspect`.
  Json to_json() const;

  // Spectra that the encoder reads: its second convolution halves them.
  int64_t num_frames() const { return 2 * max_source_positions; }
};

// How a checkpoint is asked: the tokens around the answer and those that never come. From
// generation_config.json, older checkpoints' config.json filling in.
struct GenerationConfig {
  int32_t decoder_start_token_id = 0;
  std::vector<int32_t> eos_token_ids;
  std::vector<int32_t> suppress_tokens;        // at no place
  std::vector<int32_t> begin_suppress_tokens;  // not as the first token
  std::map<std::string, int32_t> lang_to_id;   // "en" -> its token; empty: one language only
  std::map<std::string, int32_t> task_to_id;   // "transcribe", "translate"
  std::optional<int32_t> no_timestamps_token_id;
  std::vector<int32_t> forced_tokens;  // behind the start, where there are no languages

  // Ids outside the vocabulary are an error.
  static GenerationConfig read(const std::string& folder, const Json& config, int64_t vocab_size);
};

// What the request's sound is turned into; preprocessor_config.json, where there is one, must agree
// with the model.
LogMel::Config read_feature_config(const std::string& folder, const WhisperConfig& config);

}  // namespace mstar::whisper

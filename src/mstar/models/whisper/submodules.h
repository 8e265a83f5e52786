#pragma once

#include <memory>
#include <vector>

#include "mstar/models/common/token_node.h"
#include "mstar/models/whisper/transformer.h"
#include "mstar/resources/attention.h"
#include "mstar/resources/sampler.h"

namespace mstar::whisper {

// Walks of the decoder, see WhisperModel.
inline constexpr std::string_view kDetect = "detect_language";
inline constexpr std::string_view kDecode = "decode";

// Named samplers of the decoder, in the order of its SamplerSpec.
enum SamplerIndex : int32_t { kFirstSampler, kMainSampler, kLanguageSampler };

// Windows of sound that are encoded together. One keeps the machine busy by itself; a few share the
// weights.
inline constexpr int kEncoderWindows = 4;

// One window of sound to the context that the decoder reads.
//   in   audio_features  [num_frames, num_mel_bins] f32
//   out  audio_embeds    [max_source_positions, d_model]
class AudioEncoderSubmodule : public NodeSubmodule {
 public:
  AudioEncoderSubmodule(std::unique_ptr<WhisperEncoder> encoder, DType activation_dtype);

  void bind_node_resources(const NodeResources& resources) override;

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override;

  bool can_batch(const ExecutingBatch& batch, std::span<NodeInputs* const> inputs) override;
  int max_batch_size(std::string_view graph_walk) const override;

  bool declare_step(std::string_view graph_walk,
                    std::span<const RequestHandle> request_ids,
                    std::span<const NodeInputs* const> inputs,
                    const SlotLease* lease,
                    std::span<const SlotLease* const> piecewise_leases,
                    SubmoduleStep& step) override;

  ForwardArgs preprocess(std::string_view graph_walk,
                         const ModelInputsFromEngine& engine_inputs,
                         std::span<NodeInputs* const> inputs) override;

  NamedTensors forward(std::string_view graph_walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override;

  BatchedModelOutput forward_batched(std::string_view graph_walk,
                                     const ModelInputsFromEngine& engine_inputs,
                                     ForwardArgs& args) override;

 private:
  Tensor run(const ModelInputsFromEngine& engine_inputs, const ForwardArgs& args) const;

  std::unique_ptr<WhisperEncoder> encoder_;
  DType activation_dtype_;
  ResourceId attention_id_ = -1;
};

// Draws the next token after the tokens so far and the sound's context. The walk that brings
// audio_embeds writes the context; later ones only read it.
//   in   text_inputs     [n] i32
//        audio_embeds    [max_source_positions, d_model], in a request's first walk
//   out  new_token       [1] i32, of the vocabulary
//        language_token  [1] i32, one of the languages' (walk "detect_language")
class DecoderSubmodule : public TokenNodeSubmodule {
 public:
  DecoderSubmodule(std::unique_ptr<WhisperDecoder> decoder,
                   std::vector<int32_t> language_tokens,
                   DType activation_dtype);

  void bind_node_resources(const NodeResources& resources) override;

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override;

  int max_batch_size(std::string_view graph_walk) const override;

  bool declare_step(std::string_view graph_walk,
                    std::span<const RequestHandle> request_ids,
                    std::span<const NodeInputs* const> inputs,
                    const SlotLease* lease,
                    std::span<const SlotLease* const> piecewise_leases,
                    SubmoduleStep& step) override;

  ForwardArgs preprocess(std::string_view graph_walk,
                         const ModelInputsFromEngine& engine_inputs,
                         std::span<NodeInputs* const> inputs) override;

 private:
  Drawn draw(std::string_view graph_walk,
             const ModelInputsFromEngine& engine_inputs,
             ForwardArgs& args) override;

  std::unique_ptr<WhisperDecoder> decoder_;
  DType activation_dtype_;
  Tensor language_mask_;  // [1, vocab_size] f32 to be added; undefined: one language only
  ResourceId kv_id_ = -1;
  ResourceId attention_id_ = -1;
  ResourceId cross_kv_id_ = -1;
  ResourceId cross_attention_id_ = -1;
  ResourceId positions_id_ = -1;
  ResourceId sampler_id_ = -1;
  AttentionResource* attention_ = nullptr;
  PositionResource* positions_ = nullptr;
  SamplerResource* sampler_ = nullptr;
};

}  // namespace mstar::whisper

#include "mstar/models/whisper/submodules.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar::whisper {

namespace {

constexpr float kNever = -1e30F;

// Tensors of one shape and type below each other.
Tensor join(std::span<const Tensor> parts) {
  Shape shape = parts.front().shape();
  shape[0] = 0;
  for (const Tensor& part : parts) {
    shape[0] += part.dim(0);
  }
  Tensor joined = Tensor::empty(shape, parts.front().dtype());
  std::byte* to = joined.bytes();
  for (const Tensor& part : parts) {
    const Tensor dense = part.is_contiguous() ? part : part.copy();
    std::memcpy(to, dense.bytes(), static_cast<size_t>(dense.size_bytes()));
    to += dense.size_bytes();
  }
  return joined;
}

Tensor join_inputs(std::span<NodeInputs* const> inputs, std::string_view name) {
  std::vector<Tensor> parts;
  for (const NodeInputs* one : inputs) {
    parts.push_back(one->tensor_inputs.tensor(name));
  }
  return parts.size() == 1 ? parts.front() : join(parts);
}

}  // namespace

AudioEncoderSubmodule::AudioEncoderSubmodule(std::unique_ptr<WhisperEncoder> encoder,
                                             DType activation_dtype)
    : encoder_(std::move(encoder)), activation_dtype_(activation_dtype) {}

void AudioEncoderSubmodule::bind_node_resources(const NodeResources& resources) {
  attention_id_ = resources.id(kEncoderAttention);
  resources.get<AttentionResource>(kEncoderAttention);
  encoder_->bind_resources(resources.map());
}

std::unique_ptr<NodeInputs> AudioEncoderSubmodule::prepare_inputs(std::string_view,
                                                                  const CurrentForwardPassInfo&,
                                                                  const NamedTensors& inputs,
                                                                  const PrepareContext&) {
  auto prepared = std::make_unique<NodeInputs>();
  const Tensor& features = inputs.tensor("audio_features");
  const WhisperConfig& config = encoder_->config();
  if (features.shape() != Shape{config.num_frames(), config.num_mel_bins}) {
    throw Error(ErrorCode::kInternal,
                str_cat("[audio_encoder] audio_features: found ", features.to_string()));
  }
  prepared->tensor_inputs.set("audio_features", features);
  prepared->input_seq_len = config.max_source_positions;
  return prepared;
}

bool AudioEncoderSubmodule::can_batch(const ExecutingBatch&, std::span<NodeInputs* const>) {
  return true;
}

int AudioEncoderSubmodule::max_batch_size(std::string_view) const {
  return kEncoderWindows;
}

bool AudioEncoderSubmodule::declare_step(std::string_view,
                                         std::span<const RequestHandle> request_ids,
                                         std::span<const NodeInputs* const> inputs,
                                         const SlotLease*,
                                         std::span<const SlotLease* const>,
                                         SubmoduleStep& step) {
  for (size_t row = 0; row < inputs.size(); ++row) {
    step.add_segment(
        request_ids[row], kMainLabel, static_cast<int32_t>(inputs[row]->input_seq_len));
  }
  step.attention.add(attention_id_).causal = false;
  return true;
}

ForwardArgs AudioEncoderSubmodule::preprocess(std::string_view,
                                              const ModelInputsFromEngine&,
                                              std::span<NodeInputs* const> inputs) {
  const WhisperConfig& config = encoder_->config();
  ForwardArgs args;
  args.tensors.set(
      "audio_features",
      join_inputs(inputs, "audio_features")
          .view({static_cast<int64_t>(inputs.size()), config.num_frames(), config.num_mel_bins}));
  return args;
}

Tensor AudioEncoderSubmodule::run(const ModelInputsFromEngine& engine_inputs,
                                  const ForwardArgs& args) const {
  return encoder_->forward(*engine_inputs.stream,
                           args.tensors.tensor("audio_features"),
                           {engine_inputs.context, kMainLabel, 0},
                           activation_dtype_);
}

NamedTensors AudioEncoderSubmodule::forward(std::string_view,
                                            const ModelInputsFromEngine& engine_inputs,
                                            ForwardArgs& args) {
  NamedTensors outputs;
  outputs.set("audio_embeds", run(engine_inputs, args));
  return outputs;
}

BatchedModelOutput AudioEncoderSubmodule::forward_batched(
    std::string_view,
    const ModelInputsFromEngine& engine_inputs,
    ForwardArgs& args) {
  const Tensor embeds = run(engine_inputs, args);
  const int64_t rows = encoder_->config().max_source_positions;
  BatchedModelOutput output;
  for (size_t row = 0; row < engine_inputs.request_ids.size(); ++row) {
    const auto begin = static_cast<int64_t>(row) * rows;
    output.per_rid_outputs[engine_inputs.request_ids[row]].set(
        "audio_embeds", embeds.slice(0, begin, begin + rows));
  }
  return output;
}

DecoderSubmodule::DecoderSubmodule(std::unique_ptr<WhisperDecoder> decoder,
                                   std::vector<int32_t> language_tokens,
                                   DType activation_dtype)
    : TokenNodeSubmodule(std::string(kDecode), "decode_loop"),
      decoder_(std::move(decoder)),
      activation_dtype_(activation_dtype) {
  if (language_tokens.empty()) {
    return;
  }
  const int64_t vocab_size = decoder_->config().vocab_size;
  language_mask_ = Tensor::empty({1, vocab_size}, DType::kF32);
  std::fill_n(language_mask_.data<float>(), vocab_size, kNever);
  for (const int32_t token : language_tokens) {
    language_mask_.data<float>()[token] = 0.0F;
  }
}

void DecoderSubmodule::bind_node_resources(const NodeResources& resources) {
  kv_id_ = resources.id(kKv);
  attention_id_ = resources.id(kAttention);
  cross_kv_id_ = resources.id(kCrossKv);
  cross_attention_id_ = resources.id(kCrossAttention);
  positions_id_ = resources.id(kPositions);
  sampler_id_ = resources.id(kSampler);
  attention_ = &resources.get<AttentionResource>(kAttention);
  positions_ = &resources.get<PositionResource>(kPositions);
  sampler_ = &resources.get<SamplerResource>(kSampler);
  resources.get<AttentionResource>(kCrossAttention);
  decoder_->bind_resources(resources.map());
}

std::unique_ptr<NodeInputs> DecoderSubmodule::prepare_inputs(std::string_view,
                                                             const CurrentForwardPassInfo&,
                                                             const NamedTensors& inputs,
                                                             const PrepareContext&) {
  auto prepared = std::make_unique<ARNodeInputs>();
  prepared->input_ids = inputs.tensor("text_inputs");
  prepared->input_seq_len = prepared->input_ids.dim(0);
  if (const Tensor embeds = inputs.tensor_or_none("audio_embeds"); embeds.defined()) {
    prepared->tensor_inputs.set("audio_embeds", embeds);
  }
  return prepared;
}

int DecoderSubmodule::max_batch_size(std::string_view graph_walk) const {
  return graph_walk == kDecode ? 64 : 8;
}

bool DecoderSubmodule::declare_step(std::string_view graph_walk,
                                    std::span<const RequestHandle> request_ids,
                                    std::span<const NodeInputs* const> inputs,
                                    const SlotLease*,
                                    std::span<const SlotLease* const>,
                                    SubmoduleStep& step) {
  step.kv.add(kv_id_);
  KVStep& context = step.kv.add(cross_kv_id_);
  for (size_t row = 0; row < inputs.size(); ++row) {
    step.add_segment(
        request_ids[row], kMainLabel, static_cast<int32_t>(inputs[row]->input_seq_len));
    const Tensor embeds = inputs[row]->tensor_inputs.tensor_or_none("audio_embeds");
    context.segments.push_back(
        {request_ids[row], kMainLabel, static_cast<int32_t>(embeds.defined() ? embeds.dim(0) : 0)});
  }
  step.attention.add(attention_id_).causal = true;
  step.attention.add(cross_attention_id_).causal = false;
  step.position.add(positions_id_);
  step.sampler.add(sampler_id_).sampler = graph_walk == kDetect   ? kLanguageSampler
                                          : graph_walk == kDecode ? kMainSampler
                                                                  : kFirstSampler;
  return true;
}

ForwardArgs DecoderSubmodule::preprocess(std::string_view,
                                         const ModelInputsFromEngine&,
                                         std::span<NodeInputs* const> inputs) {
  std::vector<Tensor> ids;
  for (const NodeInputs* one : inputs) {
    ids.push_back(static_cast<const ARNodeInputs&>(*one).input_ids);
  }
  ForwardArgs args;
  args.tensors.set("input_ids", join(ids));
  if (inputs.front()->tensor_inputs.contains("audio_embeds")) {  // all of one walk have them
    args.tensors.set("audio_embeds", join_inputs(inputs, "audio_embeds"));
  }
  return args;
}

TokenNodeSubmodule::Drawn DecoderSubmodule::draw(std::string_view graph_walk,
                                                 const ModelInputsFromEngine& engine_inputs,
                                                 ForwardArgs& args) {
  Stream& stream = *engine_inputs.stream;
  const AttentionContext context{engine_inputs.context, kMainLabel, 0};
  if (const Tensor embeds = args.tensors.tensor_or_none("audio_embeds"); embeds.defined()) {
    decoder_->write_context(stream, embeds, context);
  }
  const Tensor& ids = args.tensors.tensor("input_ids");
  const Tensor hidden = decoder_->forward(stream,
                                          ids,
                                          positions_->pos_ids(context).slice(0, 0, ids.dim(0)),
                                          context,
                                          activation_dtype_);
  const auto num_rows = static_cast<int64_t>(engine_inputs.request_ids.size());
  Tensor last = stream.empty({num_rows, hidden.dim(1)}, hidden.dtype());
  attention_->select_last_hidden(stream, context, hidden, last);
  Tensor logits = decoder_->logits(stream, last);
  int32_t sampler = graph_walk == kDecode ? kMainSampler : kFirstSampler;
  if (graph_walk == kDetect) {
    sampler = kLanguageSampler;
    for (int64_t row = 0; row < num_rows; ++row) {
      Tensor own = logits.slice(0, row, row + 1);
      ops::add(stream, own, language_mask_, own);
    }
  }
  Drawn drawn;
  drawn.output = graph_walk == kDetect ? "language_token" : "new_token";
  drawn.drawing.resize(static_cast<size_t>(num_rows));
  std::iota(drawn.drawing.begin(), drawn.drawing.end(), 0);
  drawn.hidden = last;
  drawn.logits.resize(drawn.drawing.size());
  drawn.tokens = stream.empty({num_rows}, DType::kI32);
  Tensor probs;
  sampler_->sample(stream, *engine_inputs.context, sampler, 0, logits, drawn.tokens, probs);
  return drawn;
}

}  // namespace mstar::whisper

#include "mstar/models/llama/submodule.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/embedding.h"
#include "mstar/models/common/token_logprobs.h"

namespace mstar::llama {

namespace {

constexpr std::string_view kDecodeLoop = "decode_loop";
// NodeInputs::kwargs: whether the row draws a token, and the whole prompt of a prefill: a chunk or
// the rest behind a cached prefix is only its end.
constexpr std::string_view kDraws = "draws";
constexpr std::string_view kPrompt = "prompt";
// Outputs until postprocess: what the token was drawn from, and the logits where log-probabilities
// are wanted.
constexpr std::string_view kHidden = "last_hidden";
constexpr std::string_view kLogits = "logits";

bool draws(const NodeInputs& inputs) {
  return inputs.kwargs.get(kDraws, true);
}

bool wants_logprobs(const CurrentForwardPassInfo& info) {
  return info.values.contains(kNumLogprobs);
}

}  // namespace

LlamaSubmodule::LlamaSubmodule(std::unique_ptr<LlamaTransformer> transformer,
                               DType activation_dtype)
    : transformer_(std::move(transformer)), activation_dtype_(activation_dtype) {}

void LlamaSubmodule::bind_node_resources(const NodeResources& resources) {
  kv_id_ = resources.id("kv");
  attention_id_ = resources.id("attn");
  rope_id_ = resources.id("rope");
  sampler_id_ = resources.id("sampler");
  kv_ = &resources.get<KvCache>("kv");
  attention_ = &resources.get<AttentionResource>("attn");
  sampler_ = &resources.get<SamplerResource>("sampler");
  transformer_->bind_resources(resources.map());
}

std::unique_ptr<NodeInputs> LlamaSubmodule::prepare_inputs(std::string_view,
                                                           const CurrentForwardPassInfo& info,
                                                           const NamedTensors& inputs,
                                                           const PrepareContext&) {
  auto prepared = std::make_unique<ARNodeInputs>();
  prepared->input_ids = inputs.tensor("text_inputs");
  if (info.graph_walk == "prefill") {
    prepared->kwargs.set(kPrompt, prepared->input_ids);
  }
  // Tokens that the prefix cache already holds are not computed again.
  const CacheStream* stream = kv_->find_stream(info.handle, kMainLabel);
  const int64_t cached = info.graph_walk == "prefill" && stream != nullptr ? stream->stored_len : 0;
  // A generated token becomes part of what a later turn may begin with. Said once: a step that is
  // put off is prepared again.
  if (info.graph_walk == "decode" && stream != nullptr && !stream->keys.empty() &&
      static_cast<int64_t>(stream->keys.size()) == stream->stored_len) {
    const auto token = static_cast<uint64_t>(*prepared->input_ids.data<int32_t>());
    kv_->extend_prefix_keys(info.handle, kMainLabel, std::span(&token, 1));
  }
  if (cached > 0) {
    prepared->input_ids = prepared->input_ids.slice(0, cached, prepared->input_ids.dim(0));
  }
  prepared->input_seq_len = prepared->input_ids.dim(0);
  return prepared;
}

std::unique_ptr<NodeInputs> LlamaSubmodule::split_inputs(std::string_view graph_walk,
                                                         const CurrentForwardPassInfo& info,
                                                         const NodeInputs& inputs,
                                                         int64_t begin,
                                                         int64_t end) {
  ARNodeInputs tokens = static_cast<const ARNodeInputs&>(inputs);
  const ValueMap kwargs = std::exchange(tokens.kwargs, {});
  auto chunk = ARNodeSubmodule::split_inputs(graph_walk, info, tokens, begin, end);
  chunk->kwargs = kwargs;
  chunk->kwargs.set(kDraws, end == inputs.input_seq_len);
  return chunk;
}

bool LlamaSubmodule::supports_chunked_prefill(std::string_view graph_walk) const {
  return graph_walk == "prefill";
}

bool LlamaSubmodule::can_batch(const ExecutingBatch&, std::span<NodeInputs* const>) {
  return true;
}

int LlamaSubmodule::max_batch_size(std::string_view) const {
  return 64;
}

bool LlamaSubmodule::can_use_graph_capture(const ExecutingBatch& batch,
                                           std::span<NodeInputs* const>) {
  return std::ranges::none_of(batch.per_request_info,
                              [](const auto* info) { return wants_logprobs(*info); });
}

bool LlamaSubmodule::declare_step(std::string_view,
                                  std::span<const RequestHandle> request_ids,
                                  std::span<const NodeInputs* const> inputs,
                                  const SlotLease*,
                                  std::span<const SlotLease* const>,
                                  SubmoduleStep& step) {
  for (size_t row = 0; row < inputs.size(); ++row) {
    step.add_segment(
        request_ids[row], kMainLabel, static_cast<int32_t>(inputs[row]->input_seq_len));
  }
  step.kv.add(kv_id_);
  step.attention.add(attention_id_).causal = true;
  step.position.add(rope_id_);
  SamplerStep* sampler = nullptr;
  for (size_t row = 0; row < inputs.size(); ++row) {
    if (!draws(*inputs[row])) {
      continue;
    }
    if (sampler == nullptr) {
      sampler = &step.sampler.add(sampler_id_);
    }
    sampler->segments.push_back(step.segments[row]);
    if (const Tensor* prompt = inputs[row]->kwargs.find<Tensor>(kPrompt)) {
      sampler->prefill_tracked_tokens.push_back({request_ids[row], *prompt});
    }
  }
  return true;
}

ForwardArgs LlamaSubmodule::preprocess(std::string_view,
                                       const ModelInputsFromEngine&,
                                       std::span<NodeInputs* const> inputs) {
  int64_t num_tokens = 0;
  std::vector<int32_t> drawing;
  for (size_t row = 0; row < inputs.size(); ++row) {
    num_tokens += inputs[row]->input_seq_len;
    if (draws(*inputs[row])) {
      drawing.push_back(static_cast<int32_t>(row));
    }
  }
  Tensor ids = Tensor::empty({num_tokens}, DType::kI32);
  int32_t* next = ids.data<int32_t>();
  for (const NodeInputs* one : inputs) {
    const Tensor& own = static_cast<const ARNodeInputs&>(*one).input_ids;
    std::memcpy(next, own.data<int32_t>(), static_cast<size_t>(own.size_bytes()));
    next += own.num_elements();
  }
  ForwardArgs args;
  args.tensors.set("input_ids", ids);
  if (drawing.size() < inputs.size()) {
    args.tensors.set("drawing_rows", Tensor::from(drawing, {static_cast<int64_t>(drawing.size())}));
  }
  return args;
}

LlamaSubmodule::Drawn LlamaSubmodule::run(const ModelInputsFromEngine& engine_inputs,
                                          ForwardArgs& args) {
  Stream& stream = *engine_inputs.stream;
  const AttentionContext context{engine_inputs.context, kMainLabel, 0};
  Tensor hidden = transformer_->embed(stream, args.tensors.tensor("input_ids"), activation_dtype_);
  hidden = transformer_->forward(stream, hidden, context);
  const auto num_rows = static_cast<int64_t>(engine_inputs.request_ids.size());
  Tensor last = stream.empty({num_rows, hidden.dim(1)}, hidden.dtype());
  attention_->select_last_hidden(stream, context, hidden, last);
  Drawn drawn;
  if (const Tensor rows = args.tensors.tensor_or_none("drawing_rows"); rows.defined()) {
    if (rows.num_elements() == 0) {
      return drawn;
    }
    drawn.drawing = rows.to_ints();
    Tensor chosen = stream.empty({rows.dim(0), hidden.dim(1)}, hidden.dtype());
    ops::gather_rows(stream, last, rows, chosen);
    last = chosen;
  } else {
    drawn.drawing.resize(static_cast<size_t>(num_rows));
    std::iota(drawn.drawing.begin(), drawn.drawing.end(), 0);
  }
  drawn.hidden = last;
  Tensor logits = transformer_->logits(stream, last);
  // Copies, for the sampler changes its logits in place.
  drawn.logits.resize(drawn.drawing.size());
  for (size_t index = 0; index < drawn.drawing.size(); ++index) {
    const auto row = static_cast<size_t>(drawn.drawing[index]);
    if (wants_logprobs(*engine_inputs.per_request_info[row])) {
      const auto at = static_cast<int64_t>(index);
      drawn.logits[index] = stream.empty({1, logits.dim(1)}, DType::kF32);
      ops::copy(stream, logits.slice(0, at, at + 1), drawn.logits[index]);
    }
  }
  drawn.tokens = stream.empty({last.dim(0)}, DType::kI32);
  Tensor probs;
  sampler_->sample(stream, *engine_inputs.context, 0, 0, logits, drawn.tokens, probs);
  return drawn;
}

NamedTensors LlamaSubmodule::forward(std::string_view,
                                     const ModelInputsFromEngine& engine_inputs,
                                     ForwardArgs& args) {
  NamedTensors outputs;
  const Drawn drawn = run(engine_inputs, args);
  if (drawn.tokens.defined()) {
    outputs.set("new_token", drawn.tokens);
    outputs.set(kHidden, drawn.hidden);
    if (drawn.logits.front().defined()) {
      outputs.set(kLogits, drawn.logits.front());
    }
  }
  return outputs;
}

BatchedModelOutput LlamaSubmodule::forward_batched(std::string_view,
                                                   const ModelInputsFromEngine& engine_inputs,
                                                   ForwardArgs& args) {
  BatchedModelOutput output;
  const Drawn drawn = run(engine_inputs, args);
  const bool all_draw = drawn.drawing.size() == engine_inputs.request_ids.size();
  if (all_draw) {
    output.row_outputs.emplace().set("new_token", drawn.tokens);
    output.row_outputs->set(kHidden, drawn.hidden);
  }
  for (size_t index = 0; index < drawn.drawing.size(); ++index) {
    const RequestHandle request =
        engine_inputs.request_ids[static_cast<size_t>(drawn.drawing[index])];
    if (!all_draw) {
      const auto at = static_cast<int64_t>(index);
      output.per_rid_outputs[request].set("new_token", drawn.tokens.slice(0, at, at + 1));
      output.per_rid_outputs[request].set(kHidden, drawn.hidden.slice(0, at, at + 1));
    }
    if (drawn.logits[index].defined()) {
      output.per_rid_outputs[request].set(kLogits, drawn.logits[index]);
    }
  }
  return output;
}

void LlamaSubmodule::postprocess(const CurrentForwardPassInfo& info,
                                 NamedTensors& outputs,
                                 const NodeInputs*) {
  if (const Tensor hidden = outputs.tensor_or_none(kHidden); hidden.defined()) {
    require_finite(hidden, info.graph_walk);
    outputs.erase(kHidden);
  }
  const Tensor logits = outputs.tensor_or_none(kLogits);
  if (!logits.defined()) {
    return;
  }
  outputs.set(kLogprobsEdge,
              token_logprobs(logits,
                             *outputs.tensor("new_token").data<int32_t>(),
                             info.values.at<int32_t>(kNumLogprobs)));
  outputs.erase(kLogits);
}

void LlamaSubmodule::check_stop(const CurrentForwardPassInfo& info,
                                const NamedTensors& outputs,
                                const InputMetadata&,
                                std::vector<std::string_view>& stopped_loops) {
  if (info.graph_walk != "decode") {
    return;
  }
  const auto* stops = info.values.find<std::vector<int32_t>>(kStopTokenIds);
  const int32_t token = *outputs.tensor("new_token").data<int32_t>();
  if (stops != nullptr && std::ranges::find(*stops, token) != stops->end()) {
    stopped_loops.push_back(kDecodeLoop);
  }
}

std::vector<CaptureConfig> LlamaSubmodule::get_capture_configs(Device, int) {
  CaptureConfig decode;
  decode.capture_graph_walk = "decode";
  decode.capture_batch_sizes = {1, 2, 4, 8, 16};
  decode.caps_eager_batch_size = false;
  decode.make_node_input = [](int64_t seq_len) {
    auto inputs = std::make_unique<ARNodeInputs>();
    inputs->input_ids = Tensor::zeros({seq_len}, DType::kI32);
    inputs->input_seq_len = seq_len;
    return inputs;
  };
  return {decode};
}

}  // namespace mstar::llama

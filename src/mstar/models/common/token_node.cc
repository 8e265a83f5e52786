#include "mstar/models/common/token_node.h"

#include <algorithm>

#include "mstar/kernels/ops/activation.h"
#include "mstar/models/common/token_logprobs.h"

namespace mstar {

namespace {

// Outputs until postprocess: what the token was drawn from, and the logits where log-probabilities
// are wanted.
constexpr std::string_view kToken = "new_token";
constexpr std::string_view kHidden = "last_hidden";
constexpr std::string_view kLogits = "logits";

bool is_stop(const CurrentForwardPassInfo& info, int32_t token) {
  const auto* stops = info.values.find<std::vector<int32_t>>(kStopTokenIds);
  return stops != nullptr && std::ranges::find(*stops, token) != stops->end();
}

bool wants_logprobs(const CurrentForwardPassInfo& info) {
  return info.values.contains(kNumLogprobs);
}

}  // namespace

bool TokenNodeSubmodule::can_batch(const ExecutingBatch&, std::span<NodeInputs* const>) {
  return true;
}

bool TokenNodeSubmodule::can_use_graph_capture(const ExecutingBatch& batch,
                                               std::span<NodeInputs* const>) {
  return std::ranges::none_of(batch.per_request_info,
                              [](const auto* info) { return wants_logprobs(*info); });
}

std::vector<Tensor> TokenNodeSubmodule::keep_logits(const ModelInputsFromEngine& engine_inputs,
                                                    const std::vector<int64_t>& drawing,
                                                    const Tensor& logits) {
  Stream& stream = *engine_inputs.stream;
  std::vector<Tensor> kept(drawing.size());
  for (size_t index = 0; index < drawing.size(); ++index) {
    const auto row = static_cast<size_t>(drawing[index]);
    if (wants_logprobs(*engine_inputs.per_request_info[row])) {
      const auto at = static_cast<int64_t>(index);
      kept[index] = stream.empty({1, logits.dim(1)}, DType::kF32);
      ops::copy(stream, logits.slice(0, at, at + 1), kept[index]);
    }
  }
  return kept;
}

NamedTensors TokenNodeSubmodule::forward(std::string_view graph_walk,
                                         const ModelInputsFromEngine& engine_inputs,
                                         ForwardArgs& args) {
  NamedTensors outputs;
  const Drawn drawn = draw(graph_walk, engine_inputs, args);
  if (drawn.tokens.defined()) {
    outputs.set(drawn.output, drawn.tokens);
    outputs.set(kHidden, drawn.hidden);
    if (drawn.logits.front().defined()) {
      outputs.set(kLogits, drawn.logits.front());
    }
  }
  return outputs;
}

BatchedModelOutput TokenNodeSubmodule::forward_batched(std::string_view graph_walk,
                                                       const ModelInputsFromEngine& engine_inputs,
                                                       ForwardArgs& args) {
  BatchedModelOutput output;
  const Drawn drawn = draw(graph_walk, engine_inputs, args);
  const bool all_draw = drawn.drawing.size() == engine_inputs.request_ids.size();
  // Where all draw, the checks read whole rows: one look at the batch instead of one a request.
  if (all_draw) {
    output.row_outputs.emplace().set(drawn.output, drawn.tokens);
    output.check_stop_buffers.emplace().set(kToken, drawn.tokens);
    output.check_stop_buffers->set(kHidden, drawn.hidden);
  }
  for (size_t index = 0; index < drawn.drawing.size(); ++index) {
    const RequestHandle request =
        engine_inputs.request_ids[static_cast<size_t>(drawn.drawing[index])];
    if (!all_draw) {
      const auto at = static_cast<int64_t>(index);
      output.per_rid_outputs[request].set(drawn.output, drawn.tokens.slice(0, at, at + 1));
      output.per_rid_outputs[request].set(kHidden, drawn.hidden.slice(0, at, at + 1));
    }
    if (drawn.logits[index].defined()) {
      output.per_rid_outputs[request].set(kLogits, drawn.logits[index]);
    }
  }
  return output;
}

void TokenNodeSubmodule::postprocess(const CurrentForwardPassInfo& info,
                                     NamedTensors& outputs,
                                     const NodeInputs*) {
  if (const TensorList* hidden = outputs.find(kHidden)) {
    require_finite(hidden->front(), info.graph_walk);
    outputs.erase(kHidden);
  }
  if (const TensorList* logits = outputs.find(kLogits)) {
    outputs.set(kLogprobsEdge,
                token_logprobs(logits->front(),
                               *outputs.tensor(kToken).data<int32_t>(),
                               info.values.at<int32_t>(kNumLogprobs)));
    outputs.erase(kLogits);
  }
}

void TokenNodeSubmodule::check_stop(const CurrentForwardPassInfo& info,
                                    const NamedTensors& outputs,
                                    const InputMetadata&,
                                    std::vector<std::string_view>& stopped_loops) {
  if (const TensorList* hidden = outputs.find(kHidden)) {
    require_finite(hidden->front(), info.graph_walk);
  }
  if (info.graph_walk == decode_walk_ && is_stop(info, *outputs.tensor(kToken).data<int32_t>())) {
    stopped_loops.push_back(decode_loop_);
  }
}

bool TokenNodeSubmodule::check_stop_batched(std::span<const CurrentForwardPassInfo* const> infos,
                                            const HostRows& rows,
                                            std::span<const InputMetadata>,
                                            std::span<std::vector<std::string_view>> stopped) {
  const auto num_rows = static_cast<int64_t>(infos.size());
  const std::string& walk = infos.front()->graph_walk;
  require_finite(rows.buffers.tensor(kHidden).slice(0, 0, num_rows), walk);
  if (walk == decode_walk_) {
    const int32_t* tokens = rows.buffers.tensor(kToken).data<int32_t>();
    for (size_t row = 0; row < infos.size(); ++row) {
      if (is_stop(*infos[row], tokens[row])) {
        stopped[row].push_back(decode_loop_);
      }
    }
  }
  return true;
}

std::vector<CaptureConfig> TokenNodeSubmodule::get_capture_configs(Device, int) {
  CaptureConfig decode;
  decode.capture_graph_walk = decode_walk_;
  decode.capture_batch_sizes = {1, 2, 4, 8, 16};
  decode.caps_eager_batch_size = false;
  decode.make_node_input = [](int64_t seq_len) {
    auto inputs = std::make_unique<ARNodeInputs>();
    inputs->input_ids = Tensor::zeros({seq_len}, DType::kI32);
    inputs->input_seq_len = seq_len;
    return inputs;
  };
  // Further up a padding row is a large part of a step's work, and many requests are seldom.
  CaptureConfig crowd = decode;
  crowd.capture_batch_sizes = {32, 64};
  crowd.lazy = true;
  crowd.least_fill = 0.75;
  return {decode, crowd};
}

}  // namespace mstar

#include "mstar/engine/submodule.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/resources/resource.h"

namespace mstar {

const StreamChunkInfo* InputMetadata::find_chunk(std::string_view edge) const {
  for (const auto& [name, chunk] : stream_chunks) {
    if (name == edge) {
      return &chunk;
    }
  }
  return nullptr;
}

int64_t InputMetadata::loop_iter(std::string_view loop) const {
  for (const auto& [name, count] : dynamic_loop_iter_counts) {
    if (name == loop) {
      return count;
    }
  }
  return 0;
}

void NodeResources::add(std::string key, ResourceId id, Resource* resource) {
  map_.emplace(key, resource);
  keys_.push_back(std::move(key));
  ids_.push_back(id);
  resources_.push_back(resource);
}

Resource* NodeResources::find(std::string_view key) const {
  const auto it = std::ranges::find(keys_, key);
  return it == keys_.end() ? nullptr : resources_[static_cast<size_t>(it - keys_.begin())];
}

ResourceId NodeResources::id(std::string_view key) const {
  const auto it = std::ranges::find(keys_, key);
  return it == keys_.end() ? -1 : ids_[static_cast<size_t>(it - keys_.begin())];
}

void NodeResources::throw_missing(std::string_view key) const {
  throw Error(ErrorCode::kInternal,
              str_cat("[resources] no \"",
                      key,
                      "\" of the asked kind on this node; it has {",
                      str_join(keys_, ", "),
                      "}"));
}

PerRequestState& LazyRequestStates::operator[](size_t index) const {
  return submodule_->request_state(requests_[index]);
}

const CurrentForwardPassInfo& ModelInputsFromEngine::first_request_info() const {
  MSTAR_CHECK(!per_request_info.empty());
  return *per_request_info.front();
}

const CurrentForwardPassInfo& ModelInputsFromEngine::single_request_info() const {
  MSTAR_CHECK(per_request_info.size() == 1, "requests=", per_request_info.size());
  return *per_request_info.front();
}

void NodeSubmodule::bind_node_resources(const NodeResources&) {}

std::unique_ptr<NodeInputs> NodeSubmodule::split_inputs(std::string_view graph_walk,
                                                        const CurrentForwardPassInfo&,
                                                        const NodeInputs&,
                                                        int64_t,
                                                        int64_t) {
  throw Error(ErrorCode::kUnsupported,
              str_cat("[split_inputs] walk \"", graph_walk, "\" cannot be run in chunks"));
}

bool NodeSubmodule::supports_chunked_prefill(std::string_view) const {
  return false;
}

bool NodeSubmodule::can_batch(const ExecutingBatch&, std::span<NodeInputs* const>) {
  return false;
}

int NodeSubmodule::max_batch_size(std::string_view) const {
  return 1;
}

std::optional<CaptureKey> NodeSubmodule::capture_key(
    std::string_view,
    std::span<const CurrentForwardPassInfo* const>) const {
  return CaptureKey();
}

bool NodeSubmodule::can_use_graph_capture(const ExecutingBatch& batch,
                                          std::span<NodeInputs* const>) {
  return capture_key(batch.graph_walk, batch.per_request_info).has_value();
}

bool NodeSubmodule::split_batches_by_capture_key(std::string_view) const {
  return false;
}

bool NodeSubmodule::declare_step(std::string_view,
                                 std::span<const RequestHandle>,
                                 std::span<const NodeInputs* const>,
                                 const SlotLease*,
                                 std::span<const SlotLease* const>,
                                 SubmoduleStep&) {
  return false;
}

ForwardArgs NodeSubmodule::preprocess(std::string_view,
                                      const ModelInputsFromEngine&,
                                      std::span<NodeInputs* const> inputs) {
  MSTAR_CHECK(inputs.size() == 1, "a node that batches packs its inputs itself");
  return {inputs.front()->tensor_inputs, inputs.front()->kwargs};
}

BatchedModelOutput NodeSubmodule::forward_batched(std::string_view graph_walk,
                                                  const ModelInputsFromEngine& engine_inputs,
                                                  ForwardArgs& args) {
  MSTAR_CHECK(engine_inputs.request_ids.size() == 1, "no batched forward for ", graph_walk);
  BatchedModelOutput out;
  out.per_rid_outputs.emplace(engine_inputs.request_ids.front(),
                              forward(graph_walk, engine_inputs, args));
  return out;
}

std::unordered_map<RequestHandle, NamedTensors> NodeSubmodule::unpack_packed_outputs(
    const NamedTensors&,
    std::span<const RequestHandle>,
    std::span<const int64_t>,
    std::span<NodeInputs* const>,
    std::span<const CurrentForwardPassInfo* const>) {
  return {};
}

void NodeSubmodule::filter_batched_output(const CurrentForwardPassInfo&, NamedTensors&) {}

void NodeSubmodule::postprocess(const CurrentForwardPassInfo&, NamedTensors&, const NodeInputs*) {}

void NodeSubmodule::check_stop(const CurrentForwardPassInfo&,
                               const NamedTensors&,
                               const InputMetadata&,
                               std::vector<std::string_view>&) {}

bool NodeSubmodule::check_stop_batched(std::span<const CurrentForwardPassInfo* const>,
                                       const HostRows&,
                                       std::span<const InputMetadata>,
                                       std::span<std::vector<std::string_view>>) {
  return false;
}

std::vector<CaptureConfig> NodeSubmodule::get_capture_configs(Device, int) {
  return {};
}

std::vector<PiecewiseConfig> NodeSubmodule::get_piecewise_capture_configs(Device, DType, int) {
  return {};
}

std::optional<DType> NodeSubmodule::get_activation_dtype() const {
  return std::nullopt;
}

void NodeSubmodule::cleanup_request(RequestHandle request) {
  request_states_.erase(request);
}

namespace {

Tensor cut(const Tensor& tensor, int dim, int64_t begin, int64_t end) {
  return tensor.defined() ? tensor.slice(dim, begin, end) : tensor;
}

// Positions are [n] or [axes, n]: the trailing dim is cut when it is the whole length.
Tensor cut_positions(const Tensor& positions, int64_t whole, int64_t begin, int64_t end) {
  const int last = positions.num_dims() - 1;
  if (positions.dim(last) != whole) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[split_inputs] positions ",
                        to_string(positions.shape()),
                        " do not have one entry for each of ",
                        whole,
                        " tokens"));
  }
  return positions.slice(last, begin, end);
}

}  // namespace

std::unique_ptr<NodeInputs> ARNodeSubmodule::split_inputs(std::string_view graph_walk,
                                                          const CurrentForwardPassInfo&,
                                                          const NodeInputs& inputs,
                                                          int64_t begin,
                                                          int64_t end) {
  const auto& whole = dynamic_cast<const ARNodeInputs&>(inputs);
  if (!whole.tensor_inputs.empty() || !whole.kwargs.empty() ||
      whole.resource_step_info.has_value()) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[split_inputs] walk \"",
                        graph_walk,
                        "\" carries inputs that only its submodule can cut"));
  }
  MSTAR_CHECK(0 <= begin && begin <= end && end <= whole.input_seq_len,
              "begin=",
              begin,
              " end=",
              end,
              " whole=",
              whole.input_seq_len);
  auto chunk = std::make_unique<ARNodeInputs>();
  chunk->input_seq_len = end - begin;
  chunk->input_ids = cut(whole.input_ids, 0, begin, end);
  chunk->input_embeds = cut(whole.input_embeds, 0, begin, end);
  if (const auto* one = std::get_if<Tensor>(&whole.custom_pos_ids)) {
    chunk->custom_pos_ids = cut_positions(*one, whole.input_seq_len, begin, end);
  } else if (const auto* labelled =
                 std::get_if<ARNodeInputs::LabelledPositions>(&whole.custom_pos_ids)) {
    ARNodeInputs::LabelledPositions cut_labels;
    for (const auto& [label, positions] : *labelled) {
      cut_labels.emplace(label, cut_positions(positions, whole.input_seq_len, begin, end));
    }
    chunk->custom_pos_ids = std::move(cut_labels);
  }
  return chunk;
}

}  // namespace mstar

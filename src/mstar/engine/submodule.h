#pragma once

#include <any>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mstar/engine/batched_model_output.h"
#include "mstar/engine/capture_config.h"
#include "mstar/engine/forward_pass.h"
#include "mstar/engine/named_tensors.h"
#include "mstar/engine/node_inputs.h"
#include "mstar/engine/request_state.h"
#include "mstar/resources/step.h"
#include "mstar/tensor/stream.h"

namespace mstar {

class PiecewiseRunner;
class Resource;

// Engine-built resources of one node, by the key the model declared.
class NodeResources {
 public:
  void add(std::string key, ResourceId id, Resource* resource);

  // Null when the node does not own `key`.
  Resource* find(std::string_view key) const;

  // -1 when the node does not own `key`.
  ResourceId id(std::string_view key) const;

  // The resource as T. Throws Error(kInternal) naming the key when it is absent or of another
  // kind: the model's declaration and its layers disagree.
  template <typename T>
  T& get(std::string_view key) const {
    T* resource = dynamic_cast<T*>(find(key));
    if (resource == nullptr) {
      throw_missing(key);
    }
    return *resource;
  }

  const std::vector<std::string>& keys() const { return keys_; }

  // All of them, as layers look them up.
  const std::unordered_map<std::string, Resource*>& map() const { return map_; }

 private:
  [[noreturn]] void throw_missing(std::string_view key) const;

  std::vector<std::string> keys_;
  std::vector<ResourceId> ids_;
  std::vector<Resource*> resources_;
  std::unordered_map<std::string, Resource*> map_;
};

// What preprocess makes and forward reads: packed tensors (under a capture these become the
// static buffers) and values that are no tensors (the same for every replay of a capture).
struct ForwardArgs {
  NamedTensors tensors;
  ValueMap values;
};

class NodeSubmodule;

// The states of a step's requests, looked up when first read: most submodules never do.
class LazyRequestStates {
 public:
  LazyRequestStates() = default;

  LazyRequestStates(NodeSubmodule* submodule, std::span<const RequestHandle> requests)
      : submodule_(submodule), requests_(requests) {}

  size_t size() const { return requests_.size(); }

  // State of row `index` of the step. Padding rows have one that is thrown away.
  PerRequestState& operator[](size_t index) const;

 private:
  NodeSubmodule* submodule_ = nullptr;
  std::span<const RequestHandle> requests_;
};

// Everything the engine hands to preprocess and forward. Valid during the call.
struct ModelInputsFromEngine {
  std::span<const RequestHandle> request_ids;  // step ids: may end with padding rows (negative)
  std::span<const CurrentForwardPassInfo* const> per_request_info;  // parallel to request_ids;
                                                                    // padding rows repeat row 0's
  const NodeResources* resources = nullptr;
  std::span<PiecewiseRunner* const> piecewise_runners;  // by the order of their declaration
  LazyRequestStates per_request_states;
  const SubmoduleStep* step = nullptr;  // null when the node declared none
  const StepContext* context = nullptr;
  bool captured = false;  // recording, or preparing for, a captured graph
  std::span<const InputMetadata> per_request_input_metadata;  // parallel; empty while capturing
  Stream* stream = nullptr;

  // Row 0's. Does not ask that there is only one.
  const CurrentForwardPassInfo& first_request_info() const;

  // The only row's (check).
  const CurrentForwardPassInfo& single_request_info() const;
};

// A batch on its way through one step, as can_batch sees it.
struct ExecutingBatch {
  std::string_view node_name;
  std::string_view graph_walk;
  std::span<const RequestHandle> request_ids;
  std::span<const CurrentForwardPassInfo* const> per_request_info;
};

// What prepare_inputs gets besides the request's routed tensors.
struct PrepareContext {
  const InputMetadata& metadata;
  const NodeResources& resources;
  Stream& stream;
};

// One node of a model's walks: a compute unit that the engine drives through
//   prepare_inputs → can_batch → declare_step → preprocess → forward(_batched) → postprocess →
//   check_stop
// All of these run on the worker's executor thread, one step at a time, so members need no lock;
// what runs elsewhere says so. An Error thrown by prepare_inputs, postprocess or check_stop fails
// that request alone; one thrown by the others fails the step's requests.
class NodeSubmodule {
 public:
  NodeSubmodule() = default;
  virtual ~NodeSubmodule() = default;

  NodeSubmodule(const NodeSubmodule&) = delete;
  NodeSubmodule& operator=(const NodeSubmodule&) = delete;

  // Once at load: the layers look up the resources they call. Throws when one is missing.
  virtual void bind_node_resources(const NodeResources& resources);

  // One request's inputs to this step from what arrived on its edges. Null vetoes the step: the
  // node completes without outputs. May read and write the request's state; must set
  // input_seq_len where resources grow by it. Reads no device values of the step before.
  virtual std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                                     const CurrentForwardPassInfo& info,
                                                     const NamedTensors& inputs,
                                                     const PrepareContext& context) = 0;

  // This request's inputs restricted to tokens [begin, end) of the whole: a chunk of a prefill.
  // The default refuses with Error(kUnsupported).
  virtual std::unique_ptr<NodeInputs> split_inputs(std::string_view graph_walk,
                                                   const CurrentForwardPassInfo& info,
                                                   const NodeInputs& inputs,
                                                   int64_t begin,
                                                   int64_t end);

  // Whether a prefill of this walk may be cut into chunks. Scheduler thread.
  virtual bool supports_chunked_prefill(std::string_view graph_walk) const;

  // May these requests run as one forward_batched?
  virtual bool can_batch(const ExecutingBatch& batch, std::span<NodeInputs* const> inputs);

  // Most requests in one step of this walk. Scheduler thread.
  virtual int max_batch_size(std::string_view graph_walk) const;

  // Which of the walk's captures a batch belongs to; depends only on facts that hold for the
  // requests' whole life. Must equal the config's and the declared step's key (checked). Nothing:
  // run eagerly. Scheduler and executor thread: const.
  virtual std::optional<CaptureKey> capture_key(
      std::string_view graph_walk,
      std::span<const CurrentForwardPassInfo* const> infos) const;

  // Whether some capture could serve this batch; the default asks capture_configs.
  virtual bool can_use_graph_capture(const ExecutingBatch& batch,
                                     std::span<NodeInputs* const> inputs);

  // Whether the scheduler batches each capture key apart. Scheduler thread: const.
  virtual bool split_batches_by_capture_key(std::string_view graph_walk) const;

  // Fills in which resources the step touches and how: a pure function of its arguments. Row i of
  // `request_ids` (padding rows too) belongs to inputs[i]. `lease` is the slot that will be
  // replayed, null for an eager step; piecewise_leases likewise by region: what such a region
  // declares itself is left out here. False: the node uses no resources.
  virtual bool declare_step(std::string_view graph_walk,
                            std::span<const RequestHandle> request_ids,
                            std::span<const NodeInputs* const> inputs,
                            const SlotLease* lease,
                            std::span<const SlotLease* const> piecewise_leases,
                            SubmoduleStep& step);

  // Packs the requests' tensors after the step was planned. Runs on template rows too while a
  // capture is recorded (engine_inputs.captured): then it may not need per-request state.
  virtual ForwardArgs preprocess(std::string_view graph_walk,
                                 const ModelInputsFromEngine& engine_inputs,
                                 std::span<NodeInputs* const> inputs);

  // One request: tensors to named outputs, nothing else.
  virtual NamedTensors forward(std::string_view graph_walk,
                               const ModelInputsFromEngine& engine_inputs,
                               ForwardArgs& args) = 0;

  // Several requests; the default runs forward for a single one and refuses more. What is
  // captured is this function.
  virtual BatchedModelOutput forward_batched(std::string_view graph_walk,
                                             const ModelInputsFromEngine& engine_inputs,
                                             ForwardArgs& args);

  // Cuts packed outputs of a replayed graph by request; real rows only.
  virtual std::unordered_map<RequestHandle, NamedTensors> unpack_packed_outputs(
      const NamedTensors& packed_outputs,
      std::span<const RequestHandle> request_ids,
      std::span<const int64_t> real_seq_lens,
      std::span<NodeInputs* const> inputs,
      std::span<const CurrentForwardPassInfo* const> infos);

  // Drops what this request should not receive (a captured forward makes a fixed set).
  virtual void filter_batched_output(const CurrentForwardPassInfo& info, NamedTensors& outputs);

  // After the forward, per request, in place: renames outputs for routing, finishes a step that a
  // captured graph could not hold (guidance and a multistep scheduler).
  virtual void postprocess(const CurrentForwardPassInfo& info,
                           NamedTensors& outputs,
                           const NodeInputs* inputs);

  // Names of loops that end with this step. May read values. `metadata` is the step's.
  virtual void check_stop(const CurrentForwardPassInfo& info,
                          const NamedTensors& outputs,
                          const InputMetadata& metadata,
                          std::vector<std::string_view>& stopped_loops);

  // The same for the whole step from row-addressed outputs; stopped[i] collects request i's loops.
  // False: use check_stop. Must agree with it.
  virtual bool check_stop_batched(std::span<const CurrentForwardPassInfo* const> infos,
                                  const HostRows& rows,
                                  std::span<const InputMetadata> metadata,
                                  std::span<std::vector<std::string_view>> stopped);

  // What is captured at warm-up. Load time.
  virtual std::vector<CaptureConfig> get_capture_configs(Device device, int tp_world_size);
  virtual std::vector<PiecewiseConfig> get_piecewise_capture_configs(Device device,
                                                                     DType dtype,
                                                                     int tp_world_size);

  // Type the node's activations take instead of the engine's; nothing: the engine's.
  virtual std::optional<DType> get_activation_dtype() const;

  // The request's state, made at first access.
  PerRequestState& request_state(RequestHandle request) { return request_states_[request]; }

  bool has_request_state(RequestHandle request) const { return request_states_.contains(request); }

  // The request is gone: drops its state. Overrides call this one too.
  virtual void cleanup_request(RequestHandle request);

  size_t num_request_states() const { return request_states_.size(); }

 private:
  std::unordered_map<RequestHandle, PerRequestState> request_states_;
};

// A node whose inputs are tokens: language models, and towers that run as one.
class ARNodeSubmodule : public NodeSubmodule {
 public:
  // Cuts ids, embeddings and positions. Refuses (Error(kUnsupported)) inputs that carry tensors,
  // values or step info whose cut only the model knows.
  std::unique_ptr<NodeInputs> split_inputs(std::string_view graph_walk,
                                           const CurrentForwardPassInfo& info,
                                           const NodeInputs& inputs,
                                           int64_t begin,
                                           int64_t end) override;

  // Token inputs must be packed by the model.
  ForwardArgs preprocess(std::string_view graph_walk,
                         const ModelInputsFromEngine& engine_inputs,
                         std::span<NodeInputs* const> inputs) override = 0;
};

}  // namespace mstar

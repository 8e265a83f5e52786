#include "mstar/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/engine/piecewise_runner.h"
#include "mstar/graph/compile.h"

namespace mstar {

namespace {

// Steps in flight at the same time. A CPU stream has run its ops when enqueue returns, so the
// executor never holds two.
constexpr int kNumSlots = 1;

constexpr const char* kOutOfMemory = "[engine] out of memory";

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Runs `action`; an exception becomes the row's failure.
template <typename Action>
void guard_row(BatchRow& row, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    row.fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    row.fail(ErrorCode::kResourceExhausted, kOutOfMemory);
  } catch (const std::exception& error) {
    row.fail(ErrorCode::kInternal, error.what());
  }
}

}  // namespace

// A prefill that runs in chunks: prepared once, cut at every step.
struct ChunkedInputs {
  std::unique_ptr<NodeInputs> whole;
  int64_t done = 0;
  int64_t running = 0;  // tokens of the chunk in the current step
};

// Requests of one batch that run as one forward. A node's is used again and again and keeps its
// memory.
struct Engine::Group {
  std::vector<size_t> rows;         // indices into the batch
  std::vector<RequestHandle> ids;   // padded under a lease
  std::vector<NodeInputs*> inputs;  // parallel to ids
  std::vector<const NodeInputs*> const_inputs;
  std::vector<const CurrentForwardPassInfo*> infos;  // parallel to ids
  std::vector<InputMetadata> metadata;               // parallel to ids
  const SlotLease* lease = nullptr;
  bool declared = false;
  bool eager = false;  // no lease, whatever there is
  SubmoduleStep step;
  StepContext context;
  std::vector<NamedTensors> outputs;      // [rows] or more
  std::optional<NamedTensors> stop_rows;  // row-addressed; alias the forward's own tensors
  std::vector<std::vector<std::string_view>> stopped;

  // Lets go of the step's tensors.
  void clear() {
    for (NamedTensors& one : outputs) {
      one.clear();
    }
    stop_rows.reset();
    step.clear();
  }
};

struct Engine::Node {
  std::string name;
  std::unique_ptr<NodeSubmodule> submodule;
  NodeResources resources;
  std::unique_ptr<DummyRequests> dummies;
  std::unique_ptr<CaptureRunner> captures;
  size_t num_kept_rows = 0;  // padding rows that keep their pages: those of captures at warm-up
  std::vector<std::unique_ptr<PiecewiseRunner>> piecewise;
  std::vector<PiecewiseRunner*> piecewise_pointers;
  std::unordered_map<RequestHandle, ChunkedInputs> chunks;

  // Scratch of the running batch, parallel to its rows.
  std::vector<std::unique_ptr<NodeInputs>> inputs;
  std::vector<bool> partial;
  std::vector<size_t> live;
  std::vector<RequestHandle> live_ids;
  std::vector<const CurrentForwardPassInfo*> live_infos;
  std::vector<NodeInputs*> live_inputs;
  Group group;
};

Engine::Engine(Model& model,
               const std::vector<std::string>& nodes,
               Stream& stream,
               ThreadPool& pool,
               EngineOptions options)
    : stream_(stream), pool_(pool), options_(std::move(options)) {
  // No step has more rows than there are requests; the rest would be state that nobody uses.
  options_.num_capture_rows =
      std::min(options_.num_capture_rows, std::max(16, options_.max_num_requests));
  const std::vector<std::string> labels = model.get_labels();
  MSTAR_CHECK(!labels.empty() && labels.front() == "main");
  for (const std::string& label : labels) {
    labels_.intern(label);
  }
  for (const graph::WalkGraph& walk : model.get_graph_walk_graphs().walks) {
    walk_names_.intern(walk.name);
  }
  build_resources(model, nodes);
  load_nodes(model, nodes);
  const int32_t num_handles = options_.max_num_requests + options_.num_capture_rows;
  open_.assign(static_cast<size_t>(num_handles), false);
  for (RequestHandle handle = num_handles - 1; handle >= 0; --handle) {
    free_handles_.push_back(handle);
  }
}

Engine::~Engine() = default;

void Engine::build_resources(Model& model, const std::vector<std::string>& nodes) {
  std::vector<NodeResourceSpec> specs = model.get_node_resources();
  std::erase_if(specs, [&](const NodeResourceSpec& spec) {
    return !nodes.empty() && std::ranges::none_of(spec.nodes, [&](const std::string& node) {
      return std::ranges::find(nodes, node) != nodes.end();
    });
  });
  for (const NodeResourceSpec& spec : specs) {
    resource_names_.intern(spec.resource_key);
  }
  for (NodeResourceSpec& spec : specs) {
    follow_activations(options_.activation_dtype, spec.spec);
  }
  for (const auto& [key, overrides] : options_.resource_overrides) {
    const ResourceId id = resource_names_.get(key);  // throws listing the known keys
    apply_overrides(specs[static_cast<size_t>(id)].spec, overrides, str_cat("resources.", key));
  }
  resource_pointers_.assign(specs.size(), nullptr);
  const ResourceBuildInfo info{
      .labels = &labels_,
      .resources = &resource_pointers_,
      .resource_names = &resource_names_,
      .num_slots = kNumSlots,
      .max_num_requests = options_.max_num_requests + options_.num_capture_rows};
  // KV caches first: attention and positions look them up.
  resources_.resize(specs.size());
  for (const bool caches : {true, false}) {
    for (size_t index = 0; index < specs.size(); ++index) {
      if (std::holds_alternative<KVSpec>(specs[index].spec) == caches) {
        resources_[index] = build_resource(
            static_cast<ResourceId>(index), specs[index].resource_key, specs[index].spec, info);
        resource_pointers_[index] = resources_[index].get();
      }
    }
  }
  for (Resource* resource : resource_pointers_) {
    if (auto* cache = dynamic_cast<KvCache*>(resource)) {
      caches_.push_back(cache);
      usage_.push_back({cache->key(), cache->stats()});
    }
  }
  runner_ = std::make_unique<StepRunner>(resource_pointers_);

  for (const NodeResourceSpec& spec : specs) {
    for (const std::string& name : spec.nodes) {
      Node* node = find_node(name);
      if (node == nullptr) {
        nodes_.push_back(std::make_unique<Node>());
        node = nodes_.back().get();
        node->name = name;
      }
      const ResourceId id = resource_names_.get(spec.resource_key);
      node->resources.add(spec.resource_key, id, resource_pointers_[static_cast<size_t>(id)]);
    }
  }
}

void Engine::load_nodes(Model& model, const std::vector<std::string>& nodes) {
  std::vector<std::string> wanted = nodes;
  if (wanted.empty()) {
    for (const std::string& name : graph::compile(model.get_graph_walk_graphs()).nodes) {
      wanted.push_back(name);
    }
  }
  std::erase_if(nodes_, [&](const auto& node) {
    return std::ranges::find(wanted, node->name) == wanted.end();
  });
  const LoadContext context{.pool = pool_,
                            .stream = stream_,
                            .activation_dtype = options_.activation_dtype,
                            .quantization = options_.quantization,
                            .progress = options_.progress};
  for (const std::string& name : wanted) {
    Node* node = find_node(name);
    if (node == nullptr) {
      nodes_.push_back(std::make_unique<Node>());
      node = nodes_.back().get();
      node->name = name;
    }
    node->submodule = model.get_submodule(name, context);
    MSTAR_CHECK(node->submodule != nullptr, "node=", name);
    node->submodule->bind_node_resources(node->resources);
  }
}

void Engine::warmup() {
  if (!options_.graph_capture) {
    return;
  }
  const auto memory = std::make_shared<CachingAllocator>();
  CaptureLimits limits;
  std::vector<std::pair<Node*, std::vector<CaptureConfig>>> wanted;
  int max_bs = 0;
  for (const auto& node : nodes_) {
    auto configs = node->submodule->get_capture_configs(stream_.device(), 1);
    for (const CaptureConfig& config : configs) {
      for (const int bs : config.capture_batch_sizes) {
        max_bs = std::max(max_bs, bs);
      }
    }
    auto regions = node->submodule->get_piecewise_capture_configs(
        stream_.device(), options_.activation_dtype, 1);
    for (const PiecewiseConfig& config : regions) {
      for (const int bs : config.capture_batch_sizes) {
        max_bs = std::max(max_bs, bs);
      }
    }
    wanted.emplace_back(node.get(), std::move(configs));
  }
  // Dummy rows take the highest handles for good; they are opened with defaults.
  std::vector<RequestHandle> handles;
  while (static_cast<int>(handles.size()) < std::min(max_bs, options_.num_capture_rows)) {
    handles.push_back(free_handles_.front());
    free_handles_.erase(free_handles_.begin());
    open_[static_cast<size_t>(handles.back())] = true;
    runner_->ingest_request(handles.back(), {});
  }
  const auto dummies = std::make_shared<DummyRequests>(handles);
  for (auto& [node, configs] : wanted) {
    for (CaptureConfig& config : configs) {
      std::erase_if(config.capture_batch_sizes,
                    [&](int bs) { return bs > static_cast<int>(handles.size()); });
      for (const int bs : config.capture_batch_sizes) {
        node->num_kept_rows =
            std::max(node->num_kept_rows, config.lazy ? 0 : static_cast<size_t>(bs));
      }
    }
    node->dummies = std::make_unique<DummyRequests>(*dummies);
    const CaptureEnvironment environment{
        *node->submodule, node->resources, *runner_, stream_, walk_names_, *node->dummies, memory};
    for (PiecewiseConfig& region : node->submodule->get_piecewise_capture_configs(
             stream_.device(), options_.activation_dtype, 1)) {
      node->piecewise.push_back(std::make_unique<PiecewiseRunner>(environment, std::move(region)));
      node->piecewise_pointers.push_back(node->piecewise.back().get());
    }
    if (!configs.empty()) {
      node->captures = std::make_unique<CaptureRunner>(environment, std::move(configs), kNumSlots);
      const CaptureLimits own = node->captures->limits();
      limits.max_bs = std::max(limits.max_bs, own.max_bs);
      limits.max_num_tokens = std::max(limits.max_num_tokens, own.max_num_tokens);
    }
  }
  for (int label = 0; label < labels_.size(); ++label) {
    limits.labels.push_back(label);
  }
  for (Resource* resource : resource_pointers_) {
    resource->build_capture_buffers(limits);
  }
  for (const auto& node : nodes_) {
    for (const auto& region : node->piecewise) {
      region->capture_all();
    }
    if (node->captures != nullptr) {
      node->captures->capture_all(options_.require_captures);
    }
  }
  note_usage();
}

std::optional<RequestHandle> Engine::try_ingest_request(
    const std::map<std::string, RequestResourceConfig, std::less<>>& configs) {
  if (free_handles_.empty() || stats_.num_open_requests >= options_.max_num_requests) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[engine] ", options_.max_num_requests, " requests are open already"));
  }
  const RequestHandle handle = free_handles_.back();
  std::vector<RequestResourceConfig> by_id(resources_.size());
  for (const auto& [key, config] : configs) {
    // A resource of nodes that another worker hosts is not ours to open.
    if (const ResourceId id = resource_names_.find(key); id >= 0) {
      by_id[static_cast<size_t>(id)] = config;
    }
  }
  runner_->ingest_request(handle, by_id);
  for (KvCache* cache : caches_) {
    AdmitOutcome outcome = cache->admit_request(handle);
    if (!outcome) {
      runner_->remove_request(handle);
      if (outcome.is_terminal()) {
        throw Error(ErrorCode::kInvalidArgument, outcome.message);
      }
      return std::nullopt;
    }
  }
  for (KvCache* cache : caches_) {
    if (cache->spec().prefix_cache) {
      runner_->apply_cached_prefix(cache->id(), handle, kMainLabel);
    }
  }
  free_handles_.pop_back();
  open_[static_cast<size_t>(handle)] = true;
  ++stats_.num_open_requests;
  note_usage();
  return handle;
}

void Engine::note_usage() {
  const std::lock_guard lock(usage_mutex_);
  for (size_t index = 0; index < caches_.size(); ++index) {
    usage_[index].stats = caches_[index]->stats();
  }
}

std::vector<KvUsage> Engine::kv_usage() const {
  const std::lock_guard lock(usage_mutex_);
  return usage_;
}

void Engine::remove_request(RequestHandle request) {
  MSTAR_CHECK(request >= 0 && open_[static_cast<size_t>(request)], "request=", request);
  abandon_chunks(request);
  for (const auto& node : nodes_) {
    node->submodule->cleanup_request(request);
  }
  runner_->remove_request(request);
  open_[static_cast<size_t>(request)] = false;
  free_handles_.push_back(request);
  --stats_.num_open_requests;
  note_usage();
}

void Engine::abandon_chunks(RequestHandle request) {
  for (const auto& node : nodes_) {
    node->chunks.erase(request);
  }
}

PublishedInfo Engine::publish(RequestHandle request) const {
  return runner_->publish(request);
}

Engine::Node* Engine::find_node(std::string_view node) const {
  for (const auto& candidate : nodes_) {
    if (candidate->name == node) {
      return candidate.get();
    }
  }
  return nullptr;
}

const NodeSubmodule& Engine::submodule(std::string_view node) const {
  const Node* found = find_node(node);
  MSTAR_CHECK(found != nullptr, "node=", node);
  return *found->submodule;
}

int Engine::max_batch_size(std::string_view node, std::string_view graph_walk) const {
  const Node* found = find_node(node);
  MSTAR_CHECK(found != nullptr, "node=", node);
  const int own = std::max(1, found->submodule->max_batch_size(graph_walk));
  const int cap = found->captures != nullptr ? found->captures->eager_batch_cap(graph_walk) : 0;
  return cap > 0 ? std::min(own, cap) : own;
}

int Engine::num_captures() const {
  int count = 0;
  for (const auto& node : nodes_) {
    count += node->captures != nullptr ? node->captures->num_buckets() : 0;
  }
  return count;
}

Resource* Engine::find_resource(std::string_view key) const {
  const ResourceId id = resource_names_.find(key);
  return id < 0 ? nullptr : resource_pointers_[static_cast<size_t>(id)];
}

void Engine::execute(StepBatch& batch) {
  const auto start = std::chrono::steady_clock::now();
  Node* node = find_node(batch.node);
  MSTAR_CHECK(node != nullptr && !batch.rows.empty(), "node=", batch.node);
  prepare_rows(*node, batch);

  node->live.clear();
  node->live_ids.clear();
  node->live_infos.clear();
  node->live_inputs.clear();
  for (size_t index = 0; index < batch.rows.size(); ++index) {
    if (batch.rows[index].status == RowStatus::kPending) {
      node->live.push_back(index);
      node->live_ids.push_back(batch.rows[index].request);
      node->live_infos.push_back(batch.rows[index].info);
      node->live_inputs.push_back(node->inputs[index].get());
    }
  }
  const std::span<const size_t> live = node->live;
  const ExecutingBatch executing{batch.node, batch.graph_walk, node->live_ids, node->live_infos};
  if (live.size() <= 1 || node->submodule->can_batch(executing, node->live_inputs)) {
    if (!live.empty()) {
      run_group(*node, batch, live);
    }
  } else {
    for (size_t row = 0; row < live.size(); ++row) {
      run_group(*node, batch, live.subspan(row, 1));
    }
  }
  node->inputs.clear();
  ++stats_.num_steps;
  stats_.num_captured_steps += batch.num_captured_steps;
  stats_.num_eager_steps += batch.num_eager_steps;
  for (const BatchRow& row : batch.rows) {
    stats_.num_deferred_rows += row.status == RowStatus::kDeferred ? 1 : 0;
    stats_.num_failed_rows += row.status == RowStatus::kFailed ? 1 : 0;
  }
  note_usage();
  batch.begin = start;
  batch.seconds = seconds_since(start);
}

void Engine::prepare_rows(Node& node, StepBatch& batch) {
  node.inputs.clear();
  node.inputs.resize(batch.rows.size());
  node.partial.assign(batch.rows.size(), false);
  for (size_t index = 0; index < batch.rows.size(); ++index) {
    BatchRow& row = batch.rows[index];
    MSTAR_DCHECK(row.status == RowStatus::kPending && open_[static_cast<size_t>(row.request)]);
    guard_row(row, [&] { prepare_row(node, batch, row, index); });
  }
}

void Engine::prepare_row(Node& node, StepBatch& batch, BatchRow& row, size_t index) {
  const PrepareContext context{row.metadata, node.resources, stream_};
  auto it = node.chunks.find(row.request);
  if (it == node.chunks.end()) {
    auto whole = node.submodule->prepare_inputs(batch.graph_walk, *row.info, row.inputs, context);
    if (whole == nullptr) {
      row.status = RowStatus::kVetoed;
      return;
    }
    const bool chunked = row.max_tokens > 0 && whole->input_seq_len > row.max_tokens &&
                         node.submodule->supports_chunked_prefill(batch.graph_walk);
    if (!chunked) {
      node.inputs[index] = std::move(whole);
      return;
    }
    it = node.chunks.emplace(row.request, ChunkedInputs{std::move(whole)}).first;
  }
  ChunkedInputs& chunks = it->second;
  const int64_t left = chunks.whole->input_seq_len - chunks.done;
  chunks.running = row.max_tokens > 0 ? std::min(row.max_tokens, left) : left;
  node.inputs[index] = node.submodule->split_inputs(
      batch.graph_walk, *row.info, *chunks.whole, chunks.done, chunks.done + chunks.running);
  node.partial[index] = chunks.running < left;
}

void Engine::build_group(Node& node, StepBatch& batch, Group& group) {
  group.ids.clear();
  group.inputs.clear();
  group.infos.clear();
  group.metadata.resize(std::max(group.metadata.size(), group.rows.size()));
  group.lease = nullptr;
  int64_t num_tokens = 0;
  for (const size_t row : group.rows) {
    group.ids.push_back(batch.rows[row].request);
    group.inputs.push_back(node.inputs[row].get());
    group.infos.push_back(batch.rows[row].info);
    group.metadata[group.ids.size() - 1] = batch.rows[row].metadata;
    num_tokens += node.inputs[row]->input_seq_len;
  }
  const ExecutingBatch executing{batch.node, batch.graph_walk, group.ids, group.infos};
  const auto key = node.submodule->capture_key(batch.graph_walk, group.infos);
  if (node.captures != nullptr && !group.eager && key.has_value() &&
      node.submodule->can_use_graph_capture(executing, group.inputs)) {
    group.lease = node.captures->reserve(
        walk_names_.get(batch.graph_walk), static_cast<int>(group.rows.size()), num_tokens, *key);
  }
  const auto num_real = static_cast<int32_t>(group.ids.size());
  if (group.lease != nullptr) {
    for (int row = num_real; row < group.lease->bucket.bs; ++row) {
      group.ids.push_back((*node.dummies)[row]);
      group.inputs.push_back(&node.captures->template_inputs(*group.lease, row));
      group.infos.push_back(group.infos.front());
    }
  }
  group.metadata.resize(std::max(group.metadata.size(), group.ids.size()));
  for (size_t row = group.rows.size(); row < group.ids.size(); ++row) {
    group.metadata[row].clear();
  }
  group.const_inputs.assign(group.inputs.begin(), group.inputs.end());
  group.context.request_ids.assign(group.ids.begin(), group.ids.end());
  group.context.num_real = num_real;
  group.context.graph_walk = walk_names_.get(batch.graph_walk);
  group.context.slot = group.lease != nullptr ? group.lease->slot : 0;
  group.context.lease =
      group.lease != nullptr ? std::optional<SlotLease>(*group.lease) : std::nullopt;
  group.step.clear();
  group.declared = node.submodule->declare_step(
      batch.graph_walk, group.ids, group.const_inputs, group.lease, {}, group.step);
  if (group.lease != nullptr && group.declared &&
      !(group.step.capture_key == group.lease->bucket.key)) {
    throw Error(ErrorCode::kInternal,
                str_cat("[",
                        batch.node,
                        "] the step declares capture key ",
                        to_string(group.step.capture_key),
                        ", its lease is for ",
                        to_string(group.lease->bucket)));
  }
}

// Admits the group, leaving out rows that a resource refuses. False: nobody is left.
bool Engine::admit_group(Node& node, StepBatch& batch, Group& group) {
  while (!group.rows.empty()) {
    build_group(node, batch, group);
    if (!group.declared) {
      return true;
    }
    AdmitOutcome outcome = runner_->admit(group.step, group.context);
    if (outcome) {
      return true;
    }
    if (group.ids.size() > group.rows.size()) {  // nobody waits for the sake of padding
      group.eager = true;
      continue;
    }
    auto refused = std::ranges::find_if(
        group.rows, [&](size_t row) { return batch.rows[row].request == outcome.request; });
    if (refused == group.rows.end()) {
      refused = group.rows.end() - 1;  // nobody named: the last comer waits
    }
    BatchRow& row = batch.rows[*refused];
    if (outcome.is_terminal()) {
      row.fail(ErrorCode::kInvalidArgument, outcome.message);
    } else {
      row.status = RowStatus::kDeferred;
      row.refusal = std::move(outcome);
    }
    group.rows.erase(refused);
  }
  return false;
}

void Engine::run_group(Node& node, StepBatch& batch, std::span<const size_t> rows) {
  Group& group = node.group;
  group.rows.assign(rows.begin(), rows.end());
  group.declared = false;
  group.eager = false;
  enum class Phase { kAdmit, kPlanned, kCommitted } phase = Phase::kAdmit;
  const auto fail_all = [&](ErrorCode code, const std::string& message) {
    if (group.declared && phase == Phase::kPlanned) {
      runner_->rollback(group.step, group.context);
    }
    for (const size_t row : group.rows) {
      batch.rows[row].fail(code, message);
      node.chunks.erase(batch.rows[row].request);
    }
  };
  try {
    if (!admit_group(node, batch, group)) {
      group.clear();
      return;
    }
    phase = Phase::kPlanned;
    if (group.declared) {
      runner_->plan(group.step, group.context);
      runner_->stage(stream_, group.step, group.context);
    }
    forward_group(node, batch, group);
    phase = Phase::kCommitted;
    if (group.declared) {
      runner_->commit(group.step, group.context);
      runner_->finish(group.step, group.context);
      // Padding rows were committed like the others: back to their start, or they would grow with
      // every step.
      for (size_t row = group.rows.size(); row < group.ids.size(); ++row) {
        const bool free = node.captures->is_lazy(*group.lease) && row >= node.num_kept_rows;
        runner_->reset_request(group.ids[row], free);
      }
    }
    finish_rows(node, batch, group);
  } catch (const Error& error) {
    fail_all(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    fail_all(ErrorCode::kResourceExhausted, kOutOfMemory);
  } catch (const std::exception& error) {
    fail_all(ErrorCode::kInternal, error.what());
  }
  group.clear();
}

void Engine::forward_group(Node& node, StepBatch& batch, Group& group) {
  ModelInputsFromEngine engine_inputs;
  engine_inputs.request_ids = group.ids;
  engine_inputs.per_request_info = group.infos;
  engine_inputs.resources = &node.resources;
  engine_inputs.piecewise_runners = node.piecewise_pointers;
  engine_inputs.per_request_states = LazyRequestStates(node.submodule.get(), group.ids);
  engine_inputs.step = group.declared ? &group.step : nullptr;
  engine_inputs.context = &group.context;
  engine_inputs.per_request_input_metadata = std::span(group.metadata).first(group.ids.size());
  engine_inputs.stream = &stream_;
  ForwardArgs args = node.submodule->preprocess(batch.graph_walk, engine_inputs, group.inputs);

  const auto start = std::chrono::steady_clock::now();
  const size_t num_real = group.rows.size();
  group.outputs.resize(std::max(group.outputs.size(), num_real));
  if (group.lease == nullptr) {
    BatchedModelOutput output;
    if (num_real == 1) {
      output.per_rid_outputs.emplace(
          group.ids.front(), node.submodule->forward(batch.graph_walk, engine_inputs, args));
    } else {
      output = node.submodule->forward_batched(batch.graph_walk, engine_inputs, args);
    }
    stream_.synchronize();
    batch.kernel_seconds += seconds_since(start);
    ++batch.num_eager_steps;
    if (!output.per_rid_outputs.empty()) {
      for (size_t row = 0; row < num_real; ++row) {
        group.outputs[row] = output.pop(group.ids[row]);
      }
    }
    if (output.row_outputs) {
      for (const auto& [name, list] : *output.row_outputs) {
        for (size_t row = 0; row < num_real; ++row) {
          const int64_t index = output.row_of(group.ids[row], row);
          group.outputs[row].set(name, list.front().slice(0, index, index + 1));
        }
      }
    }
    group.stop_rows = std::move(output.check_stop_buffers);
    return;
  }

  const BatchedModelOutput& output = node.captures->replay(*group.lease, args);
  stream_.synchronize();
  batch.kernel_seconds += seconds_since(start);
  ++batch.num_captured_steps;
  const auto recorded = node.captures->recorded_ids(*group.lease);
  for (size_t row = 0; row < num_real && !output.per_rid_outputs.empty(); ++row) {
    if (const NamedTensors* mine = output.get(recorded[row])) {
      for (const auto& [name, list] : *mine) {
        TensorList copies;
        for (const Tensor& tensor : list) {
          copies.push_back(tensor.copy(stream_.allocator()));
        }
        group.outputs[row].set(name, std::move(copies));
      }
    }
  }
  // Rows in an order of their own may lie behind the real ones.
  const int64_t num_rows = output.row_request_ids ? group.lease->bucket.bs : std::ssize(group.rows);
  for (auto& [name, list] : output.clone_row_outputs(num_rows)) {
    for (size_t row = 0; row < num_real; ++row) {
      const int64_t index = output.row_of(recorded[row], row);
      group.outputs[row].set(name, list.front().slice(0, index, index + 1));
    }
  }
  if (!output.packed_outputs.empty()) {
    std::vector<int64_t> seq_lens;
    for (size_t row = 0; row < num_real; ++row) {
      seq_lens.push_back(group.inputs[row]->input_seq_len);
    }
    auto unpacked = node.submodule->unpack_packed_outputs(output.packed_outputs,
                                                          std::span(group.ids).first(num_real),
                                                          seq_lens,
                                                          std::span(group.inputs).first(num_real),
                                                          std::span(group.infos).first(num_real));
    for (size_t row = 0; row < num_real; ++row) {
      for (auto& [name, list] : unpacked[group.ids[row]]) {
        group.outputs[row].set(name, std::move(list));
      }
    }
  }
  group.stop_rows = output.check_stop_buffers;  // read before the next replay
}

void Engine::finish_rows(Node& node, StepBatch& batch, Group& group) {
  for (size_t position = 0; position < group.rows.size(); ++position) {
    const size_t index = group.rows[position];
    BatchRow& row = batch.rows[index];
    batch.num_tokens += node.inputs[index]->input_seq_len;
    const auto chunk = node.chunks.find(row.request);
    if (chunk != node.chunks.end()) {
      chunk->second.done += chunk->second.running;
      if (node.partial[index]) {
        row.status = RowStatus::kPartial;
        continue;
      }
      node.chunks.erase(chunk);
    }
    row.status = RowStatus::kDone;
    std::swap(row.outputs, group.outputs[position]);
    guard_row(row, [&] {
      node.submodule->filter_batched_output(*row.info, row.outputs);
      node.submodule->postprocess(*row.info, row.outputs, node.inputs[index].get());
    });
  }
  check_stops(node, batch, group);
}

void Engine::check_stops(Node& node, StepBatch& batch, Group& group) {
  const size_t num_real = group.rows.size();
  const bool all_done = std::ranges::all_of(
      group.rows, [&](size_t index) { return batch.rows[index].status == RowStatus::kDone; });
  if (all_done && group.stop_rows) {
    group.stopped.resize(std::max(group.stopped.size(), num_real));
    for (auto& stopped : group.stopped) {
      stopped.clear();
    }
    const HostRows rows{std::span(group.ids).first(num_real), *group.stop_rows};
    bool answered = false;
    try {
      answered = node.submodule->check_stop_batched(std::span(group.infos).first(num_real),
                                                    rows,
                                                    std::span(group.metadata).first(num_real),
                                                    std::span(group.stopped).first(num_real));
    } catch (const std::exception&) {
      answered = false;  // the per-request form below says whose fault it is
    }
    if (answered) {
      for (size_t position = 0; position < num_real; ++position) {
        std::swap(batch.rows[group.rows[position]].stopped_loops, group.stopped[position]);
      }
      return;
    }
  }
  for (size_t position = 0; position < num_real; ++position) {
    BatchRow& row = batch.rows[group.rows[position]];
    if (row.status != RowStatus::kDone) {
      continue;
    }
    guard_row(row, [&] {
      if (!group.stop_rows) {
        node.submodule->check_stop(*row.info, row.outputs, row.metadata, row.stopped_loops);
        return;
      }
      // The request's part of what the batched form reads goes with its outputs.
      NamedTensors seen = row.outputs;
      for (const auto& [name, list] : *group.stop_rows) {
        const auto at = static_cast<int64_t>(position);
        seen.set(name, list.front().slice(0, at, at + 1));
      }
      node.submodule->check_stop(*row.info, seen, row.metadata, row.stopped_loops);
    });
  }
}

}  // namespace mstar

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/engine/capture_runner.h"
#include "mstar/engine/model.h"
#include "mstar/engine/step_batch.h"
#include "mstar/engine/submodule.h"
#include "mstar/resources/kv_cache.h"
#include "mstar/resources/resource.h"
#include "mstar/resources/step_runner.h"

namespace mstar {

struct EngineOptions {
  DType activation_dtype = DType::kF32;
  std::string quantization;  // "" or "int8"
  bool graph_capture = true;
  bool require_captures = false;  // a capture that fails stops the start
  int32_t max_num_requests = 64;  // requests that may be open at the same time
  int32_t num_capture_rows = 64;  // rows of the largest capture: further requests, for padding
  std::map<std::string, Json> resource_overrides;  // by key, from the deployment's file
  LoadProgress progress;
};

// Counters since the start; what /metrics shows of an engine.
struct EngineStats {
  int64_t num_steps = 0;
  int64_t num_captured_steps = 0;
  int64_t num_eager_steps = 0;
  int64_t num_deferred_rows = 0;
  int64_t num_failed_rows = 0;
  int64_t num_open_requests = 0;
};

// Where the pages of one KV cache are.
struct KvUsage {
  std::string resource_key;
  KvStats stats;
};

// Loads the submodules of the nodes a worker hosts, owns their resources and runs their steps:
//   declare → reserve → plan → preprocess → forward → commit → collect → postprocess → check_stop
// One thread: the worker's executor (load and warm-up may run on another before it starts).
class Engine {
 public:
  // `nodes` empty: all nodes of the model. Throws what loading throws.
  Engine(Model& model,
         const std::vector<std::string>& nodes,
         Stream& stream,
         ThreadPool& pool,
         EngineOptions options);
  ~Engine();

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Captures what the submodules ask for. Once, before the first step.
  void warmup();

  // Opens a request's state in every resource and takes over what the prefix cache holds of its
  // prompt. Nothing: a KV cache could not keep its promise to all open requests; try again when
  // one has gone. Throws Error(kInvalidArgument) when a resource refuses the configuration or the
  // request can never fit, and Error(kResourceExhausted) when no handle is free. Unless a handle
  // is returned, nothing is open.
  std::optional<RequestHandle> try_ingest_request(
      const std::map<std::string, RequestResourceConfig, std::less<>>& configs);

  // Gives everything back. No step may hold the request.
  void remove_request(RequestHandle request);

  // Runs the batch. Never throws for what a request caused: each row says how it fared.
  void execute(StepBatch& batch);

  // Forgets a half-run chunked prefill and whatever else the node holds between its steps.
  void abandon_chunks(RequestHandle request);

  // Outward state of a request's resources.
  PublishedInfo publish(RequestHandle request) const;

  // What the scheduler asks. Immutable after load: any thread.
  bool hosts(std::string_view node) const { return find_node(node) != nullptr; }

  const NodeSubmodule& submodule(std::string_view node) const;
  int max_batch_size(std::string_view node, std::string_view graph_walk) const;
  int num_captures() const;  // steps recorded at warm-up

  const LabelTable& labels() const { return labels_; }

  // Null when there is none.
  Resource* find_resource(std::string_view key) const;

  EngineStats stats() const { return stats_; }

  // As it was after the last step, opening or removal. Any thread.
  std::vector<KvUsage> kv_usage() const;

  Stream& stream() { return stream_; }

 private:
  struct Node;
  struct Group;

  Node* find_node(std::string_view node) const;
  void note_usage();
  void build_resources(Model& model, const std::vector<std::string>& nodes);
  void load_nodes(Model& model, const std::vector<std::string>& nodes);

  void prepare_rows(Node& node, StepBatch& batch);
  void prepare_row(Node& node, StepBatch& batch, BatchRow& row, size_t index);
  void run_group(Node& node, StepBatch& batch, std::span<const size_t> rows);
  bool admit_group(Node& node, StepBatch& batch, Group& group);
  void build_group(Node& node, StepBatch& batch, Group& group);
  void forward_group(Node& node, StepBatch& batch, Group& group);
  void finish_rows(Node& node, StepBatch& batch, Group& group);
  void check_stops(Node& node, StepBatch& batch, Group& group);

  Stream& stream_;
  ThreadPool& pool_;
  EngineOptions options_;
  LabelTable labels_;
  NameTable resource_names_{"resource"};
  NameTable walk_names_{"walk"};
  std::vector<std::unique_ptr<Resource>> resources_;  // by ResourceId
  std::vector<Resource*> resource_pointers_;
  std::vector<KvCache*> caches_;
  std::unique_ptr<StepRunner> runner_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<RequestHandle> free_handles_;
  std::vector<bool> open_;  // by handle
  EngineStats stats_;

  mutable std::mutex usage_mutex_;
  std::vector<KvUsage> usage_;  // guarded by usage_mutex_
};

}  // namespace mstar

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mstar/base/thread_pool.h"
#include "mstar/engine/engine.h"
#include "mstar/engine/model.h"
#include "mstar/runtime/conductor/conductor.h"
#include "mstar/runtime/deployment.h"
#include "mstar/runtime/worker/worker.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

struct RuntimeOptions {
  EngineOptions engine;
  int num_threads = 0;  // of the compute pool; 0: the machine's processors
  int64_t max_queued_requests = 256;
  int64_t max_batch_tokens = 512;
  int64_t memory_bytes = 0;  // for weights and pools, checked before they are made; 0: unchecked
  std::vector<RuntimeListener*> listeners{};  // outlive the runtime
};

// A model being served in this process: workers with their engines and schedulers, and the
// conductor that leads requests through them. Construction loads and warms up; then submit() and
// the rest may be called from any thread. Destruction cancels what still runs.
class Runtime {
 public:
  // `model` outlives the runtime. Throws what loading throws.
  Runtime(Model& model, const Deployment& deployment, RuntimeOptions options);
  ~Runtime();

  Conductor& conductor() { return *conductor_; }

  const graph::CompiledModel& graph() const { return graph_; }

  ThreadPool& pool() { return pool_; }

  int num_workers() const { return static_cast<int>(workers_.size()); }

  // Of worker `worker`. Its submodules and resources may be looked at while nothing runs.
  const Engine& engine(int worker) const { return *workers_[static_cast<size_t>(worker)].engine; }

  std::vector<Scheduler::Stats> scheduler_stats() const;

  // Steps captured at warm-up by worker `w`.
  int num_captures(int worker) const {
    return workers_[static_cast<size_t>(worker)].engine->num_captures();
  }

  // KV caches of worker `w`.
  std::vector<KvUsage> kv_usage(int worker) const {
    return workers_[static_cast<size_t>(worker)].engine->kv_usage();
  }

 private:
  // Everything of one worker, in order of construction.
  struct Rank {
    std::unique_ptr<CpuStream> stream;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Scheduler> scheduler;
    std::unique_ptr<Worker> worker;
  };

  ThreadPool pool_;
  graph::CompiledModel graph_;
  std::vector<Rank> workers_;
  std::unique_ptr<Conductor> conductor_;
};

}  // namespace mstar

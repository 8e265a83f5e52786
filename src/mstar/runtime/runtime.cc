#include "mstar/runtime/runtime.h"

#include "mstar/base/str_cat.h"
#include "mstar/runtime/memory_check.h"

namespace mstar {

namespace {

// What the scheduler asks of an engine, by name.
NodePolicy policy_of(const Engine& engine) {
  NodePolicy policy;
  policy.max_batch_size = [&engine](std::string_view node, std::string_view walk) {
    return engine.max_batch_size(node, walk);
  };
  policy.supports_chunked_prefill = [&engine](std::string_view node, std::string_view walk) {
    return engine.submodule(node).supports_chunked_prefill(walk);
  };
  policy.split_key = [&engine](std::string_view node, const CurrentForwardPassInfo& info) {
    const NodeSubmodule& submodule = engine.submodule(node);
    if (!submodule.split_batches_by_capture_key(info.graph_walk)) {
      return std::string();
    }
    const CurrentForwardPassInfo* infos[] = {&info};
    const auto key = submodule.capture_key(info.graph_walk, infos);
    return key ? to_string(*key) : std::string("eager");
  };
  return policy;
}

// Nothing is allocated that would not fit.
void check_plan(const Model& model,
                const std::vector<std::vector<std::string>>& nodes,
                ThreadPool& pool,
                const RuntimeOptions& options) {
  if (options.memory_bytes <= 0) {
    return;
  }
  CpuStream stream(pool);
  const LoadContext context{.pool = pool,
                            .stream = stream,
                            .activation_dtype = options.engine.activation_dtype,
                            .quantization = options.engine.quantization,
                            .progress = {}};
  std::vector<MemoryItem> plan;
  for (const std::vector<std::string>& of_worker : nodes) {
    for (MemoryItem& item :
         plan_memory(model, of_worker, context, options.engine.resource_overrides)) {
      plan.push_back(std::move(item));
    }
  }
  check_memory(plan, options.memory_bytes);
}

}  // namespace

Runtime::Runtime(Model& model, const Deployment& deployment, RuntimeOptions options)
    : pool_(options.num_threads), graph_(graph::compile(model.get_graph_walk_graphs())) {
  const std::vector<graph::WalkPlacement> placements = place(graph_, deployment);
  const auto nodes = nodes_by_worker(graph_, placements);
  options.engine.resource_overrides = deployment.resources;
  options.engine.max_num_requests = static_cast<int32_t>(deployment.max_concurrent_requests);
  check_plan(model, nodes, pool_, options);
  workers_.resize(nodes.size());
  std::vector<Scheduler*> schedulers;
  for (size_t index = 0; index < nodes.size(); ++index) {
    Rank& rank = workers_[index];
    rank.stream = std::make_unique<CpuStream>(pool_);
    rank.engine =
        std::make_unique<Engine>(model, nodes[index], *rank.stream, pool_, options.engine);
    rank.engine->warmup();
    rank.scheduler = std::make_unique<Scheduler>(
        graph_,
        placements,
        policy_of(*rank.engine),
        SchedulerOptions{.worker = static_cast<int>(index),
                         .max_batch_tokens = options.max_batch_tokens,
                         .listeners = options.listeners},
        [this](std::vector<WorkerEvent>& events) { conductor_->on_worker_events(events); },
        [this](std::vector<RemoteMessage>& messages) {
          for (RemoteMessage& message : messages) {
            workers_[static_cast<size_t>(message.worker)].scheduler->deliver(std::move(message));
          }
        });
    schedulers.push_back(rank.scheduler.get());
  }
  conductor_ = std::make_unique<Conductor>(
      model,
      graph_,
      placements,
      schedulers,
      ConductorOptions{.max_concurrent_requests = deployment.max_concurrent_requests,
                       .max_queued_requests = options.max_queued_requests,
                       .listeners = options.listeners});
  for (Rank& rank : workers_) {
    rank.worker = std::make_unique<Worker>(*rank.engine, *rank.scheduler);
  }
}

Runtime::~Runtime() {
  conductor_->drain(std::chrono::milliseconds(0));
  for (Rank& rank : workers_) {
    rank.scheduler->stop();
  }
  for (Rank& rank : workers_) {
    rank.worker.reset();
  }
  conductor_.reset();  // after its last event sender
}

std::vector<Scheduler::Stats> Runtime::scheduler_stats() const {
  std::vector<Scheduler::Stats> stats;
  for (const Rank& rank : workers_) {
    stats.push_back(rank.scheduler->stats());
  }
  return stats;
}

}  // namespace mstar

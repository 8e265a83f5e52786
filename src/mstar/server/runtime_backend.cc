#include "mstar/server/runtime_backend.h"

#include "mstar/base/str_cat.h"
#include "mstar/server/metrics.h"

namespace mstar {

namespace {

class TicketRequest final : public RunningRequest {
 public:
  explicit TicketRequest(Service::Ticket ticket) : ticket_(std::move(ticket)) {}

  void cancel() override { ticket_.cancel(); }

  void set_paused(bool paused) override { ticket_.set_paused(paused); }

 private:
  Service::Ticket ticket_;
};

// Seeds that have nothing to do with each other (SplitMix64), as positive JSON integers.
int64_t mix_seed(uint64_t seed, uint64_t number) {
  uint64_t bits = seed + (number + 1) * 0x9E3779B97F4A7C15ULL;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<int64_t>((bits ^ (bits >> 31)) >> 1);
}

void append_conductor(const Conductor::Stats& stats, MetricsText& out) {
  const auto gauge = [&](std::string_view name, std::string_view help, int64_t value) {
    out.add(name, "gauge", help, static_cast<double>(value));
  };
  gauge("mstar_requests_running", "Requests on the workers.", stats.num_running);
  gauge("mstar_requests_waiting", "Requests in the queue.", stats.num_queued);
  out.begin("mstar_conductor_requests_total", "counter", "Requests by how they ended.");
  out.sample({{"end", "done"}}, static_cast<double>(stats.num_done));
  out.sample({{"end", "failed"}}, static_cast<double>(stats.num_failed));
  out.sample({{"end", "cancelled"}}, static_cast<double>(stats.num_cancelled));
  out.sample({{"end", "refused"}}, static_cast<double>(stats.num_refused));
  out.add(
      "mstar_walks_total", "counter", "Walks that ended.", static_cast<double>(stats.num_walks));
}

void append_caches(const BackendStats& stats, MetricsText& out) {
  const auto per_cache =
      [&](std::string_view name, std::string_view type, std::string_view help, const auto& value) {
        out.begin(name, type, help);
        for (const BackendStats::Cache& cache : stats.caches) {
          out.sample({{"worker", str_cat(cache.worker)}, {"cache", cache.name}},
                     static_cast<double>(value(cache)));
        }
      };
  using Cache = BackendStats::Cache;
  per_cache("mstar_kv_pages", "gauge", "Pages of the pool.", [](const Cache& cache) {
    return cache.num_pages;
  });
  per_cache("mstar_kv_pages_free", "gauge", "Pages in nobody's hands.", [](const Cache& cache) {
    return cache.num_free;
  });
  per_cache("mstar_kv_pages_used",
            "gauge",
            "Pages of requests and of the prefix cache.",
            [](const Cache& cache) { return cache.num_pages - cache.num_free; });
  per_cache("mstar_kv_pages_prefix",
            "gauge",
            "Pages that the prefix cache knows, in use or not.",
            [](const Cache& cache) { return cache.num_prefix; });
  per_cache("mstar_prefix_hit_tokens_total",
            "counter",
            "Prompt tokens taken from the prefix cache.",
            [](const Cache& cache) { return cache.num_prefix_hits; });
}

}  // namespace

RuntimeBackend::RuntimeBackend(const Model& model,
                               Runtime& runtime,
                               Service& service,
                               RuntimeBackendOptions options)
    : model_(model),
      runtime_(runtime),
      service_(service),
      options_(std::move(options)),
      description_(model.description()) {
  if (!options_.served_name.empty()) {
    description_.name = options_.served_name;
  }
}

std::shared_ptr<RunningRequest> RuntimeBackend::submit(ModelRequest request,
                                                       std::shared_ptr<ChunkSink> sink,
                                                       bool report_progress) {
  const uint64_t number = num_submitted_.fetch_add(1, std::memory_order_relaxed);
  if (options_.seed && description_.parameters.find("seed") != nullptr &&
      !request.parameters.contains("seed")) {
    request.parameters.set("seed", mix_seed(*options_.seed, number));
  }
  return std::make_shared<TicketRequest>(
      service_.submit(std::move(request), std::move(sink), report_progress));
}

BackendStats RuntimeBackend::stats() const {
  const Conductor::Stats conductor = runtime_.conductor().stats();
  BackendStats stats{
      .num_running = conductor.num_running, .num_waiting = conductor.num_queued, .caches = {}};
  for (int worker = 0; worker < runtime_.num_workers(); ++worker) {
    for (const KvUsage& cache : runtime_.kv_usage(worker)) {
      stats.caches.push_back({.worker = worker,
                              .name = cache.resource_key,
                              .num_pages = cache.stats.num_pages,
                              .num_free = cache.stats.num_free,
                              .num_prefix = cache.stats.num_listed,
                              .num_prefix_hits = cache.stats.num_prefix_hits});
    }
  }
  return stats;
}

void RuntimeBackend::append_metrics(MetricsText& out) const {
  append_conductor(runtime_.conductor().stats(), out);
  const std::vector<Scheduler::Stats> workers = runtime_.scheduler_stats();
  using NodeTime = Scheduler::Stats::NodeTime;
  const auto per_node = [&](std::string_view name, std::string_view help, const auto& value) {
    out.begin(name, "counter", help);
    for (size_t worker = 0; worker < workers.size(); ++worker) {
      for (const NodeTime& node : workers[worker].nodes) {
        out.sample({{"worker", str_cat(worker)}, {"node", node.node}, {"walk", node.walk}},
                   static_cast<double>(value(node)));
      }
    }
  };
  per_node("mstar_node_steps_total", "Steps by node and walk.", [](const NodeTime& node) {
    return node.num_steps;
  });
  per_node("mstar_node_rows_total", "Requests in those steps.", [](const NodeTime& node) {
    return node.num_rows;
  });
  per_node("mstar_node_tokens_total", "Tokens in those steps.", [](const NodeTime& node) {
    return node.num_tokens;
  });
  per_node("mstar_node_seconds_total", "Time of those steps.", [](const NodeTime& node) {
    return node.seconds;
  });
  per_node("mstar_node_kernel_seconds_total",
           "Time of their forward passes.",
           [](const NodeTime& node) { return node.kernel_seconds; });
  const auto per_worker = [&](std::string_view name,
                              std::string_view type,
                              std::string_view help,
                              int64_t Scheduler::Stats::*field) {
    out.begin(name, type, help);
    for (size_t worker = 0; worker < workers.size(); ++worker) {
      out.sample({{"worker", str_cat(worker)}}, static_cast<double>(workers[worker].*field));
    }
  };
  per_worker("mstar_worker_requests",
             "gauge",
             "Requests a worker holds.",
             &Scheduler::Stats::num_requests);
  per_worker("mstar_worker_live_tensors",
             "gauge",
             "Values between nodes that are alive.",
             &Scheduler::Stats::num_live_payloads);
  per_worker("mstar_captured_steps_total",
             "counter",
             "Steps replayed from a capture.",
             &Scheduler::Stats::num_captured_steps);
  per_worker("mstar_eager_steps_total",
             "counter",
             "Steps run eagerly.",
             &Scheduler::Stats::num_eager_steps);
  per_worker("mstar_wasted_rows_total",
             "counter",
             "Rows of steps whose request ended while they ran.",
             &Scheduler::Stats::num_wasted_rows);
  per_worker("mstar_deferred_rows_total",
             "counter",
             "Rows that waited for room in a resource.",
             &Scheduler::Stats::num_deferred_rows);
  out.begin("mstar_captures", "gauge", "Steps captured at warm-up.");
  for (int worker = 0; worker < runtime_.num_workers(); ++worker) {
    out.sample({{"worker", str_cat(worker)}}, runtime_.num_captures(worker));
  }
  out.begin("mstar_transport_bytes_total", "counter", "Bytes of tensors sent between workers.");
  for (size_t worker = 0; worker < workers.size(); ++worker) {
    out.sample({{"worker", str_cat(worker)}, {"transport", "memory"}},
               static_cast<double>(workers[worker].num_remote_bytes));
  }
  append_caches(stats(), out);
}

}  // namespace mstar

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

}  // namespace

RuntimeBackend::RuntimeBackend(const Model& model,
                               Runtime& runtime,
                               Service& service,
                               const std::string& served_name)
    : model_(model), runtime_(runtime), service_(service), description_(model.description()) {
  if (!served_name.empty()) {
    description_.name = served_name;
  }
}

std::shared_ptr<RunningRequest> RuntimeBackend::submit(ModelRequest request,
                                                       std::shared_ptr<ChunkSink> sink,
                                                       bool report_progress) {
  return std::make_shared<TicketRequest>(
      service_.submit(std::move(request), std::move(sink), report_progress));
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
}

}  // namespace mstar

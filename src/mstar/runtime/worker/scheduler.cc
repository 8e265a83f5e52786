#include "mstar/runtime/worker/scheduler.h"

#include <algorithm>
#include <iterator>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/runtime/worker/scheduler_internal.h"

namespace mstar {

using graph::NodeId;
using graph::Signal;
using graph::SignalKind;
using internal::for_each_node;
using internal::node_bit;

Scheduler::Scheduler(const graph::CompiledModel& model,
                     std::vector<graph::WalkPlacement> placements,
                     NodePolicy policy,
                     SchedulerOptions options,
                     EventSink events,
                     RemoteSink remote)
    : model_(model),
      placements_(std::move(placements)),
      policy_(std::move(policy)),
      options_(options),
      events_(std::move(events)),
      remote_(std::move(remote)) {
  resolve_streams();
}

Scheduler::~Scheduler() = default;

int Scheduler::worker_of(int partition, std::string_view node) const {
  for (size_t walk = 0; walk < model_.walks.size(); ++walk) {
    const NodeId id = model_.walks[walk].find_node(node);
    if (model_.partition_of[walk] == partition && id != graph::kNoId) {
      return placements_[walk].group_of[id];
    }
  }
  MSTAR_CHECK(false, "node ", node, " is in no walk of partition ", partition);
  __builtin_unreachable();
}

void Scheduler::resolve_streams() {
  const auto partition_index = [&](std::string_view name) {
    const auto& partitions = model_.topology.partitions;
    const auto it = std::ranges::find(partitions, name, &graph::Partition::name);
    MSTAR_CHECK(it != partitions.end(), "partition=", name);
    return static_cast<int>(it - partitions.begin());
  };
  for (const graph::Connection& connection : model_.topology.connections) {
    StreamEnd end;
    end.edge = connection.edge_name;
    end.from = partition_index(connection.from);
    end.to = partition_index(connection.to);
    end.policy = connection.policy;
    for (size_t walk = 0; walk < model_.walks.size(); ++walk) {
      if (model_.partition_of[walk] != end.from) {
        continue;
      }
      for (const uint16_t worker : placements_[walk].group_of) {
        if (std::ranges::find(end.producers, worker) == end.producers.end()) {
          end.producers.push_back(worker);
        }
      }
      for (const graph::CompiledEdge& edge : model_.walks[walk].edges) {
        if (edge.target == graph::EdgeTarget::kStream && edge.name == end.edge &&
            edge.target_partition == connection.to) {
          end.node = edge.stream_node;
          end.input = edge.input;
        }
      }
    }
    MSTAR_CHECK(!end.node.empty(), "connection ", end.edge, " has no edge");
    end.consumer = worker_of(end.to, end.node);
    streams_.push_back(std::move(end));
  }
}

Scheduler::ActiveRequest* Scheduler::find(RequestKey request) {
  const auto it = requests_.find(request);
  return it == requests_.end() ? nullptr : it->second.get();
}

void Scheduler::add_event(RequestKey request, int partition, decltype(WorkerEvent::what) what) {
  pending_events_.push_back({request, options_.worker, partition, std::move(what)});
}

// Hands out what piled up, without the lock, and takes it again.
void Scheduler::flush(std::unique_lock<std::mutex>& lock) {
  if (pending_events_.empty() && pending_remote_.empty()) {
    return;
  }
  std::vector<WorkerEvent> events;
  std::vector<RemoteMessage> remote;
  std::swap(events, pending_events_);
  std::swap(remote, pending_remote_);
  for (const RemoteMessage& message : remote) {
    for (const Tensor& tensor : message.tensors) {
      num_remote_bytes_ += tensor.size_bytes();
    }
  }
  lock.unlock();
  if (!remote.empty()) {
    remote_(remote);
  }
  if (!events.empty()) {
    events_(events);
  }
  lock.lock();
}

// ---- conductor

void Scheduler::open(RequestKey request, std::shared_ptr<const PreparedRequest> prepared) {
  {
    const std::lock_guard lock(mutex_);
    auto active = std::make_unique<ActiveRequest>(request, model_, payloads_);
    for (size_t connection = 0; connection < streams_.size(); ++connection) {
      const StreamEnd& end = streams_[connection];
      if (end.consumer == options_.worker) {
        active->streams[connection].buffer = std::make_unique<graph::StreamBuffer>(
            end.policy, end.policy.window(true) * options_.stream_capacity, payloads_);
      }
    }
    requests_.emplace(request, std::move(active));
    commands_.push_back({ExecutorCommand::Kind::kOpen, request, -1, std::move(prepared)});
  }
  changed_.notify_one();
}

void Scheduler::start_walk(StartWalk start) {
  {
    std::unique_lock lock(mutex_);
    ActiveRequest* request = find(start.request);
    if (request == nullptr || request->removing) {
      return;
    }
    if (request->handle < 0) {
      request->waiting_starts.push_back(std::move(start));
      return;
    }
    begin_walk(*request, std::move(start));
    flush(lock);
  }
  changed_.notify_one();
}

void Scheduler::begin_walk(ActiveRequest& request, StartWalk start) {
  const graph::CompiledWalk& walk = model_.walks[start.walk];
  WalkRun& run = request.runs[static_cast<size_t>(start.partition)];
  const graph::WorkerGraph* part =
      placements_[start.walk].find_group(static_cast<uint16_t>(options_.worker));
  MSTAR_CHECK(part != nullptr, "walk ", walk.name, " has no node here");
  run.walk = &walk;
  run.walk_index = start.walk;
  // The worker's own handle: the object may be shared with other workers, so it gets a copy.
  run.info = std::make_shared<CurrentForwardPassInfo>(*start.info);
  run.info->handle = request.handle;
  run.info->graph_walk = walk.name;
  run.report_progress = start.report_progress;
  run.consumed_final = false;
  run.held = 0;
  run.ready_order.assign(walk.nodes.size(), 0);
  run.chunks.clear();
  run.limits.clear();
  run.state.start(walk, start.pass, part->nodes);
  for (const auto& [name, limit] : start.loop_limits) {
    const graph::LoopId loop = walk.find_loop(name);
    if (loop != graph::kNoId) {
      run.state.limit_loop(loop, static_cast<int>(std::max<int64_t>(1, limit)));
      run.limits.emplace_back(loop, limit);
    }
  }
  run.active = true;
  for (const graph::PortId port_id : part->inputs) {
    const graph::Port& port = walk.ports[port_id];
    const TensorList* tensors = start.inputs.find(port.name);
    if (tensors == nullptr) {
      continue;
    }
    const Signal signal =
        tensors->empty() ? Signal::trigger() : Signal::tensors(payloads_.add(std::span(*tensors)));
    const auto result = run.state.deliver(port_id, signal);
    MSTAR_CHECK(result == graph::DeliverResult::kAccepted, "input ", port.name, " of ", walk.name);
  }
  std::vector<RemoteMessage> early = std::move(run.early);
  run.early.clear();
  for (RemoteMessage& message : early) {
    deliver_locked(request, message);
  }
  after_change(request, run);
}

void Scheduler::close_stream(RequestKey request_key, std::string_view edge) {
  {
    const std::lock_guard lock(mutex_);
    ActiveRequest* request = find(request_key);
    if (request == nullptr) {
      return;
    }
    for (size_t connection = 0; connection < streams_.size(); ++connection) {
      auto& stream = request->streams[connection];
      if (streams_[connection].edge == edge && stream.buffer != nullptr) {
        stream.close_wanted = true;
        retry_items(*request, static_cast<uint16_t>(connection));
      }
    }
  }
  changed_.notify_one();
}

void Scheduler::remove(RequestKey request_key) {
  {
    std::unique_lock lock(mutex_);
    ActiveRequest* request = find(request_key);
    if (request == nullptr) {
      return;
    }
    begin_removal(*request);
    flush(lock);
  }
  changed_.notify_one();
}

void Scheduler::begin_removal(ActiveRequest& request) {
  if (!request.removing) {
    request.removing = true;
    for (WalkRun& run : request.runs) {
      run.state.cancel();
      run.active = false;
    }
    for (auto& stream : request.streams) {
      if (stream.buffer != nullptr) {
        stream.buffer->cancel();
      }
      stream.overflow.clear();
    }
    request.waiting_starts.clear();
  }
  const auto waiting = std::ranges::find(waiting_opens_, request.key, &ExecutorCommand::request);
  if (waiting != waiting_opens_.end()) {
    waiting_opens_.erase(waiting);
    add_event(request.key, 0, RemovedEvent{});
    requests_.erase(request.key);
    return;
  }
  // An opening that is under way is undone when it reports; a running step when it completes.
  if (request.in_flight == 0 && request.handle >= 0 && !request.remove_sent) {
    request.remove_sent = true;
    commands_.push_back({ExecutorCommand::Kind::kRemove, request.key, request.handle, nullptr});
  }
}

void Scheduler::set_paused(RequestKey request_key, bool paused) {
  {
    const std::lock_guard lock(mutex_);
    if (ActiveRequest* request = find(request_key)) {
      request->paused = paused;
    }
  }
  changed_.notify_one();
}

void Scheduler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

// ---- executor's reports

void Scheduler::opened(RequestKey request_key, RequestHandle handle) {
  std::unique_lock lock(mutex_);
  ActiveRequest* request = find(request_key);
  MSTAR_CHECK(request != nullptr, "request=", request_key);
  request->handle = handle;
  by_handle_.resize(std::max(by_handle_.size(), static_cast<size_t>(handle) + 1));
  by_handle_[static_cast<size_t>(handle)] = request;
  if (request->removing) {
    begin_removal(*request);
    return;
  }
  add_event(request_key, 0, OpenedEvent{});
  std::vector<StartWalk> starts = std::move(request->waiting_starts);
  request->waiting_starts.clear();
  for (StartWalk& start : starts) {
    begin_walk(*request, std::move(start));
  }
  flush(lock);
}

void Scheduler::open_later(ExecutorCommand command) {
  std::unique_lock lock(mutex_);
  ActiveRequest* request = find(command.request);
  MSTAR_CHECK(request != nullptr, "request=", command.request);
  if (request->removing) {
    add_event(command.request, 0, RemovedEvent{});
    requests_.erase(command.request);
    flush(lock);
    return;
  }
  waiting_opens_.push_back(std::move(command));
}

void Scheduler::open_failed(RequestKey request_key, ErrorCode code, std::string message) {
  std::unique_lock lock(mutex_);
  ActiveRequest* request = find(request_key);
  MSTAR_CHECK(request != nullptr, "request=", request_key);
  begin_removal(*request);
  add_event(request_key, 0, FailureEvent{code, std::move(message)});
  add_event(request_key, 0, RemovedEvent{});
  requests_.erase(request_key);
  flush(lock);
}

void Scheduler::removed(RequestKey request_key) {
  std::unique_lock lock(mutex_);
  const auto it = requests_.find(request_key);
  MSTAR_CHECK(it != requests_.end(), "request=", request_key);
  by_handle_[static_cast<size_t>(it->second->handle)] = nullptr;
  requests_.erase(it);
  ++epoch_;  // its pages are free
  commands_.insert(commands_.end(),
                   std::make_move_iterator(waiting_opens_.begin()),
                   std::make_move_iterator(waiting_opens_.end()));
  waiting_opens_.clear();
  add_event(request_key, 0, RemovedEvent{});
  flush(lock);
}

void Scheduler::fail(ActiveRequest& request, ErrorCode code, std::string message) {
  if (request.removing) {
    return;
  }
  add_event(request.key, 0, FailureEvent{code, std::move(message)});
  begin_removal(request);
}

Scheduler::Stats Scheduler::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats;
  stats.num_requests = static_cast<int64_t>(requests_.size());
  stats.num_live_payloads = static_cast<int64_t>(payloads_.num_live());
  for (const auto& [key, request] : requests_) {
    for (const WalkRun& run : request->runs) {
      if (run.active) {
        stats.num_waiting_rows += std::popcount(run.state.ready());
      }
    }
  }
  for (const auto& [key, share] : shares_) {
    stats.nodes.push_back(share.total);
  }
  stats.num_captured_steps = num_captured_steps_;
  stats.num_eager_steps = num_eager_steps_;
  stats.num_wasted_rows = num_wasted_rows_;
  stats.num_deferred_rows = num_deferred_rows_;
  stats.num_remote_bytes = num_remote_bytes_;
  return stats;
}

}  // namespace mstar

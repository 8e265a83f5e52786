#include "mstar/runtime/worker/scheduler.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/runtime/worker/active_request.h"

namespace mstar {

namespace {

using graph::NodeId;
using graph::Signal;
using graph::SignalKind;

uint64_t bit(NodeId node) {
  return uint64_t{1} << node;
}

// Calls function(node) for every set bit.
template <typename Function>
void for_each_node(uint64_t mask, Function&& function) {
  while (mask != 0) {
    function(static_cast<NodeId>(std::countr_zero(mask)));
    mask &= mask - 1;
  }
}

}  // namespace

// Time a (node, walk) has had, and what it did with it.
struct Scheduler::Share {
  double used = 0.0;  // seconds, in step with the others
  bool active = false;
  Stats::NodeTime total;
};

struct Scheduler::Candidate {
  ActiveRequest* request;
  WalkRun* run;
  NodeId node;
  uint64_t order;
};

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
  by_handle_[handle] = request_key;
  if (request->removing) {
    begin_removal(*request);
    return;
  }
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
  by_handle_.erase(it->second->handle);
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

// ---- choosing what runs

Scheduler::Share& Scheduler::share_of(uint16_t model_node, uint16_t walk) {
  Share& share = shares_[{model_node, walk}];
  if (share.total.node.empty()) {
    share.total.node = model_.nodes[model_node];
    share.total.walk = model_.walks[walk].name;
  }
  return share;
}

void Scheduler::collect(ActiveRequest& request, std::vector<Candidate>& candidates) {
  if (request.removing || request.paused || request.handle < 0) {
    return;
  }
  for (WalkRun& run : request.runs) {
    if (!run.active || run.blocked > 0) {
      continue;
    }
    if (run.held != 0 && run.held_epoch < epoch_) {
      run.held = 0;
    }
    for_each_node(run.state.ready() & ~run.held, [&](NodeId node) {
      if (run.ready_order[node] == 0) {
        run.ready_order[node] = next_ready_order_++;
      }
      candidates.push_back({&request, &run, node, run.ready_order[node]});
    });
  }
}

bool Scheduler::try_make_batch(StepBatch& batch) {
  std::vector<Candidate> candidates;
  for (auto& [key, request] : requests_) {
    collect(*request, candidates);
  }
  if (candidates.empty()) {
    return false;
  }
  // Whose turn: the least served among the ready. One that was idle does not bring savings.
  double floor = std::numeric_limits<double>::infinity();
  for (const auto& [key, share] : shares_) {
    if (share.active) {
      floor = std::min(floor, share.used);
    }
  }
  for (auto& [key, share] : shares_) {
    share.active = false;
  }
  Share* best = nullptr;
  std::pair<uint16_t, uint16_t> best_key;
  for (const Candidate& candidate : candidates) {
    const uint16_t model_node = candidate.run->walk->nodes[candidate.node].model_node;
    Share& share = share_of(model_node, candidate.run->walk_index);
    if (!share.active) {
      share.active = true;
      if (floor < std::numeric_limits<double>::infinity()) {
        share.used = std::max(share.used, floor);
      }
    }
    if (best == nullptr || share.used < best->used) {
      best = &share;
      best_key = {model_node, candidate.run->walk_index};
    }
  }
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return std::pair(candidate.run->walk->nodes[candidate.node].model_node,
                     candidate.run->walk_index) != best_key;
  });
  std::ranges::sort(candidates, {}, &Candidate::order);

  const graph::CompiledWalk& walk = model_.walks[best_key.second];
  batch.node = model_.nodes[best_key.first];
  batch.graph_walk = walk.name;
  const std::string key = policy_.split_key(batch.node, *candidates.front().run->info);
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return policy_.split_key(batch.node, *candidate.run->info) != key;
  });
  size_t max_rows =
      static_cast<size_t>(std::max(1, policy_.max_batch_size(batch.node, batch.graph_walk)));
  int64_t row_tokens = 0;
  if (policy_.supports_chunked_prefill(batch.node, batch.graph_walk)) {
    constexpr int64_t kSmallestChunk = 64;
    max_rows = std::min(
        max_rows,
        static_cast<size_t>(std::max<int64_t>(1, options_.max_batch_tokens / kSmallestChunk)));
    row_tokens =
        options_.max_batch_tokens / static_cast<int64_t>(std::min(max_rows, candidates.size()));
  }
  candidates.resize(std::min(candidates.size(), max_rows));
  for (const Candidate& candidate : candidates) {
    add_row(candidate, batch);
    batch.rows.back().max_tokens = row_tokens;
  }
  return true;
}

void Scheduler::add_row(const Candidate& candidate, StepBatch& batch) {
  ActiveRequest& request = *candidate.request;
  WalkRun& run = *candidate.run;
  const graph::CompiledNode& node = run.walk->nodes[candidate.node];
  BatchRow& row = batch.rows.emplace_back();
  row.request = request.handle;
  row.info = run.info.get();
  row.tag = static_cast<uint64_t>(run.partition) << 16 | candidate.node;
  const auto ports = run.walk->ports_of(candidate.node);
  std::vector<Signal> signals(ports.size());
  run.state.begin(candidate.node, signals);
  for (size_t port = 0; port < ports.size(); ++port) {
    if (signals[port].kind == SignalKind::kTensors) {
      const auto tensors = payloads_.get(signals[port].payload);
      row.inputs.set(ports[port].name, TensorList(tensors.begin(), tensors.end()));
    } else if (signals[port].kind == SignalKind::kTrigger) {
      row.inputs.set(ports[port].name, TensorList());
    }
  }
  for (graph::LoopId loop = node.scope; loop != graph::kWalkScope;
       loop = run.walk->loops[loop].parent) {
    row.metadata.dynamic_loop_iter_counts.emplace_back(run.walk->loops[loop].name,
                                                       run.state.iteration(loop));
  }
  row.metadata.stream_chunks = run.chunks;
  ++request.in_flight;
}

Scheduler::Work Scheduler::next() {
  std::unique_lock lock(mutex_);
  while (true) {
    flush(lock);
    if (!commands_.empty()) {
      ExecutorCommand command = std::move(commands_.front());
      commands_.erase(commands_.begin());
      return command;
    }
    if (stop_ && requests_.empty()) {
      return std::monostate();
    }
    StepBatch batch;
    if (try_make_batch(batch)) {
      running_ = true;
      flush(lock);
      return batch;
    }
    break_deadlock();
    if (!commands_.empty() || !pending_events_.empty()) {
      continue;
    }
    changed_.wait(lock);
  }
}

// When every request waits for room that only another of them could give, the last comer loses.
void Scheduler::break_deadlock() {
  ActiveRequest* youngest = nullptr;
  std::string why;
  for (auto& [key, request] : requests_) {
    if (std::ranges::find(waiting_opens_, key, &ExecutorCommand::request) != waiting_opens_.end()) {
      continue;  // holds nothing that could be given back
    }
    if (request->removing || request->handle < 0) {
      return;  // something will be given back
    }
    bool held = false;
    bool waits_for_conductor = true;
    for (const WalkRun& run : request->runs) {
      held = held || (run.active && run.held != 0);
      waits_for_conductor = waits_for_conductor && !run.active;
    }
    if (waits_for_conductor) {
      return;
    }
    if (held && (youngest == nullptr || key > youngest->key)) {
      youngest = request.get();
    }
  }
  if (youngest != nullptr) {
    fail(*youngest,
         ErrorCode::kResourceExhausted,
         str_cat("[scheduler] no memory left for this request and nothing to wait for: ",
                 youngest->refusal));
  }
}

// ---- routing what ran

void Scheduler::complete(StepBatch batch) {
  std::unique_lock lock(mutex_);
  running_ = false;
  num_captured_steps_ += batch.num_captured_steps;
  num_eager_steps_ += batch.num_eager_steps;
  bool counted = false;
  for (BatchRow& row : batch.rows) {
    const auto it = by_handle_.find(row.request);
    MSTAR_CHECK(it != by_handle_.end(), "handle=", row.request);
    ActiveRequest& request = *find(it->second);
    WalkRun& run = request.runs[row.tag >> 16];
    if (!counted) {
      counted = true;
      Share& share = share_of(run.walk->nodes[row.tag & 0xffff].model_node, run.walk_index);
      share.used += batch.seconds;
      share.total.num_steps += 1;
      share.total.num_rows += static_cast<int64_t>(batch.rows.size());
      share.total.num_tokens += batch.num_tokens;
      share.total.seconds += batch.seconds;
      share.total.kernel_seconds += batch.kernel_seconds;
    }
    --request.in_flight;
    complete_row(batch, row, run, request);
    if (request.removing) {
      begin_removal(request);
    }
  }
  flush(lock);
}

void Scheduler::complete_row(StepBatch& batch,
                             BatchRow& row,
                             WalkRun& run,
                             ActiveRequest& request) {
  const auto node = static_cast<NodeId>(row.tag & 0xffff);
  if (request.removing) {
    return;  // cancelled while it ran: nothing of it counts
  }
  switch (row.status) {
    case RowStatus::kDone:
    case RowStatus::kVetoed:
      run.ready_order[node] = 0;
      finish_node(run, request, node, row);
      ++epoch_;
      break;
    case RowStatus::kPartial:
      run.state.abandon(node);
      run.ready_order[node] = next_ready_order_++;  // the others' turn first
      ++epoch_;
      break;
    case RowStatus::kDeferred:
      run.state.abandon(node);
      run.held |= bit(node);
      run.held_epoch = epoch_;
      request.refusal =
          str_cat(to_string(row.refusal.reason), ", ", row.refusal.pages_short, " pages short");
      break;
    case RowStatus::kPending:
    case RowStatus::kFailed:
      fail(request,
           row.error_code,
           str_cat("node ", batch.node, " of walk ", batch.graph_walk, ": ", row.error_message));
      break;
  }
}

void Scheduler::finish_node(WalkRun& run, ActiveRequest& request, NodeId node, BatchRow& row) {
  const graph::CompiledWalk& walk = *run.walk;
  const graph::LoopId scope = walk.nodes[node].scope;
  const graph::LoopTime time = run.state.time_of(node);
  graph::Routing routing;
  for (const std::string_view name : row.stopped_loops) {
    const graph::LoopId loop = walk.find_loop(name);
    if (loop == graph::kNoId) {
      fail(request,
           ErrorCode::kInternal,
           str_cat("node ",
                   walk.nodes[node].name,
                   " stops loop \"",
                   name,
                   "\", which walk ",
                   walk.name,
                   " does not have"));
      return;
    }
    run.state.stop_loop(loop, time, routing);
    for (const uint16_t worker : placements_[run.walk_index].groups_of_loop[loop]) {
      if (worker != options_.worker) {
        pending_remote_.push_back({RemoteMessage::Kind::kStop,
                                   worker,
                                   request.key,
                                   run.partition,
                                   loop,
                                   time,
                                   false,
                                   {}});
      }
    }
  }
  const int64_t iteration = scope != graph::kWalkScope ? run.state.iteration(scope) + 1 : 0;
  const auto outputs = walk.outputs_of(node);
  std::vector<Signal> signals(outputs.size());
  for (size_t output = 0; output < outputs.size(); ++output) {
    const TensorList* tensors = row.outputs.find(outputs[output].name);
    if (tensors != nullptr) {
      signals[output] = tensors->empty() ? Signal::trigger()
                                         : Signal::tensors(payloads_.add(std::span(*tensors)));
    }
  }
  for (const auto& [name, chunk] : row.metadata.stream_chunks) {
    run.consumed_final = run.consumed_final || chunk.is_final;
  }
  const graph::CompleteResult result = run.state.complete(node, signals, routing);
  route(request, run, routing);
  if (result == graph::CompleteResult::kMissing) {
    const graph::CompiledEdge& edge = walk.edges[routing.missing];
    fail(request,
         ErrorCode::kInternal,
         str_cat("node ",
                 walk.nodes[node].name,
                 " did not make \"",
                 edge.name,
                 "\", which ",
                 edge.node != graph::kNoId ? walk.nodes[edge.node].name : edge.stream_node,
                 " waits for"));
    return;
  }
  if (run.report_progress) {
    for (const auto& [loop, limit] : run.limits) {
      if (loop == scope) {
        add_event(
            request.key, run.partition, ProgressEvent{walk.loops[loop].name, iteration, limit});
      }
    }
  }
  after_change(request, run);
}

// A value arrived or a node finished: chunks may be wanted, messages may fit, the walk may be over.
void Scheduler::after_change(ActiveRequest& request, WalkRun& run) {
  if (!run.active) {
    return;
  }
  std::vector<RemoteMessage> early = std::move(run.early);
  run.early.clear();
  for (RemoteMessage& message : early) {
    deliver_locked(request, message);
  }
  if (run.state.is_done()) {
    run.active = false;
    add_event(request.key, run.partition, WalkDoneEvent{run.consumed_final});
    return;
  }
  offer_chunks(request, run);
}

void Scheduler::route(ActiveRequest& request, WalkRun& run, graph::Routing& routing) {
  // Counts first: who hears of a token knows how many there are.
  for (const graph::Route& route : routing.routes) {
    if (route.kind == graph::RouteKind::kToken) {
      const auto& items = route.signal;
      const auto count = items.kind == SignalKind::kTensors
                             ? static_cast<int64_t>(payloads_.get(items.payload).size())
                             : int64_t{1};
      add_event(request.key, run.partition, TokensEvent{count});
    }
  }
  for (const graph::Route& route : routing.routes) {
    const graph::CompiledEdge& edge = run.walk->edges[route.edge];
    TensorList tensors;
    if (route.signal.kind == SignalKind::kTensors) {
      const auto items = payloads_.get(route.signal.payload);
      tensors.assign(items.begin(), items.end());
      payloads_.release(route.signal.payload);
    }
    switch (route.kind) {
      case graph::RouteKind::kEmit:
        add_event(request.key,
                  run.partition,
                  EmitEvent{edge.modality, edge.name, std::move(tensors), route.time});
        break;
      case graph::RouteKind::kPersist:
        add_event(request.key, run.partition, PersistEvent{edge.name, std::move(tensors)});
        break;
      case graph::RouteKind::kToken: break;
      case graph::RouteKind::kStream:
        push_stream(request, run.partition, edge, std::move(tensors));
        break;
      case graph::RouteKind::kRemote:
        pending_remote_.push_back({RemoteMessage::Kind::kValue,
                                   placements_[run.walk_index].destination(*run.walk, route.edge),
                                   request.key,
                                   run.partition,
                                   route.edge,
                                   route.time,
                                   route.signal.kind == SignalKind::kTrigger,
                                   std::move(tensors)});
        break;
    }
  }
  routing.clear();
}

// ---- streams

void Scheduler::push_stream(ActiveRequest& request,
                            int partition,
                            const graph::CompiledEdge& edge,
                            TensorList tensors) {
  for (size_t connection = 0; connection < streams_.size(); ++connection) {
    const StreamEnd& end = streams_[connection];
    if (end.from != partition || end.edge != edge.name || end.node != edge.stream_node) {
      continue;
    }
    const auto id = static_cast<uint16_t>(connection);
    if (end.consumer == options_.worker) {
      push_item(request, id, std::move(tensors));
    } else {
      pending_remote_.push_back({RemoteMessage::Kind::kStreamItem,
                                 end.consumer,
                                 request.key,
                                 end.to,
                                 id,
                                 {},
                                 false,
                                 std::move(tensors)});
    }
    return;
  }
  MSTAR_CHECK(false, "edge ", edge.name, " streams nowhere");
}

void Scheduler::push_item(ActiveRequest& request, uint16_t connection, TensorList tensors) {
  request.streams[connection].overflow.push_back(std::move(tensors));
  retry_items(request, connection);
}

// Moves waiting items into the buffer, closes it behind the last one, and holds or frees the
// producing partition.
void Scheduler::retry_items(ActiveRequest& request, uint16_t connection) {
  const StreamEnd& end = streams_[connection];
  auto& stream = request.streams[connection];
  size_t moved = 0;
  while (moved < stream.overflow.size() && stream.buffer->credit() > 0) {
    const graph::PayloadId item = payloads_.add(std::span(stream.overflow[moved]));
    if (stream.buffer->push(item) != graph::PushResult::kAccepted) {
      payloads_.release(item);
      break;
    }
    ++moved;
  }
  stream.overflow.erase(stream.overflow.begin(),
                        stream.overflow.begin() + static_cast<std::ptrdiff_t>(moved));
  if (stream.close_wanted && stream.overflow.empty() && !stream.buffer->is_closed()) {
    stream.buffer->close();
  }
  const bool full = !stream.overflow.empty();
  if (full != stream.producer_blocked) {
    stream.producer_blocked = full;
    for (const int worker : end.producers) {
      if (worker == options_.worker) {
        request.runs[static_cast<size_t>(end.from)].blocked += full ? 1 : -1;
      } else {
        pending_remote_.push_back(
            {full ? RemoteMessage::Kind::kBlocked : RemoteMessage::Kind::kUnblocked,
             worker,
             request.key,
             end.from,
             connection,
             {},
             false,
             {}});
      }
    }
  }
  WalkRun& consumer = request.runs[static_cast<size_t>(end.to)];
  if (consumer.active) {
    offer_chunks(request, consumer);
  }
}

namespace {

// What a consumer sees of a chunk: nothing, the item's own tensors, or several stacked.
TensorList collate_chunk(const graph::PayloadTable<Tensor>& payloads,
                         std::span<const graph::PayloadId> items) {
  TensorList tensors;
  for (const graph::PayloadId item : items) {
    const auto list = payloads.get(item);
    tensors.insert(tensors.end(), list.begin(), list.end());
  }
  if (items.size() <= 1 || tensors.empty()) {
    return tensors;
  }
  Shape shape = {static_cast<int64_t>(tensors.size())};
  for (const int64_t size : tensors.front().shape()) {
    shape.push_back(size);
  }
  Tensor stacked = Tensor::empty(shape, tensors.front().dtype());
  const int64_t bytes = tensors.front().size_bytes();
  for (size_t index = 0; index < tensors.size(); ++index) {
    MSTAR_CHECK(tensors[index].shape() == tensors.front().shape(), "items of one stream differ");
    const Tensor source = tensors[index].is_contiguous() ? tensors[index] : tensors[index].copy();
    std::memcpy(stacked.bytes() + static_cast<int64_t>(index) * bytes,
                source.bytes(),
                static_cast<size_t>(bytes));
  }
  return {stacked};
}

}  // namespace

void Scheduler::offer_chunks(ActiveRequest& request, WalkRun& run) {
  for_each_node(run.state.waiting_for_stream(), [&](NodeId node) {
    const std::string& name = run.walk->nodes[node].name;
    for (size_t connection = 0; connection < streams_.size(); ++connection) {
      const StreamEnd& end = streams_[connection];
      auto& stream = request.streams[connection];
      if (end.to != run.partition || end.node != name || stream.buffer == nullptr) {
        continue;
      }
      const auto chunk = stream.buffer->peek();
      if (!chunk.has_value()) {
        continue;
      }
      const TensorList tensors = collate_chunk(payloads_, chunk->items);
      const Signal signal =
          tensors.empty() ? Signal::trigger() : Signal::tensors(payloads_.add(std::span(tensors)));
      const graph::PortId port = run.walk->find_port(node, end.input);
      if (run.state.deliver_stream(port, signal) != graph::DeliverResult::kAccepted) {
        if (signal.kind == SignalKind::kTensors) {
          payloads_.release(signal.payload);
        }
        continue;
      }
      std::erase_if(run.chunks, [&](const auto& entry) { return entry.first == end.edge; });
      run.chunks.emplace_back(
          end.edge, StreamChunkInfo{chunk->chunk_index, chunk->start_offset, chunk->is_final});
      if (stream.buffer->pop(*chunk)) {
        retry_items(request, static_cast<uint16_t>(connection));
      }
    }
  });
}

// ---- other workers

void Scheduler::deliver(RemoteMessage message) {
  {
    std::unique_lock lock(mutex_);
    ActiveRequest* request = find(message.request);
    if (request == nullptr || request->removing) {
      return;
    }
    deliver_locked(*request, message);
    WalkRun& run = request->runs[static_cast<size_t>(message.partition)];
    after_change(*request, run);
    flush(lock);
  }
  changed_.notify_one();
}

void Scheduler::deliver_locked(ActiveRequest& request, RemoteMessage& message) {
  WalkRun& run = request.runs[static_cast<size_t>(message.partition)];
  graph::Routing routing;
  switch (message.kind) {
    case RemoteMessage::Kind::kValue: {
      if (!run.active || message.time.pass > run.state.time_of(0).pass) {
        run.early.push_back(std::move(message));
        return;
      }
      const Signal signal = message.is_trigger
                                ? Signal::trigger()
                                : Signal::tensors(payloads_.add(std::span(message.tensors)));
      const auto result = run.state.deliver_remote(message.id, message.time, signal);
      if (result != graph::DeliverResult::kAccepted && signal.kind == SignalKind::kTensors) {
        payloads_.release(signal.payload);
      }
      if (result == graph::DeliverResult::kNotYet) {
        run.early.push_back(std::move(message));
      }
      break;
    }
    case RemoteMessage::Kind::kStop:
      if (!run.active ||
          run.state.stop_loop(message.id, message.time, routing) == graph::StopResult::kNotYet) {
        run.early.push_back(std::move(message));
      }
      route(request, run, routing);
      break;
    case RemoteMessage::Kind::kStreamItem:
      push_item(request, message.id, std::move(message.tensors));
      break;
    case RemoteMessage::Kind::kBlocked: ++run.blocked; break;
    case RemoteMessage::Kind::kUnblocked: --run.blocked; break;
  }
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
  return stats;
}

}  // namespace mstar

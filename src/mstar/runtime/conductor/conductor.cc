#include "mstar/runtime/conductor/conductor.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"

namespace mstar {

struct Conductor::PartitionState {
  bool done = false;
  std::string graph_walk;
  uint16_t walk = graph::kNoId;
  int num_parts_left = 0;  // workers whose part of the walk still runs
  bool consumed_final_chunk = false;
  int64_t fwd_index = 0;
  bool requires_cfg = false;
  Json step_metadata = Json::object();
  ValueMap values;
};

struct Conductor::Request {
  RequestKey key = 0;
  std::shared_ptr<const PreparedRequest> prepared;
  std::shared_ptr<OutputSink> sink;
  bool report_progress = false;
  bool ended = false;  // the sink heard its last event
  int num_workers_left = 0;
  int num_workers_closed = 0;  // that have yet to open it
  uint32_t next_pass = 0;
  int64_t num_generated_tokens = 0;
  NamedTensors persist_signals;
  std::vector<PartitionState> partitions;
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};

Conductor::Conductor(const Model& model,
                     const graph::CompiledModel& graph,
                     std::vector<graph::WalkPlacement> placements,
                     std::vector<Scheduler*> workers,
                     ConductorOptions options)
    : model_(model),
      graph_(graph),
      placements_(std::move(placements)),
      workers_(std::move(workers)),
      options_(std::move(options)),
      thread_([this] { run(); }) {}

Conductor::~Conductor() {
  drain(std::chrono::milliseconds(0));
  mailbox_.close();
  thread_.join();
}

RequestKey Conductor::submit(std::shared_ptr<const PreparedRequest> prepared,
                             std::shared_ptr<OutputSink> sink,
                             bool report_progress,
                             bool is_continuation) {
  RequestKey key = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_) {
      throw Error(ErrorCode::kUnavailable, "[conductor] shutting down: no new requests");
    }
    if (!is_continuation && num_waiting_ >= options_.max_queued_requests) {
      ++stats_.num_refused;
      throw Error(
          ErrorCode::kResourceExhausted,
          str_cat("[conductor] ", num_waiting_, " requests are waiting already; retry later"));
    }
    key = next_key_++;
    ++num_waiting_;
    ++num_known_;
    stats_.num_prompt_tokens += prepared->num_prompt_tokens;
  }
  mailbox_.send(Submitted{key, std::move(prepared), std::move(sink), report_progress});
  return key;
}

void Conductor::cancel(RequestKey request) {
  mailbox_.send(Cancel{request});
}

void Conductor::set_paused(RequestKey request, bool paused) {
  mailbox_.send(Pause{request, paused});
}

bool Conductor::drain(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const bool by_themselves = all_gone_.wait_for(lock, timeout, [&] { return num_known_ == 0; });
  if (!by_themselves) {
    lock.unlock();
    mailbox_.send(CancelAll{});
    lock.lock();
    all_gone_.wait(lock, [&] { return num_known_ == 0; });
  }
  return by_themselves;
}

void Conductor::on_worker_events(std::vector<WorkerEvent>& events) {
  mailbox_.send(std::exchange(events, {}));
}

Conductor::Stats Conductor::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.num_queued = num_waiting_;
  stats.num_running = num_known_ - num_waiting_;
  return stats;
}

void Conductor::run() {
  std::vector<Message> messages;
  while (mailbox_.wait(messages)) {
    for (Message& message : messages) {
      handle(message);
    }
    admit();
  }
}

void Conductor::handle(Message& message) {
  if (auto* submitted = std::get_if<Submitted>(&message)) {
    notify(submitted->key, submitted->prepared->request_id, RequestPhase::kQueued);
    queue_.push_back(std::move(*submitted));
  } else if (const auto* cancel = std::get_if<Cancel>(&message)) {
    const auto queued = std::ranges::find(queue_, cancel->key, &Submitted::key);
    if (queued != queue_.end()) {
      const Submitted gone = std::move(*queued);
      queue_.erase(queued);
      notify(gone.key, gone.prepared->request_id, RequestPhase::kCancelled);
      gone.sink->on_output({.kind = OutputEvent::Kind::kFailed,
                            .code = ErrorCode::kCancelled,
                            .message = "[conductor] cancelled while waiting"});
      {
        const std::lock_guard lock(mutex_);
        --num_waiting_;
        ++stats_.num_cancelled;
      }
      forget(cancel->key);
    } else if (const auto it = requests_.find(cancel->key); it != requests_.end()) {
      fail(*it->second, ErrorCode::kCancelled, "[conductor] cancelled");
    }
  } else if (const auto* pause = std::get_if<Pause>(&message)) {
    if (requests_.contains(pause->key)) {
      for (Scheduler* worker : workers_) {
        worker->set_paused(pause->key, pause->paused);
      }
    }
  } else if (std::holds_alternative<CancelAll>(message)) {
    std::vector<RequestKey> keys;
    for (const Submitted& queued : queue_) {
      keys.push_back(queued.key);
    }
    for (const auto& [key, request] : requests_) {
      keys.push_back(key);
    }
    for (const RequestKey key : keys) {
      Message one = Cancel{key};
      handle(one);
    }
  } else {
    handle_events(std::get<std::vector<WorkerEvent>>(message));
  }
}

void Conductor::handle_events(std::vector<WorkerEvent>& events) {
  for (WorkerEvent& event : events) {
    const auto it = requests_.find(event.request);
    if (it != requests_.end()) {
      handle_event(*it->second, event);
    }
  }
  if (num_new_tokens_ > 0) {
    const std::lock_guard lock(mutex_);
    stats_.num_generated_tokens += std::exchange(num_new_tokens_, 0);
  }
}

void Conductor::admit() {
  while (!queue_.empty() &&
         static_cast<int64_t>(requests_.size()) < options_.max_concurrent_requests) {
    Submitted next = std::move(queue_.front());
    queue_.pop_front();
    {
      const std::lock_guard lock(mutex_);
      --num_waiting_;
    }
    auto request = std::make_unique<Request>();
    request->key = next.key;
    request->prepared = std::move(next.prepared);
    request->sink = std::move(next.sink);
    request->report_progress = next.report_progress;
    start(std::move(request));
  }
}

void Conductor::start(std::unique_ptr<Request> owned) {
  Request& request = *owned;
  requests_.emplace(request.key, std::move(owned));
  request.persist_signals = request.prepared->inputs;
  request.partitions.resize(graph_.topology.partitions.size());
  request.num_workers_left = static_cast<int>(workers_.size());
  request.num_workers_closed = request.num_workers_left;
  for (PartitionState& partition : request.partitions) {
    partition.step_metadata = request.prepared->step_metadata;
    partition.values = request.prepared->values;
  }
  for (Scheduler* worker : workers_) {
    worker->open(request.key, request.prepared);
  }
  for (size_t partition = 0; partition < request.partitions.size() && !request.ended; ++partition) {
    next_walk(request, static_cast<int>(partition), true);
  }
}

// Asks the model what the partition does next.
void Conductor::next_walk(Request& request, int partition, bool is_first) {
  PartitionState& state = request.partitions[static_cast<size_t>(partition)];
  RequestProgress progress{
      .request = *request.prepared,
      .partition = graph_.topology.partitions[static_cast<size_t>(partition)].name,
      .graph_walk = state.graph_walk,
      .fwd_index = state.fwd_index,
      .num_generated_tokens = request.num_generated_tokens,
      .persist_signals = request.persist_signals};
  try {
    ForwardPassArgs args = is_first ? model_.get_initial_forward_pass_args(progress)
                                    : model_.get_partition_forward_pass_args(progress);
    for (const std::string& name : args.unpersist) {
      request.persist_signals.erase(name);
    }
    if (args.request_done) {
      end_partition(request, partition);
    } else {
      start_walk(request, partition, std::move(args));
    }
  } catch (const Error& error) {
    fail(request, error.code(), error.what());
  } catch (const std::exception& error) {
    fail(request, ErrorCode::kInternal, error.what());
  }
}

void Conductor::start_walk(Request& request, int partition, ForwardPassArgs args) {
  PartitionState& state = request.partitions[static_cast<size_t>(partition)];
  const uint16_t walk = graph_.get_walk(args.graph_walk);
  if (graph_.partition_of[walk] != partition) {
    throw Error(ErrorCode::kInternal,
                str_cat("[conductor] walk \"",
                        args.graph_walk,
                        "\" is not one of partition \"",
                        graph_.topology.partitions[static_cast<size_t>(partition)].name,
                        "\""));
  }
  if (args.step_metadata.is_object()) {
    for (const auto& [key, value] : args.step_metadata.get_object()) {
      state.step_metadata.set(key, value);  // sticky for the rest of the partition's life
    }
  }
  state.values.merge(args.values);
  state.graph_walk = args.graph_walk;
  state.walk = walk;
  state.consumed_final_chunk = false;
  state.requires_cfg = args.requires_cfg;

  auto info = std::make_shared<CurrentForwardPassInfo>();
  info->request_id = request.prepared->request_id;
  info->graph_walk = args.graph_walk;
  info->partition_name = graph_.topology.partitions[static_cast<size_t>(partition)].name;
  info->requires_cfg = args.requires_cfg;
  info->fwd_index = state.fwd_index;
  info->random_seed = request.prepared->random_seed;
  info->max_tokens = request.prepared->max_tokens;
  info->step_metadata = state.step_metadata;
  info->values = state.values;
  info->cancelled = request.cancelled;

  StartWalk start{.request = request.key,
                  .partition = partition,
                  .walk = walk,
                  .pass = request.next_pass++,
                  .info = std::move(info),
                  .inputs = std::move(args.inputs),
                  .loop_limits = std::move(args.loop_limits),
                  .report_progress = request.report_progress};
  {
    const std::lock_guard lock(mutex_);
    ++stats_.num_walks;
  }
  const auto& parts = placements_[walk].worker_graphs;
  state.num_parts_left = static_cast<int>(parts.size());
  for (const graph::WorkerGraph& part : parts) {
    workers_[part.group]->start_walk(start);
  }
}

void Conductor::handle_event(Request& request, WorkerEvent& event) {
  if (std::holds_alternative<RemovedEvent>(event.what)) {
    if (!request.ended) {  // the worker gave up by itself; its failure came first
      fail(request, ErrorCode::kInternal, "[conductor] a worker dropped the request");
    }
    if (--request.num_workers_left == 0) {
      forget(request.key);
    }
    return;
  }
  if (request.ended) {
    return;
  }
  if (std::holds_alternative<OpenedEvent>(event.what)) {
    if (--request.num_workers_closed == 0) {
      notify(request.key, request.prepared->request_id, RequestPhase::kStarted);
      request.sink->on_output({.kind = OutputEvent::Kind::kStarted});
    }
  } else if (auto* emit = std::get_if<EmitEvent>(&event.what)) {
    request.num_generated_tokens += emit->num_tokens;
    num_new_tokens_ += emit->num_tokens;
    request.sink->on_output({.kind = OutputEvent::Kind::kEmit,
                             .modality = emit->modality,
                             .name = emit->edge,
                             .tensors = std::move(emit->tensors),
                             .num_generated_tokens = request.num_generated_tokens});
  } else if (auto* persist = std::get_if<PersistEvent>(&event.what)) {
    request.persist_signals.set(persist->edge, std::move(persist->tensors));
  } else if (const auto* tokens = std::get_if<TokensEvent>(&event.what)) {
    request.num_generated_tokens += tokens->count;
    num_new_tokens_ += tokens->count;
  } else if (const auto* step = std::get_if<ProgressEvent>(&event.what)) {
    request.sink->on_output({.kind = OutputEvent::Kind::kProgress,
                             .name = step->loop,
                             .iteration = step->iteration,
                             .limit = step->limit,
                             .num_generated_tokens = request.num_generated_tokens});
  } else if (auto* failure = std::get_if<FailureEvent>(&event.what)) {
    fail(request, failure->code, std::move(failure->message));
  } else {
    PartitionState& state = request.partitions[static_cast<size_t>(event.partition)];
    state.consumed_final_chunk =
        state.consumed_final_chunk || std::get<WalkDoneEvent>(event.what).consumed_final_chunk;
    if (--state.num_parts_left > 0) {
      return;
    }
    ++state.fwd_index;
    if (state.consumed_final_chunk) {
      end_partition(request, event.partition);  // its stream is over: there is nothing to ask
    } else {
      next_walk(request, event.partition, false);
    }
  }
}

void Conductor::end_partition(Request& request, int partition) {
  request.partitions[static_cast<size_t>(partition)].done = true;
  const std::string& name = graph_.topology.partitions[static_cast<size_t>(partition)].name;
  for (const graph::Connection& connection : graph_.topology.connections) {
    if (connection.from == name) {
      for (Scheduler* worker : workers_) {
        worker->close_stream(request.key, connection.edge_name);
      }
    }
  }
  if (std::ranges::all_of(request.partitions, &PartitionState::done)) {
    end_request(
        request,
        {.kind = OutputEvent::Kind::kDone, .num_generated_tokens = request.num_generated_tokens});
  }
}

void Conductor::fail(Request& request, ErrorCode code, std::string message) {
  if (!request.ended) {
    end_request(request,
                {.kind = OutputEvent::Kind::kFailed,
                 .num_generated_tokens = request.num_generated_tokens,
                 .code = code,
                 .message = std::move(message)});
  }
}

void Conductor::end_request(Request& request, OutputEvent last) {
  request.ended = true;
  request.cancelled->store(true, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    if (last.kind == OutputEvent::Kind::kDone) {
      ++stats_.num_done;
    } else if (last.code == ErrorCode::kCancelled) {
      ++stats_.num_cancelled;
    } else {
      ++stats_.num_failed;
    }
  }
  notify(request.key,
         request.prepared->request_id,
         last.kind == OutputEvent::Kind::kDone ? RequestPhase::kDone
         : last.code == ErrorCode::kCancelled  ? RequestPhase::kCancelled
                                               : RequestPhase::kFailed);
  request.sink->on_output(std::move(last));
  request.persist_signals.clear();
  for (Scheduler* worker : workers_) {
    worker->remove(request.key);
  }
}

void Conductor::notify(RequestKey key, const std::string& request_id, RequestPhase phase) const {
  for (RuntimeListener* listener : options_.listeners) {
    listener->on_request(key, request_id, phase);
  }
}

void Conductor::forget(RequestKey key) {
  requests_.erase(key);
  const std::lock_guard lock(mutex_);
  if (--num_known_ == 0) {
    all_gone_.notify_all();
  }
}

}  // namespace mstar

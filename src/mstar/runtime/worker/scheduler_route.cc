#include <algorithm>
#include <cstring>
#include <optional>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/runtime/worker/scheduler.h"
#include "mstar/runtime/worker/scheduler_internal.h"

namespace mstar {

using graph::NodeId;
using graph::Signal;
using graph::SignalKind;
using internal::for_each_node;
using internal::node_bit;

// ---- routing what ran

void Scheduler::complete(StepBatch batch) {
  std::unique_lock lock(mutex_);
  running_ = false;
  num_captured_steps_ += batch.num_captured_steps;
  num_eager_steps_ += batch.num_eager_steps;
  bool counted = false;
  pending_events_.reserve(pending_events_.size() + batch.rows.size());
  StepRecord record{.worker = options_.worker,
                    .node = batch.node,
                    .walk = batch.graph_walk,
                    .requests = {},
                    .begin = batch.begin,
                    .seconds = batch.seconds,
                    .kernel_seconds = batch.kernel_seconds,
                    .num_tokens = batch.num_tokens,
                    .captured = batch.num_captured_steps > 0};
  std::vector<RequestKey> keys;
  keys.reserve(options_.listeners.empty() ? 0 : batch.rows.size());
  for (BatchRow& row : batch.rows) {
    ActiveRequest* const owner = by_handle_[static_cast<size_t>(row.request)];
    MSTAR_CHECK(owner != nullptr, "handle=", row.request);
    ActiveRequest& request = *owner;
    if (!options_.listeners.empty()) {
      keys.push_back(request.key);
    }
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
  lock.unlock();
  record.requests = keys;
  for (RuntimeListener* listener : options_.listeners) {
    listener->on_step(record);
  }
  batch.reset();
  spare_batch_ = std::move(batch);
}

void Scheduler::complete_row(StepBatch& batch,
                             BatchRow& row,
                             WalkRun& run,
                             ActiveRequest& request) {
  const auto node = static_cast<NodeId>(row.tag & 0xffff);
  if (request.removing) {
    ++num_wasted_rows_;
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
      ++num_deferred_rows_;
      run.state.abandon(node);
      run.held |= node_bit(node);
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

// The loops that the node's check ended. Fails the request for one that its walk does not have.
void Scheduler::stop_loops(WalkRun& run, ActiveRequest& request, NodeId node, const BatchRow& row) {
  const graph::CompiledWalk& walk = *run.walk;
  const graph::LoopTime time = run.state.time_of(node);
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
    run.state.stop_loop(loop, time, routing_);
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
}

void Scheduler::finish_node(WalkRun& run, ActiveRequest& request, NodeId node, BatchRow& row) {
  const graph::CompiledWalk& walk = *run.walk;
  const graph::LoopId scope = walk.nodes[node].scope;
  routing_.clear();
  if (!row.stopped_loops.empty()) {
    stop_loops(run, request, node, row);
    if (request.removing) {
      return;
    }
  }
  const int64_t iteration = scope != graph::kWalkScope ? run.state.iteration(scope) + 1 : 0;
  const auto outputs = walk.outputs_of(node);
  signals_.assign(outputs.size(), {});
  for (size_t output = 0; output < outputs.size(); ++output) {
    TensorList* tensors = row.outputs.find(outputs[output].name);
    if (tensors == nullptr) {
      continue;
    }
    if (tensors->size() == 1) {
      signals_[output] = Signal::tensors(payloads_.add(std::move(tensors->front())));
    } else {
      signals_[output] = tensors->empty() ? Signal::trigger()
                                          : Signal::tensors(payloads_.add(std::span(*tensors)));
    }
  }
  for (const auto& [name, chunk] : row.metadata.stream_chunks) {
    run.consumed_final = run.consumed_final || chunk.is_final;
  }
  const graph::CompleteResult result = run.state.complete(node, signals_, routing_);
  const graph::EdgeId missing = routing_.missing;
  route(request, run, routing_);
  if (result == graph::CompleteResult::kMissing) {
    const graph::CompiledEdge& edge = walk.edges[missing];
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
  int64_t num_tokens = 0;
  bool emits = false;
  for (const graph::Route& route : routing.routes) {
    emits = emits || route.kind == graph::RouteKind::kEmit;
    if (route.kind == graph::RouteKind::kToken) {
      num_tokens += route.signal.kind == SignalKind::kTensors
                        ? static_cast<int64_t>(payloads_.get(route.signal.payload).size())
                        : int64_t{1};
    }
  }
  if (num_tokens > 0 && !emits) {
    add_event(request.key, run.partition, TokensEvent{num_tokens});
  }
  for (const graph::Route& route : routing.routes) {
    const graph::CompiledEdge& edge = run.walk->edges[route.edge];
    TensorList tensors;
    if (route.signal.kind == SignalKind::kTensors) {
      if (route.kind != graph::RouteKind::kToken) {
        const auto items = payloads_.get(route.signal.payload);
        tensors.assign(items.begin(), items.end());
      }
      payloads_.release(route.signal.payload);
    }
    switch (route.kind) {
      case graph::RouteKind::kEmit:
        add_event(request.key,
                  run.partition,
                  EmitEvent{edge.modality,
                            edge.name,
                            std::move(tensors),
                            std::exchange(num_tokens, 0),
                            route.time});
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
      const bool was_full = stream.buffer->pop(*chunk) || !stream.overflow.empty();
      if (was_full) {
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

}  // namespace mstar

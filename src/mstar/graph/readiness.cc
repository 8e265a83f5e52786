#include "mstar/graph/readiness.h"

#include <algorithm>
#include <bit>

namespace mstar::graph {
namespace {

constexpr uint64_t bit(size_t index) {
  return uint64_t{1} << index;
}

template <typename Function>
void for_each_bit(uint64_t mask, Function&& function) {
  for (; mask != 0; mask &= mask - 1) function(static_cast<uint16_t>(std::countr_zero(mask)));
}

}  // namespace

const char* to_string(RouteKind kind) {
  switch (kind) {
    case RouteKind::kEmit: return "emit";
    case RouteKind::kPersist: return "persist";
    case RouteKind::kToken: return "token";
    case RouteKind::kStream: return "stream";
    case RouteKind::kRemote: return "remote";
  }
  return "?";
}

std::string LoopTime::to_string() const {
  std::string text = str_cat(pass);
  for (uint32_t level = 0; level < depth; ++level) {
    text += str_cat(level == 0 ? ":" : ".", iterations[level]);
  }
  return text;
}

WalkState::~WalkState() {
  release_all();
}

void WalkState::start(const CompiledWalk& walk, uint32_t pass, uint64_t local_nodes) {
  MSTAR_CHECK(running_ == 0, "a walk starts while nodes of the last one still run");
  release_all();
  walk_ = &walk;
  pass_ = pass;
  done_ = cancelled_ = false;
  local_nodes_ = local_nodes & walk.all_nodes();
  MSTAR_CHECK(local_nodes_ != 0, "walk '", walk.name, "' has no node on this worker");
  ready_ = waiting_for_stream_ = discarded_ = speculating_ = 0;
  finished_nodes_ = finished_loops_ = 0;
  scopes_.assign(walk.loops.size(), {});
  slots_.assign(2 * walk.cells.size(), {});
  missing_.assign(walk.nodes.size(), 0);
  spec_stamps_.assign(walk.nodes.size(), 0);
  last_values_.assign(2 * size_t{walk.num_captures}, {});
  if (all_values_.size() < walk.num_captures) all_values_.resize(walk.num_captures);
  for (size_t id = 0; id < walk.loops.size(); ++id) {
    const CompiledLoop& loop = walk.loops[id];
    scopes_[id].max_iters = static_cast<uint32_t>(loop.max_iters);
    scopes_[id].local_nodes = loop.nodes & local_nodes_;
    for_each_bit(loop.loops, [&](LoopId inner) {
      if ((walk.loops[inner].all_nodes & local_nodes_) != 0) scopes_[id].local_loops |= bit(inner);
    });
    enter(static_cast<LoopId>(id));
  }
  for_each_bit(local_nodes_, [&](NodeId node) { refresh_node(node); });
}

void WalkState::limit_loop(LoopId loop, int max_iters) {
  MSTAR_CHECK(loop != kWalkScope && max_iters >= 1, "loop=", loop, " max_iters=", max_iters);
  Scope& scope = scopes_[loop];
  scope.max_iters = std::min(scope.max_iters, static_cast<uint32_t>(max_iters));
  scope.last_iteration = std::min(scope.last_iteration, scope.max_iters - 1);
}

// ---- values from outside

DeliverResult WalkState::deliver(PortId port_id, Signal signal) {
  const Port& port = walk_->ports[port_id];
  MSTAR_CHECK(port.walk_input, "'", port.name, "' is not an input of walk '", walk_->name, "'");
  MSTAR_CHECK((local_nodes_ & bit(port.node)) != 0, "'", port.name, "' belongs to another worker");
  if (cancelled_ || done_) return DeliverResult::kStale;
  const auto base = static_cast<CellId>(port.first_cell + port.num_cells - 1);
  return put(base, scopes_[kWalkScope].stamp, signal);
}

DeliverResult WalkState::deliver_stream(PortId port_id, Signal signal) {
  const Port& port = walk_->ports[port_id];
  MSTAR_CHECK(port.streaming, "'", port.name, "' is not a streaming input");
  if (cancelled_ || done_) return DeliverResult::kStale;
  const bool is_ahead = (speculating_ & bit(port.node)) != 0;
  const uint32_t stamp =
      is_ahead ? spec_stamps_[port.node] : scopes_[walk_->nodes[port.node].scope].stamp;
  return put(port.first_cell, stamp, signal);
}

DeliverResult WalkState::deliver_remote(EdgeId edge_id, const LoopTime& time, Signal signal) {
  const CompiledEdge& edge = walk_->edges[edge_id];
  MSTAR_CHECK(edge.target == EdgeTarget::kNode && (local_nodes_ & bit(edge.node)) != 0,
              "edge '",
              edge.name,
              "' does not lead to a node of this worker");
  if (cancelled_ || done_ || time.pass < pass_) return DeliverResult::kStale;
  if (time.pass > pass_) return DeliverResult::kNotYet;
  const LoopId loop = walk_->cells[edge.cell].scope;
  const Scope& scope = scopes_[loop];
  if (loop == kWalkScope) return put(edge.cell, scope.stamp, signal);
  const int outer = compare_outer(loop, time);
  if (outer != 0) return outer < 0 ? DeliverResult::kStale : DeliverResult::kNotYet;
  const uint32_t target = time.iterations[walk_->loops[loop].depth - 1] + (edge.loop_back ? 1 : 0);
  if ((finished_loops_ & bit(loop)) != 0 || target < scope.iteration ||
      target > scope.last_iteration) {
    return DeliverResult::kStale;
  }
  if (target > scope.iteration + 1) return DeliverResult::kNotYet;
  return put(edge.cell, scope.stamp + (target - scope.iteration), signal);
}

DeliverResult WalkState::put(CellId cell_id, uint32_t stamp, Signal signal) {
  Slot& at = slot(cell_id, stamp);
  if (at.stamp == stamp) return DeliverResult::kDuplicate;
  MSTAR_DCHECK(signal.is_present() && !at.signal.is_present(),
               "cell ",
               cell_id,
               " still holds the value of stamp ",
               at.stamp);
  at = {signal, stamp};
  const Cell& cell = walk_->cells[cell_id];
  const Port& port = walk_->ports[cell.port];
  if (scopes_[cell.scope].stamp == stamp && active_cell(port) == cell_id) {
    missing_[port.node] &= ~bit(port.bit);
    update_ready(port.node);
  }
  return DeliverResult::kAccepted;
}

// ---- readiness of one node

// Which of a port's sources counts now: the innermost loop that already sent a value back, else
// where its first value comes from.
CellId WalkState::active_cell(const Port& port) const {
  CellId id = port.first_cell;
  const auto base = static_cast<CellId>(port.first_cell + port.num_cells - 1);
  while (id != base && scopes_[walk_->cells[id].scope].iteration == 0) ++id;
  return id;
}

void WalkState::refresh_node(NodeId node) {
  uint64_t missing = 0;
  for (const Port& port : walk_->ports_of(node)) {
    const CellId cell = active_cell(port);
    if (!holds(cell, scopes_[walk_->cells[cell].scope].stamp)) missing |= bit(port.bit);
  }
  missing_[node] = missing;
  update_ready(node);
}

void WalkState::update_ready(NodeId node) {
  const uint64_t self = bit(node);
  ready_ &= ~self;
  waiting_for_stream_ &= ~self;
  if (((finished_nodes_ | running_ | speculating_ | ~local_nodes_) & self) != 0 || cancelled_)
    return;
  if (missing_[node] == 0) {
    ready_ |= self;
  } else if ((missing_[node] & ~walk_->nodes[node].streaming_ports) == 0) {
    waiting_for_stream_ |= self;
  }
}

void WalkState::read_inputs(NodeId node, std::span<Signal> inputs) const {
  const std::span<const Port> ports = walk_->ports_of(node);
  MSTAR_CHECK(inputs.size() == ports.size(), inputs.size(), " places for ", ports.size());
  for (size_t index = 0; index < ports.size(); ++index) {
    const CellId cell = active_cell(ports[index]);
    const uint32_t stamp = scopes_[walk_->cells[cell].scope].stamp;
    inputs[index] = holds(cell, stamp) ? slot(cell, stamp).signal : Signal();
  }
}

void WalkState::begin(NodeId node, std::span<Signal> inputs) {
  MSTAR_CHECK((ready_ & bit(node)) != 0, "node '", walk_->nodes[node].name, "' is not ready");
  read_inputs(node, inputs);
  running_ |= bit(node);
  ready_ &= ~bit(node);
}

void WalkState::abandon(NodeId node) {
  MSTAR_CHECK((running_ & bit(node)) != 0, "node '", walk_->nodes[node].name, "' is not running");
  running_ &= ~bit(node);
  discarded_ &= ~bit(node);
  update_ready(node);
}

// ---- completion

CompleteResult WalkState::complete(NodeId node, std::span<const Signal> outputs, Routing& routing) {
  const CompiledNode& info = walk_->nodes[node];
  const uint64_t self = bit(node);
  MSTAR_CHECK((running_ & self) != 0, "node '", info.name, "' is not running");
  MSTAR_CHECK(outputs.size() == info.num_outputs,
              "node '",
              info.name,
              "' made ",
              outputs.size(),
              " outputs of ",
              info.num_outputs);
  running_ &= ~self;
  if (cancelled_ || (discarded_ & self) != 0) {
    discarded_ &= ~self;
    for (Signal output : outputs) drop(output);
    update_ready(node);
    return CompleteResult::kDiscarded;
  }
  use_inputs(node);
  finished_nodes_ |= self;
  for (size_t index = 0; index < outputs.size(); ++index) {
    route(static_cast<OutputId>(info.first_output + index), outputs[index], info.scope, routing);
  }
  end_iteration_if_done(info.scope, routing);
  if (routing.missing != kNoId) return CompleteResult::kMissing;
  return is_done() ? CompleteResult::kWalkDone : CompleteResult::kContinues;
}

void WalkState::use_inputs(NodeId node) {
  for (const Port& port : walk_->ports_of(node)) {
    const CellId id = active_cell(port);
    const Cell& cell = walk_->cells[id];
    if (cell.once) drop(slot(id, scopes_[cell.scope].stamp).signal);
  }
}

void WalkState::route(OutputId output, Signal signal, LoopId scope, Routing& routing) {
  const Output& made = walk_->outputs[output];
  if (!signal.is_present()) {
    report_missing(made, routing);
    return;
  }
  for (uint32_t id = made.first_edge; id < uint32_t{made.first_edge} + made.num_edges; ++id) {
    route_edge(static_cast<EdgeId>(id), signal, scope, routing);
  }
  for (OutputId kept_as : made.captured_by) {
    keep_for_loop(walk_->outputs[kept_as], share(signal), scope);
  }
  drop(signal);
}

void WalkState::route_edge(EdgeId id, Signal signal, LoopId scope, Routing& routing) {
  const CompiledEdge& edge = walk_->edges[id];
  const auto push = [&](RouteKind kind) {
    routing.routes.push_back({kind, id, share(signal), scope_time(scope)});
  };
  switch (edge.target) {
    case EdgeTarget::kNode: {
      // After the last iteration nobody reads what goes back.
      if (edge.loop_back && is_last_iteration(scope)) break;
      if ((local_nodes_ & bit(edge.node)) == 0) {
        push(RouteKind::kRemote);
        break;
      }
      const uint32_t stamp = scopes_[scope].stamp + (edge.loop_back ? 1 : 0);
      const DeliverResult result = put(edge.cell, stamp, share(signal));
      MSTAR_CHECK(result == DeliverResult::kAccepted, "edge '", edge.name, "' delivered twice");
      break;
    }
    case EdgeTarget::kClient: push(RouteKind::kEmit); break;
    case EdgeTarget::kStream: push(RouteKind::kStream); break;
    case EdgeTarget::kNone: break;
  }
  if (edge.persist) push(RouteKind::kPersist);
  if (edge.counts_as_token) push(RouteKind::kToken);
}

void WalkState::report_missing(const Output& output, Routing& routing) const {
  // A loop split over workers gives each output where it is made.
  if ((local_nodes_ & bit(output.made_by)) == 0) return;
  for (uint32_t id = output.first_edge; id < uint32_t{output.first_edge} + output.num_edges; ++id) {
    const CompiledEdge& edge = walk_->edges[id];
    if (edge.target != EdgeTarget::kNode || routing.missing != kNoId) continue;
    if (edge.loop_back && is_last_iteration(walk_->cells[edge.cell].scope)) continue;
    routing.missing = static_cast<EdgeId>(id);
  }
}

Signal WalkState::share(Signal signal) {
  if (signal.kind == SignalKind::kTensors) payloads_.retain(signal.payload);
  return signal;
}

void WalkState::drop(Signal& signal) {
  if (signal.kind == SignalKind::kTensors) payloads_.release(signal.payload);
  signal = {};
}

// ---- loops

void WalkState::keep_for_loop(const Output& loop_output, Signal signal, LoopId loop) {
  const uint32_t stamp = scopes_[loop].stamp;
  if (loop_output.accumulated) {
    // A trigger adds no tensor.
    if (signal.kind == SignalKind::kTensors) {
      all_values_[loop_output.capture].push_back({signal.payload, stamp});
    }
    return;
  }
  Slot* slots = &last_values_[2 * size_t{loop_output.capture}];
  // Only a stop from another worker can take an iteration back.
  if ((walk_->loops[loop].all_nodes & ~local_nodes_) == 0) drop(slots[(stamp + 1) & 1].signal);
  drop(slots[stamp & 1].signal);
  slots[stamp & 1] = {signal, stamp};
}

// The value(s) of iterations up to `last_stamp`; later ones were discarded and are released.
Signal WalkState::take_kept(const Output& output, uint32_t last_stamp) {
  if (!output.accumulated) {
    Slot* slots = &last_values_[2 * size_t{output.capture}];
    Slot* newest = nullptr;
    for (Slot* at : {slots, slots + 1}) {
      if (!at->signal.is_present()) continue;
      if (at->stamp > last_stamp) {
        drop(at->signal);
      } else if (newest == nullptr || at->stamp > newest->stamp) {
        newest = at;
      }
    }
    const Signal value = newest == nullptr ? Signal() : share(newest->signal);
    drop(slots[0].signal);
    drop(slots[1].signal);
    return value;
  }
  std::vector<Kept>& kept = all_values_[output.capture];
  scratch_.clear();
  for (const Kept& value : kept) {
    if (value.stamp <= last_stamp) {
      scratch_.push_back(value.payload);
    } else {
      payloads_.release(value.payload);
    }
  }
  kept.clear();
  if (scratch_.empty()) return {};
  return Signal::tensors(scratch_.size() == 1 ? scratch_[0] : payloads_.concat(scratch_));
}

void WalkState::enter(LoopId loop) {
  Scope& scope = scopes_[loop];
  scope.stamp += 2;
  scope.iteration = 0;
  scope.last_iteration = scope.max_iters - 1;
}

void WalkState::end_iteration_if_done(LoopId loop, Routing& routing) {
  const Scope& scope = scopes_[loop];
  if ((scope.local_nodes & ~finished_nodes_) != 0 || (scope.local_loops & ~finished_loops_) != 0) {
    return;
  }
  if (loop == kWalkScope) {
    done_ = true;
  } else if (is_last_iteration(loop)) {
    finish(loop, scope.stamp, routing);
  } else {
    advance(loop);
  }
}

void WalkState::advance(LoopId loop) {
  const CompiledLoop& info = walk_->loops[loop];
  ++scopes_[loop].stamp;
  ++scopes_[loop].iteration;
  finished_nodes_ &= ~info.all_nodes;
  finished_loops_ &= ~info.all_loops;
  for_each_bit(info.all_loops, [&](LoopId inner) { enter(inner); });
  for_each_bit(info.all_nodes & local_nodes_, [&](NodeId node) { refresh_node(node); });
}

// The loop ends with the values of iteration `last_stamp`. Everything inside is released, what it
// gives is routed as its parent's, and the parent may end in turn.
void WalkState::finish(LoopId loop, uint32_t last_stamp, Routing& routing) {
  const CompiledLoop& info = walk_->loops[loop];
  discarded_ |= running_ & info.all_nodes;
  finished_nodes_ |= info.all_nodes & local_nodes_;
  finished_loops_ |= bit(loop) | info.all_loops;
  ready_ &= ~info.all_nodes;
  waiting_for_stream_ &= ~info.all_nodes;
  for (CellId cell : info.inner_cells) {
    drop(slots_[2 * size_t{cell}].signal);
    drop(slots_[2 * size_t{cell} + 1].signal);
  }
  for (CellId cell : info.entry_cells) {
    drop(slot(cell, scopes_[walk_->cells[cell].scope].stamp).signal);
  }
  for_each_bit(info.all_loops, [&](LoopId inner) {
    const CompiledLoop& inside = walk_->loops[inner];
    for (uint32_t id = 0; id < inside.num_outputs; ++id) {
      Signal unfinished = take_kept(walk_->outputs[inside.first_output + id], 0);
      drop(unfinished);
    }
  });
  for (uint32_t id = info.first_output; id < uint32_t{info.first_output} + info.num_outputs; ++id) {
    const Signal value = take_kept(walk_->outputs[id], last_stamp);
    route(static_cast<OutputId>(id), value, info.parent, routing);
  }
  end_iteration_if_done(info.parent, routing);
}

StopResult WalkState::stop_loop(LoopId loop, const LoopTime& time, Routing& routing) {
  MSTAR_CHECK(loop != kWalkScope && (walk_->loops[loop].all_nodes & local_nodes_) != 0,
              "loop ",
              loop,
              " has no node on this worker");
  if (cancelled_ || done_ || time.pass < pass_) return StopResult::kIgnored;
  if (time.pass > pass_) return StopResult::kNotYet;
  const int outer = compare_outer(loop, time);
  if (outer > 0) return StopResult::kNotYet;
  Scope& scope = scopes_[loop];
  const uint32_t last = time.iterations[walk_->loops[loop].depth - 1];
  if (outer < 0 || (finished_loops_ & bit(loop)) != 0 || last >= scope.last_iteration) {
    return StopResult::kIgnored;
  }
  scope.last_iteration = last;
  if (scope.iteration > last) finish(loop, scope.stamp - (scope.iteration - last), routing);
  return StopResult::kApplied;
}

LoopTime WalkState::scope_time(LoopId scope) const {
  LoopTime time;
  time.pass = pass_;
  time.depth = walk_->loops[scope].depth;
  for (LoopId loop = scope; loop != kWalkScope; loop = walk_->loops[loop].parent) {
    time.iterations[walk_->loops[loop].depth - 1] = scopes_[loop].iteration;
  }
  return time;
}

// Sign of (time - now) over the loops around `loop`.
int WalkState::compare_outer(LoopId loop, const LoopTime& time) const {
  const LoopTime now = scope_time(walk_->loops[loop].parent);
  for (uint32_t level = 0; level < now.depth; ++level) {
    if (time.iterations[level] != now.iterations[level]) {
      return time.iterations[level] < now.iterations[level] ? -1 : 1;
    }
  }
  return 0;
}

// ---- end

void WalkState::cancel() {
  cancelled_ = true;
  ready_ = waiting_for_stream_ = 0;
  release_all();
}

void WalkState::release_all() {
  for (Slot& each : slots_) drop(each.signal);
  for (Slot& each : last_values_) drop(each.signal);
  for (std::vector<Kept>& values : all_values_) {
    for (const Kept& value : values) payloads_.release(value.payload);
    values.clear();
  }
}

}  // namespace mstar::graph

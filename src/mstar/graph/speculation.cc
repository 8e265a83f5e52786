#include <bit>

#include "mstar/graph/readiness.h"

// Launching a node before its inputs exist. Nothing of the walk moves: a speculation only marks
// the node and the iteration it is for, so undoing it is forgetting the mark.
namespace mstar::graph {
namespace {

constexpr uint64_t bit(size_t index) {
  return uint64_t{1} << index;
}

}  // namespace

bool WalkState::ends_iteration(NodeId running) const {
  const Scope& scope = scopes_[walk_->nodes[running].scope];
  return (scope.local_nodes & ~(finished_nodes_ | bit(running))) == 0 &&
         (scope.local_loops & ~finished_loops_) == 0;
}

// The value the port will have once `running` completed; absent when that does not give it one.
Signal WalkState::anticipated(NodeId running,
                              const Port& port,
                              bool new_iteration,
                              LoopId loop) const {
  CellId id = port.first_cell;
  const auto base = static_cast<CellId>(port.first_cell + port.num_cells - 1);
  const auto iteration_then = [&](LoopId scope) {
    return scopes_[scope].iteration + (new_iteration && scope == loop ? 1 : 0);
  };
  while (id != base && iteration_then(walk_->cells[id].scope) == 0) ++id;
  const LoopId scope = walk_->cells[id].scope;
  const uint32_t stamp = scopes_[scope].stamp + (new_iteration && scope == loop ? 1 : 0);
  if (holds(id, stamp)) return slot(id, stamp).signal;
  const CompiledNode& maker = walk_->nodes[running];
  for (uint32_t index = 0; index < maker.num_outputs; ++index) {
    const Output& made = walk_->outputs[maker.first_output + index];
    for (uint32_t at = made.first_edge; at < uint32_t{made.first_edge} + made.num_edges; ++at) {
      const CompiledEdge& edge = walk_->edges[at];
      if (edge.target != EdgeTarget::kNode || edge.cell != id) continue;
      // The value must be for the iteration in question.
      if (stamp == scopes_[scope].stamp + (edge.loop_back ? 1 : 0)) return Signal::late(index);
    }
  }
  return {};
}

bool WalkState::would_be_ready(NodeId running, Speculation& candidate) const {
  for (const Port& port : walk_->ports_of(candidate.node)) {
    const Signal value = anticipated(running, port, candidate.new_iteration, candidate.loop);
    if (value.kind == SignalKind::kLate) {
      candidate.late_ports |= bit(port.bit);
    } else if (!value.is_present()) {
      if (!port.streaming) return false;
      candidate.streaming_ports |= bit(port.bit);
    }
  }
  return candidate.new_iteration || candidate.late_ports != 0;
}

void WalkState::speculate(NodeId running, std::vector<Speculation>& candidates) const {
  candidates.clear();
  const CompiledNode& now = walk_->nodes[running];
  MSTAR_CHECK((running_ & bit(running)) != 0, "node '", now.name, "' is not running");
  if (cancelled_ || (discarded_ & bit(running)) != 0 || !now.enable_async_scheduling) return;
  const bool next =
      now.scope != kWalkScope && ends_iteration(running) && !is_last_iteration(now.scope);
  for (uint64_t rest = local_nodes_ & ~speculating_; rest != 0; rest &= rest - 1) {
    const auto node = static_cast<NodeId>(std::countr_zero(rest));
    const CompiledNode& info = walk_->nodes[node];
    if (!info.enable_async_scheduling) continue;
    Speculation candidate{.node = node, .loop = info.scope};
    if ((bit(node) & (finished_nodes_ | running_)) != 0) {
      // It can only run again in the next iteration, which begins when `running` completes.
      const bool is_free = node == running || (bit(node) & running_) == 0;
      if (!next || !is_free || info.scope != now.scope) continue;
      candidate.new_iteration = true;
    }
    if (would_be_ready(running, candidate)) candidates.push_back(candidate);
  }
}

void WalkState::begin_speculative(const Speculation& speculation,
                                  NodeId running,
                                  std::span<Signal> inputs) {
  const NodeId node = speculation.node;
  const std::span<const Port> ports = walk_->ports_of(node);
  MSTAR_CHECK(inputs.size() == ports.size(), inputs.size(), " places for ", ports.size());
  MSTAR_CHECK((speculating_ & bit(node)) == 0, "node '", walk_->nodes[node].name, "' twice");
  for (size_t index = 0; index < ports.size(); ++index) {
    inputs[index] = anticipated(running, ports[index], speculation.new_iteration, speculation.loop);
  }
  speculating_ |= bit(node);
  spec_stamps_[node] = scopes_[speculation.loop].stamp + (speculation.new_iteration ? 1 : 0);
  ready_ &= ~bit(node);
  waiting_for_stream_ &= ~bit(node);
}

bool WalkState::promote(NodeId node) {
  const uint64_t self = bit(node);
  MSTAR_CHECK((speculating_ & self) != 0, "node '", walk_->nodes[node].name, "' is no speculation");
  const bool holds_true = !cancelled_ && ((finished_nodes_ | running_) & self) == 0 &&
                          scopes_[walk_->nodes[node].scope].stamp == spec_stamps_[node] &&
                          missing_[node] == 0;
  if (!holds_true) {
    rollback(node);
    return false;
  }
  speculating_ &= ~self;
  running_ |= self;
  return true;
}

void WalkState::rollback(NodeId node) {
  MSTAR_CHECK(
      (speculating_ & bit(node)) != 0, "node '", walk_->nodes[node].name, "' is no speculation");
  speculating_ &= ~bit(node);
  for (const Port& port : walk_->ports_of(node)) {
    if (!port.streaming) continue;
    Slot& staged = slot(port.first_cell, spec_stamps_[node]);
    if (staged.stamp != spec_stamps_[node]) continue;
    drop(staged.signal);
    staged.stamp = 0;
  }
  refresh_node(node);
}

}  // namespace mstar::graph

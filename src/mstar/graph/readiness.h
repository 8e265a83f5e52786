#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mstar/graph/compile.h"
#include "mstar/graph/signal.h"

namespace mstar::graph {

enum class RouteKind : uint8_t {
  kEmit,     // to the client, with the edge's modality
  kPersist,  // to the conductor, for a later walk
  kToken,    // counts as generated tokens
  kStream,   // into the StreamBuffer of the edge's target partition
  kRemote,   // to the worker that hosts the consumer (deliver_remote there)
};

const char* to_string(RouteKind kind);

// One thing the caller must do with a value. It owns one reference to the payload.
struct Route {
  RouteKind kind = RouteKind::kEmit;
  EdgeId edge = kNoId;
  Signal signal;
  LoopTime time;  // of the producer
};

// What a completion gave the outside to do, in the order it happened. Reused between calls; the
// caller takes over the references, then clear()s.
struct Routing {
  std::vector<Route> routes;
  EdgeId missing = kNoId;  // an edge whose consumer waits for a value that was not made

  void clear() {
    routes.clear();
    missing = kNoId;
  }
};

enum class DeliverResult : uint8_t {
  kAccepted,   // the reference is the walk's now; after all others it stays the caller's
  kDuplicate,  // the input has its value
  kStale,      // for an iteration that is over
  kNotYet,     // for an iteration too far ahead: keep it and offer it again after a completion
};

enum class CompleteResult : uint8_t {
  kContinues,
  kWalkDone,   // the last node of the walk (of this worker's part of it)
  kDiscarded,  // a late stop or a cancellation overtook the step: its outputs were dropped
  kMissing,    // Routing::missing tells which value was not made; fail the request
};

enum class StopResult : uint8_t {
  kApplied,
  kIgnored,  // the loop, or the outer iteration it was meant for, is over
  kNotYet,   // meant for an outer iteration this worker has not reached: offer it again later
};

// A node that could start before its inputs exist. See WalkState::speculate.
struct Speculation {
  NodeId node = kNoId;
  bool new_iteration = false;    // of `loop`
  LoopId loop = kWalkScope;      // innermost loop around the node
  uint64_t late_ports = 0;       // will come from the running node
  uint64_t streaming_ports = 0;  // need a chunk, see deliver_stream
};

// The state of one request in one walk on one worker: which inputs arrived, which iteration each
// loop is in, who may run. Owns references to payloads, nothing else. All storage is sized by
// start(); a step allocates nothing (accumulated outputs grow with the iterations).
// One thread: the worker's scheduler.
//
// Values carry the iteration they are for. A node is ready when each input holds a value stamped
// with the current iteration of the loop it belongs to, and it has not yet run in this one.
class WalkState {
 public:
  explicit WalkState(PayloadOwner& payloads) : payloads_(payloads) {}

  ~WalkState();

  WalkState(const WalkState&) = delete;
  WalkState& operator=(const WalkState&) = delete;

  // Begins `walk`; only the nodes in `local_nodes` run here. `pass` numbers the walks of the
  // request. Everything held from before is released. `walk` must outlive the state.
  void start(const CompiledWalk& walk, uint32_t pass, uint64_t local_nodes);

  void start(const CompiledWalk& walk, uint32_t pass) { start(walk, pass, walk.all_nodes()); }

  // Ends a loop of this request after at most `max_iters` (>= 1) iterations: its own budget.
  void limit_loop(LoopId loop, int max_iters);

  // ---- values from outside

  // A value from the conductor; the port must be a walk input of a local node.
  DeliverResult deliver(PortId port, Signal signal);
  // A chunk. kDuplicate while the node has not used the last one: leave it in the StreamBuffer.
  DeliverResult deliver_stream(PortId port, Signal signal);
  // What a Route of kind kRemote carried.
  DeliverResult deliver_remote(EdgeId edge, const LoopTime& time, Signal signal);

  // ---- running nodes

  uint64_t ready() const { return ready_; }  // bit = NodeId

  // Nodes that miss nothing but chunks.
  uint64_t waiting_for_stream() const { return waiting_for_stream_; }

  uint64_t running() const { return running_; }

  uint64_t speculating() const { return speculating_; }

  // The current values of a node's inputs, in port order; references stay the walk's.
  void read_inputs(NodeId node, std::span<Signal> inputs) const;

  // A ready node starts. Its inputs stay alive until it completes.
  void begin(NodeId node, std::span<Signal> inputs);
  // A running node did not run after all and is ready again.
  void abandon(NodeId node);
  // A running node finished. `outputs` by output index; their references are taken over. Stops
  // found in these outputs are to be given to stop_loop first.
  CompleteResult complete(NodeId node, std::span<const Signal> outputs, Routing& routing);

  bool is_done() const { return done_ && running_ == 0; }

  // ---- loops

  uint32_t iteration(LoopId loop) const { return scopes_[loop].iteration; }

  bool is_last_iteration(LoopId loop) const {
    return scopes_[loop].iteration >= scopes_[loop].last_iteration;
  }

  LoopTime time_of(NodeId node) const { return scope_time(walk_->nodes[node].scope); }

  // check_stop named `loop` for the step that ran at `time`: it ends with that iteration. When
  // this worker already began a later one (the stop came from another worker), that is discarded.
  StopResult stop_loop(LoopId loop, const LoopTime& time, Routing& routing);

  // ---- speculation

  // Nodes that could start once `running` completes, assuming that it makes all its outputs: in
  // this iteration or, when it is the last one to run, in the next of the innermost loop.
  void speculate(NodeId running, std::vector<Speculation>& candidates) const;
  // Marks the node as launched ahead. Inputs that do not exist are Signal::late, chunks absent.
  void begin_speculative(const Speculation& speculation, NodeId running, std::span<Signal> inputs);
  // After `running` completed: true when the speculation held, and the node is running. False
  // rolls it back; its results must be thrown away.
  bool promote(NodeId node);
  // Forgets the speculation. A chunk delivered to it is released: pop the StreamBuffer only after
  // promote().
  void rollback(NodeId node);

  // ---- end

  // Releases every payload now. Steps in flight may still complete; they are discarded.
  void cancel();

 private:
  struct Slot {
    Signal signal;
    uint32_t stamp = 0;
  };

  struct Scope {
    uint32_t stamp = 0;      // grows by 1 with an iteration, by 2 with an entry; never repeats
    uint32_t iteration = 0;  // since the entry
    uint32_t last_iteration = 0;
    uint32_t max_iters = 1;
    uint64_t local_nodes = 0;
    uint64_t local_loops = 0;
  };

  struct Kept {
    PayloadId payload;
    uint32_t stamp;
  };

  Slot& slot(CellId cell, uint32_t stamp) { return slots_[2 * size_t{cell} + (stamp & 1)]; }

  const Slot& slot(CellId cell, uint32_t stamp) const {
    return slots_[2 * size_t{cell} + (stamp & 1)];
  }

  bool holds(CellId cell, uint32_t stamp) const {
    const Slot& at = slot(cell, stamp);
    return at.stamp == stamp && at.signal.is_present();
  }

  CellId active_cell(const Port& port) const;
  LoopTime scope_time(LoopId scope) const;
  DeliverResult put(CellId cell, uint32_t stamp, Signal signal);
  void drop(Signal& signal);
  void refresh_node(NodeId node);
  void update_ready(NodeId node);
  void use_inputs(NodeId node);
  void route(OutputId output, Signal signal, LoopId scope, Routing& routing);
  void route_edge(EdgeId edge, Signal signal, LoopId scope, Routing& routing);
  void report_missing(const Output& output, Routing& routing) const;
  void keep_for_loop(const Output& loop_output, Signal signal, LoopId loop);
  Signal take_kept(const Output& output, uint32_t last_stamp);
  Signal share(Signal signal);
  void enter(LoopId loop);
  void end_iteration_if_done(LoopId scope, Routing& routing);
  void advance(LoopId loop);
  void finish(LoopId loop, uint32_t last_stamp, Routing& routing);
  int compare_outer(LoopId loop, const LoopTime& time) const;
  bool ends_iteration(NodeId running) const;
  bool would_be_ready(NodeId running, Speculation& candidate) const;
  Signal anticipated(NodeId running, const Port& port, bool new_iteration, LoopId loop) const;
  void release_all();

  PayloadOwner& payloads_;
  const CompiledWalk* walk_ = nullptr;
  uint32_t pass_ = 0;
  bool done_ = false;
  bool cancelled_ = false;
  uint64_t local_nodes_ = 0;
  uint64_t ready_ = 0;
  uint64_t waiting_for_stream_ = 0;
  uint64_t running_ = 0;
  uint64_t discarded_ = 0;  // running, but overtaken by a stop
  uint64_t speculating_ = 0;
  uint64_t finished_nodes_ = 0;  // in the current iteration of their loop
  uint64_t finished_loops_ = 0;
  std::vector<Scope> scopes_;                  // [loop]
  std::vector<Slot> slots_;                    // [cell][2]: values for two consecutive iterations
  std::vector<uint64_t> missing_;              // [node]: ports without a value for this iteration
  std::vector<uint32_t> spec_stamps_;          // [node]: iteration a speculation is for
  std::vector<Slot> last_values_;              // [capture][2]
  std::vector<std::vector<Kept>> all_values_;  // [capture]
  std::vector<PayloadId> scratch_;
};

}  // namespace mstar::graph

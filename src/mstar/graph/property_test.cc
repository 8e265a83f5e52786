// Random walks, run in random order by one worker or several, against the interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <set>

#include "mstar/graph/compile.h"
#include "mstar/graph/readiness.h"
#include "mstar/graph/testing/random_walk.h"
#include "mstar/graph/worker_split.h"

namespace mstar::graph::testing {
namespace {

struct Options {
  int num_workers = 1;
  bool speculates = false;
  bool stops = false;
  int cancel_after = -1;  // completions
};

// Plays the workers of one request: starts, finishes, launches ahead and delivers messages in
// random order.
class Player {
 public:
  Player(const WalkGraph& graph, uint64_t seed, const Options& options)
      : random_(seed), options_(options), walk_(compile(graph)) {
    std::vector<uint16_t> group_of(walk_.nodes.size());
    for (uint16_t& group : group_of) group = static_cast<uint16_t>(pick(options.num_workers));
    placement_ = split(walk_, group_of);
    for (const WorkerGraph& part : placement_.worker_graphs) {
      workers_.push_back(std::make_unique<Worker>(payloads_));
      workers_.back()->group = part.group;
      workers_.back()->state.start(walk_, 0, part.nodes);
    }
    for (size_t port = 0; port < walk_.ports.size(); ++port) {
      if (!walk_.ports[port].walk_input) continue;
      const std::string name =
          walk_.nodes[walk_.ports[port].node].name + "." + walk_.ports[port].name;
      inputs_[name] = {std::hash<std::string>()(name)};
      arriving_.push_back(static_cast<PortId>(port));
    }
    std::shuffle(arriving_.begin(), arriving_.end(), random_);
  }

  ~Player() {
    for (const Message& message : messages_) release(message.signal);
  }

  StopRule stop_rule() const {
    return [this](const std::string& node, const std::vector<Value>& outputs) -> std::string {
      const LoopId loop = walk_.nodes[walk_.find_node(node)].scope;
      if (!options_.stops || loop == kWalkScope || outputs.empty()) return "";
      return outputs[0][0] % 4 == 0 ? walk_.loops[loop].name : "";
    };
  }

  const std::map<std::string, Value>& inputs() const { return inputs_; }

  // False when nothing can move although the walk is not done.
  bool play() {
    for (int step = 0; step < 200000; ++step) {
      if (is_done()) return true;
      if (options_.cancel_after >= 0 && num_completed_ >= options_.cancel_after) cancel();
      if (!move() && !is_done()) return is_cancelled_;
    }
    return false;
  }

  ReferenceRun outcome;

  size_t num_payloads() const { return payloads_.num_live(); }

  bool repeated_a_run = false;  // a node ran twice in one iteration

 private:
  struct Running {
    NodeId node;
    std::vector<Signal> inputs;
    bool is_ahead = false;  // launched on late inputs
    LoopTime time;
  };

  struct Worker {
    explicit Worker(PayloadOwner& owner) : state(owner) {}

    uint16_t group = 0;
    WalkState state;
    std::vector<Running> running;
  };

  struct Message {
    bool is_stop = false;
    size_t worker = 0;
    uint16_t id = 0;  // edge or loop
    LoopTime time;
    Signal signal;
  };

  size_t pick(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }

  bool is_done() const {
    return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
      return worker->state.is_done();
    });
  }

  size_t worker_of(uint16_t group) const {
    for (size_t index = 0; index < workers_.size(); ++index) {
      if (workers_[index]->group == group) return index;
    }
    return 0;
  }

  bool move() {
    const size_t first = pick(4);
    for (size_t offset = 0; offset < 4; ++offset) {
      switch ((first + offset) % 4) {
        case 0:
          if (give_input()) return true;
          break;
        case 1:
          if (begin_one()) return true;
          break;
        case 2:
          if (finish_one()) return true;
          break;
        case 3:
          if (deliver_message()) return true;
          break;
      }
    }
    return false;
  }

  bool give_input() {
    if (arriving_.empty()) return false;
    const PortId port = arriving_.back();
    arriving_.pop_back();
    const NodeId node = walk_.ports[port].node;
    const std::string name = walk_.nodes[node].name + "." + walk_.ports[port].name;
    const Signal signal = Signal::tensors(payloads_.add(std::span<const uint64_t>(inputs_[name])));
    WalkState& state = workers_[worker_of(placement_.group_of[node])]->state;
    const DeliverResult result = state.deliver(port, signal);
    if (result != DeliverResult::kAccepted) release(signal);
    return true;
  }

  bool begin_one() {
    std::vector<std::pair<size_t, NodeId>> ready;
    for (size_t index = 0; index < workers_.size(); ++index) {
      for (uint64_t rest = workers_[index]->state.ready(); rest != 0; rest &= rest - 1) {
        ready.emplace_back(index, static_cast<NodeId>(std::countr_zero(rest)));
      }
    }
    if (ready.empty()) return false;
    const auto [index, node] = ready[pick(ready.size())];
    Worker& worker = *workers_[index];
    Running started{node, std::vector<Signal>(walk_.nodes[node].num_ports), false, {}};
    worker.state.begin(node, started.inputs);
    if (pick(10) == 0) {
      worker.state.abandon(node);
      return true;
    }
    started.time = worker.state.time_of(node);
    worker.running.push_back(started);
    return true;
  }

  bool finish_one() {
    std::vector<std::pair<size_t, size_t>> running;
    for (size_t index = 0; index < workers_.size(); ++index) {
      for (size_t at = 0; at < workers_[index]->running.size(); ++at)
        running.emplace_back(index, at);
    }
    if (running.empty()) return false;
    const auto [index, at] = running[pick(running.size())];
    Worker& worker = *workers_[index];
    const Running done = worker.running[at];
    worker.running.erase(worker.running.begin() + static_cast<std::ptrdiff_t>(at));
    std::vector<Speculation> candidates;
    if (options_.speculates) worker.state.speculate(done.node, candidates);
    NodeId launched = kNoId;
    std::vector<Signal> launched_inputs;
    if (!candidates.empty() && pick(3) > 0) {
      const Speculation& chosen = candidates[pick(candidates.size())];
      launched = chosen.node;
      launched_inputs.resize(walk_.nodes[launched].num_ports);
      worker.state.begin_speculative(chosen, done.node, launched_inputs);
    }
    complete(index, done);
    if (launched == kNoId) return true;
    if (pick(5) == 0) {
      worker.state.rollback(launched);
    } else if (worker.state.promote(launched)) {
      Running started{launched, launched_inputs, true, worker.state.time_of(launched)};
      // Late inputs are there now; the others must not have changed.
      std::vector<Signal> now(launched_inputs.size());
      worker.state.read_inputs(launched, now);
      for (size_t port = 0; port < now.size(); ++port) {
        if (launched_inputs[port].kind != SignalKind::kLate) {
          EXPECT_EQ(launched_inputs[port], now[port]);
        }
      }
      started.inputs = now;
      worker.running.push_back(started);
    }
    return true;
  }

  void complete(size_t index, const Running& done) {
    Worker& worker = *workers_[index];
    const CompiledNode& node = walk_.nodes[done.node];
    std::vector<Value> inputs, outputs;
    std::vector<Signal> made;
    const bool is_live = (worker.state.running() >> done.node & 1) != 0 && !is_cancelled_;
    if (is_live && !was_discarded(worker, done)) {
      for (Signal input : done.inputs) {
        const auto items = payloads_.get(input.payload);
        inputs.emplace_back(items.begin(), items.end());
      }
    }
    for (const Output& output : walk_.outputs_of(done.node)) {
      outputs.push_back(compute(node.name, output.name, inputs));
      made.push_back(Signal::tensors(payloads_.add(std::span<const uint64_t>(outputs.back()))));
    }
    const std::string stopped = inputs.empty() ? "" : stop_rule()(node.name, outputs);
    Routing routing;
    if (!stopped.empty()) announce_stop(index, walk_.find_loop(stopped), done.time, routing);
    const CompleteResult result = worker.state.complete(done.node, made, routing);
    ++num_completed_;
    EXPECT_NE(result, CompleteResult::kMissing);
    if (result != CompleteResult::kDiscarded) {
      ++outcome.num_runs[node.name];
      repeated_a_run |= !seen_.insert({node.name, done.time.to_string()}).second;
    }
    take(routing);
  }

  // Its inputs may be gone after a stop that came from another worker.
  bool was_discarded(const Worker& worker, const Running& done) const {
    return worker.state.time_of(done.node) != done.time || num_late_stops_ > 0;
  }

  void announce_stop(size_t from, LoopId loop, const LoopTime& time, Routing& routing) {
    workers_[from]->state.stop_loop(loop, time, routing);
    for (uint16_t group : placement_.groups_of_loop[loop]) {
      if (worker_of(group) == from) continue;
      messages_.push_back({true, worker_of(group), loop, time, {}});
    }
  }

  void take(Routing& routing) {
    for (const Route& route : routing.routes) {
      const CompiledEdge& edge = walk_.edges[route.edge];
      if (route.kind == RouteKind::kRemote) {
        messages_.push_back({false,
                             worker_of(placement_.destination(walk_, route.edge)),
                             route.edge,
                             route.time,
                             route.signal});
        continue;
      }
      const auto items = payloads_.get(route.signal.payload);
      outcome.left[edge.name].emplace_back(items.begin(), items.end());
      release(route.signal);
    }
    routing.clear();
  }

  bool deliver_message() {
    std::vector<size_t> order(messages_.size());
    for (size_t at = 0; at < order.size(); ++at) order[at] = at;
    std::shuffle(order.begin(), order.end(), random_);
    for (size_t at : order) {
      const Message message = messages_[at];
      WalkState& state = workers_[message.worker]->state;
      if (message.is_stop) {
        Routing routing;
        const StopResult result = state.stop_loop(message.id, message.time, routing);
        if (result == StopResult::kNotYet) continue;
        if (result == StopResult::kApplied) ++num_late_stops_;
        take(routing);
      } else {
        const DeliverResult result = state.deliver_remote(message.id, message.time, message.signal);
        if (result == DeliverResult::kNotYet) continue;
        if (result != DeliverResult::kAccepted) release(message.signal);
      }
      messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(at));
      return true;
    }
    return false;
  }

  void cancel() {
    if (is_cancelled_) return;
    is_cancelled_ = true;
    for (const auto& worker : workers_) worker->state.cancel();
    arriving_.clear();
  }

  void release(Signal signal) {
    if (signal.kind == SignalKind::kTensors) payloads_.release(signal.payload);
  }

  std::mt19937_64 random_;
  Options options_;
  CompiledWalk walk_;
  WalkPlacement placement_;
  PayloadTable<uint64_t> payloads_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<PortId> arriving_;
  std::vector<Message> messages_;
  std::map<std::string, Value> inputs_;
  std::set<std::pair<std::string, std::string>> seen_;  // (node, time)
  int num_completed_ = 0;
  int num_late_stops_ = 0;
  bool is_cancelled_ = false;
};

constexpr int kNumSeeds = 300;

void expect_equals_reference(const Options& options) {
  int num_nodes = 0, num_runs = 0;
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const WalkGraph graph = random_walk(seed, 2 + static_cast<int>(seed % 9));
    Player player(graph, seed * 77 + 1, options);
    const ReferenceRun reference = interpret(graph, player.inputs(), player.stop_rule());
    ASSERT_TRUE(player.play());
    EXPECT_EQ(player.outcome.num_runs, reference.num_runs);
    EXPECT_EQ(player.outcome.left, reference.left);
    EXPECT_FALSE(player.repeated_a_run);
    EXPECT_EQ(player.num_payloads(), 0u);
    num_nodes += static_cast<int>(reference.num_runs.size());
    for (const auto& [node, count] : reference.num_runs) num_runs += count;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(num_runs, 2 * num_nodes);  // the loops did loop
}

TEST(RandomWalks, OneWorkerGivesWhatTheInterpreterGives) {
  expect_equals_reference({});
}

TEST(RandomWalks, StopsByNameEndWithTheIterationThatFoundThem) {
  expect_equals_reference({.stops = true});
}

TEST(RandomWalks, SpeculationChangesNothing) {
  expect_equals_reference({.speculates = true});
}

TEST(RandomWalks, SpeculationWithStopsChangesNothing) {
  expect_equals_reference({.speculates = true, .stops = true});
}

TEST(RandomWalks, SeveralWorkersGiveWhatOneGives) {
  expect_equals_reference({.num_workers = 3});
}

TEST(RandomWalks, SeveralSpeculatingWorkersToo) {
  expect_equals_reference({.num_workers = 2, .speculates = true});
}

// How far each worker got before it heard of a stop depends on the order of messages, so only
// that all come to an end with nothing left is certain.
TEST(RandomWalks, LateStopsBetweenWorkersLeaveNothingBehind) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const WalkGraph graph = random_walk(seed, 10);
    Player player(graph, seed, {.num_workers = 2, .speculates = true, .stops = true});
    EXPECT_TRUE(player.play());
    EXPECT_FALSE(player.repeated_a_run);
  }
}

TEST(RandomWalks, CancelledAtAnyPointGivesEverythingBack) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const WalkGraph graph = random_walk(seed, 10);
    Player player(graph,
                  seed,
                  {.num_workers = 1 + static_cast<int>(seed % 2),
                   .speculates = true,
                   .cancel_after = static_cast<int>(seed % 12)});
    EXPECT_TRUE(player.play());
  }
}

}  // namespace
}  // namespace mstar::graph::testing

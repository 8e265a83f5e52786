#include <gtest/gtest.h>

#include "mstar/graph/readiness.h"

namespace mstar::graph {
namespace {

class Speculating : public ::testing::Test {
 protected:
  void start(const WalkGraph& graph) {
    compiled = compile(graph);
    state.start(compiled, 0);
    for (size_t port = 0; port < compiled.ports.size(); ++port) {
      if (compiled.ports[port].walk_input) {
        state.deliver(static_cast<PortId>(port), Signal::tensors(payloads.add(0)));
      }
    }
  }

  static WalkGraph walk_of_two() {
    return graph::walk("w",
                       {"x", "cond"},
                       loop("l",
                            9,
                            node("a").needs({"x", "cond"}).makes(edge("y").to("b")),
                            node("b")
                                .needs({"y"})
                                .makes(edge("shown").to_client(Modality::kText))
                                .makes(edge("x").to("a"))));
  }

  ~Speculating() override {
    for (const Route& route : routing.routes) payloads.release(route.signal.payload);
  }

  NodeId id(const std::string& node) const { return compiled.find_node(node); }

  void begin(const std::string& node) {
    std::vector<Signal> inputs(compiled.nodes[id(node)].num_ports);
    state.begin(id(node), inputs);
  }

  CompleteResult complete(const std::string& node) {
    std::vector<Signal> outputs;
    for (size_t count = 0; count < compiled.nodes[id(node)].num_outputs; ++count) {
      outputs.push_back(Signal::tensors(payloads.add(1)));
    }
    return state.complete(id(node), outputs, routing);
  }

  std::vector<Speculation> candidates(const std::string& running) const {
    std::vector<Speculation> found;
    state.speculate(id(running), found);
    return found;
  }

  PayloadTable<int> payloads;
  CompiledWalk compiled;
  WalkState state{payloads};
  Routing routing;
};

TEST_F(Speculating, TheNextIterationOfALoopOfTwo) {
  start(walk_of_two());
  begin("a");
  // b follows in this iteration; a itself only after b.
  std::vector<Speculation> found = candidates("a");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].node, id("b"));
  EXPECT_FALSE(found[0].new_iteration);
  EXPECT_EQ(found[0].late_ports, 1u);
  complete("a");
  begin("b");
  found = candidates("b");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].node, id("a"));
  EXPECT_TRUE(found[0].new_iteration);
  EXPECT_EQ(found[0].loop, compiled.find_loop("l"));
}

TEST_F(Speculating, LateInputsNameTheOutputThatBringsThem) {
  start(walk_of_two());
  begin("a");
  complete("a");
  begin("b");
  const std::vector<Speculation> found = candidates("b");
  ASSERT_EQ(found.size(), 1u);
  std::vector<Signal> inputs(2);
  state.begin_speculative(found[0], id("b"), inputs);
  EXPECT_EQ(inputs[0], Signal::late(1));  // b's second output
  EXPECT_EQ(inputs[1].kind, SignalKind::kTensors);
  EXPECT_TRUE(candidates("b").empty());  // taken
  complete("b");
  EXPECT_EQ(state.ready(), 0u);
  EXPECT_TRUE(state.promote(id("a")));
  EXPECT_EQ(state.running(), uint64_t{1} << id("a"));
}

TEST_F(Speculating, UndoneLeavesTheNodeReady) {
  start(walk_of_two());
  begin("a");
  const std::vector<Speculation> found = candidates("a");
  std::vector<Signal> inputs(1);
  state.begin_speculative(found.at(0), id("a"), inputs);
  complete("a");
  EXPECT_EQ(state.ready(), 0u);
  state.rollback(id("b"));
  EXPECT_EQ(state.ready(), uint64_t{1} << id("b"));
}

TEST_F(Speculating, ChunksOfAnUndoneStepAreReleased) {
  start(walk(
      "w", {"x"}, loop("l", 9, node("a").needs({"x"}).needs_stream("s").makes(edge("x").to("a")))));
  const PortId stream = compiled.find_port(id("a"), "s");
  ASSERT_EQ(state.deliver_stream(stream, Signal::tensors(payloads.add(1))),
            DeliverResult::kAccepted);
  begin("a");
  EXPECT_EQ(state.deliver_stream(stream, Signal::trigger()), DeliverResult::kDuplicate);
  std::vector<Speculation> found = candidates("a");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].streaming_ports, 2u);
  std::vector<Signal> inputs(2);
  state.begin_speculative(found[0], id("a"), inputs);
  EXPECT_FALSE(inputs[1].is_present());
  // For the next iteration, which has room while this one's chunk is in use.
  ASSERT_EQ(state.deliver_stream(stream, Signal::tensors(payloads.add(2))),
            DeliverResult::kAccepted);
  EXPECT_EQ(payloads.num_live(), 3u);
  state.rollback(id("a"));
  EXPECT_EQ(payloads.num_live(), 2u);
  // Again, and this time it holds.
  found = candidates("a");
  state.begin_speculative(found.at(0), id("a"), inputs);
  ASSERT_EQ(state.deliver_stream(stream, Signal::tensors(payloads.add(2))),
            DeliverResult::kAccepted);
  complete("a");
  EXPECT_TRUE(state.promote(id("a")));
}

TEST_F(Speculating, WithoutItsChunkASpeculationDoesNotHold) {
  start(walk(
      "w", {"x"}, loop("l", 9, node("a").needs({"x"}).needs_stream("s").makes(edge("x").to("a")))));
  state.deliver_stream(compiled.find_port(id("a"), "s"), Signal::trigger());
  begin("a");
  std::vector<Signal> inputs(2);
  state.begin_speculative(candidates("a").at(0), id("a"), inputs);
  complete("a");
  EXPECT_FALSE(state.promote(id("a")));
  EXPECT_EQ(state.waiting_for_stream(), 1u);
}

TEST_F(Speculating, NotPastTheLastIterationNorWhenTheAuthorForbidsIt) {
  start(walk("w", {"x"}, loop("l", 2, node("a").needs({"x"}).makes(edge("x").to("a")))));
  begin("a");
  EXPECT_EQ(candidates("a").size(), 1u);
  complete("a");
  begin("a");
  EXPECT_TRUE(candidates("a").empty());

  state.cancel();
  complete("a");
  start(walk(
      "w",
      {"x"},
      loop("l", 9, node("a").needs({"x"}).makes(edge("x").to("a")).without_async_scheduling())));
  begin("a");
  EXPECT_TRUE(candidates("a").empty());
}

TEST_F(Speculating, AStopEndsTheStepThatRanAhead) {
  start(
      walk("w", {"x"}, loop("l", kUntilStopped, node("a").needs({"x"}).makes(edge("x").to("a")))));
  begin("a");
  std::vector<Signal> inputs(1);
  state.begin_speculative(candidates("a").at(0), id("a"), inputs);
  state.stop_loop(compiled.find_loop("l"), state.time_of(id("a")), routing);
  EXPECT_EQ(complete("a"), CompleteResult::kWalkDone);
  EXPECT_FALSE(state.promote(id("a")));
  EXPECT_TRUE(state.is_done());
  EXPECT_EQ(payloads.num_live(), 0u);
}

TEST_F(Speculating, CancelledWhileAhead) {
  start(
      walk("w", {"x"}, loop("l", kUntilStopped, node("a").needs({"x"}).makes(edge("x").to("a")))));
  begin("a");
  std::vector<Signal> inputs(1);
  state.begin_speculative(candidates("a").at(0), id("a"), inputs);
  state.cancel();
  EXPECT_EQ(payloads.num_live(), 0u);
  EXPECT_EQ(complete("a"), CompleteResult::kDiscarded);
  EXPECT_FALSE(state.promote(id("a")));
  EXPECT_EQ(payloads.num_live(), 0u);
}

}  // namespace
}  // namespace mstar::graph

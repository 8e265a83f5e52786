// What the scenarios in tests/walks do not say: borders of the interface, and the defects of the
// system this one follows.
#include "mstar/graph/readiness.h"

#include <gtest/gtest.h>

namespace mstar::graph {
namespace {

// One request on one worker, with payloads that are numbers.
class Play {
 public:
  explicit Play(const WalkGraph& graph) : compiled(compile(graph)), state(payloads) {
    state.start(compiled, 0);
  }

  ~Play() {
    for (const Route& route : routing.routes) release(route.signal);
  }

  DeliverResult give(const std::string& node, const std::string& input, int value) {
    const Signal signal = Signal::tensors(payloads.add(value));
    const DeliverResult result = state.deliver(port(node, input), signal);
    if (result != DeliverResult::kAccepted) release(signal);
    return result;
  }

  std::vector<int> begin(const std::string& node) {
    std::vector<Signal> inputs(compiled.nodes[id(node)].num_ports);
    state.begin(id(node), inputs);
    std::vector<int> values;
    for (Signal input : inputs) values.push_back(payloads.get(input.payload)[0]);
    return values;
  }

  CompleteResult complete(const std::string& node, const std::vector<int>& values) {
    std::vector<Signal> outputs;
    for (int value : values) outputs.push_back(Signal::tensors(payloads.add(value)));
    return state.complete(id(node), outputs, routing);
  }

  CompleteResult run(const std::string& node, const std::vector<int>& values) {
    begin(node);
    return complete(node, values);
  }

  bool is_ready(const std::string& node) const { return (state.ready() >> id(node) & 1) != 0; }

  NodeId id(const std::string& node) const { return compiled.find_node(node); }

  PortId port(const std::string& node, const std::string& input) const {
    return compiled.find_port(id(node), input);
  }

  void release(Signal signal) {
    if (signal.kind == SignalKind::kTensors) payloads.release(signal.payload);
  }

  CompiledWalk compiled;
  PayloadTable<int> payloads;
  WalkState state;
  Routing routing;
};

TEST(Readiness, TwoNodesTakeTheSameNameFromOutsideInEveryIteration) {
  Play play(walk("w",
                 {"cond", "x"},
                 loop("l",
                      3,
                      node("a").needs({"cond", "x"}).makes(edge("y").to("b")),
                      node("b").needs({"cond", "y"}).makes(edge("x").to("a")))));
  play.give("a", "cond", 7);
  play.give("b", "cond", 8);
  play.give("a", "x", 0);
  for (int iteration = 0; iteration < 3; ++iteration) {
    EXPECT_EQ(play.begin("a"), (std::vector<int>{7, iteration}));
    play.complete("a", {100 + iteration});
    EXPECT_EQ(play.begin("b"), (std::vector<int>{8, 100 + iteration}));
    play.complete("b", {iteration + 1});
  }
  EXPECT_TRUE(play.state.is_done());
  EXPECT_EQ(play.payloads.num_live(), 0u);
}

// A member that is done must not come back early, and one whose next value came early must.
TEST(Readiness, AMemberThatIsDoneWaitsForTheIterationToEnd) {
  Play play(walk("w",
                 {"x", "y"},
                 loop("l",
                      2,
                      parallel(node("fast").needs({"x"}).makes(edge("x").to("fast")),
                               node("slow").needs({"y"}).makes(edge("y").to("slow"))))));
  play.give("fast", "x", 0);
  play.give("slow", "y", 0);
  play.run("fast", {1});
  EXPECT_FALSE(play.is_ready("fast"));  // its next value is there, its turn is not
  EXPECT_EQ(play.state.iteration(play.compiled.find_loop("l")), 0u);
  play.run("slow", {1});
  EXPECT_TRUE(play.is_ready("fast"));
  EXPECT_TRUE(play.is_ready("slow"));
  EXPECT_EQ(play.begin("fast"), std::vector<int>{1});
}

TEST(Readiness, ANodeOutsideLoopsTakesEachInputOnce) {
  Play play(
      walk("w", {"x"}, node("a").needs({"x"}).makes(edge("y").to("b")), node("b").needs({"y"})));
  EXPECT_EQ(play.give("a", "x", 1), DeliverResult::kAccepted);
  EXPECT_EQ(play.give("a", "x", 2), DeliverResult::kDuplicate);
  play.begin("a");
  EXPECT_EQ(play.give("a", "x", 3), DeliverResult::kDuplicate);
  play.complete("a", {4});
  EXPECT_EQ(play.give("a", "x", 5), DeliverResult::kDuplicate);
  EXPECT_EQ(play.run("b", {}), CompleteResult::kWalkDone);
  EXPECT_EQ(play.give("a", "x", 6), DeliverResult::kStale);
  EXPECT_EQ(play.payloads.num_live(), 0u);
}

TEST(Readiness, OnlyNodesThatMissNothingButChunksWaitForAStream) {
  Play play(walk("w", {"go"}, node("talker").needs({"go"}).needs_stream("states")));
  EXPECT_EQ(play.state.waiting_for_stream(), 0u);
  play.give("talker", "go", 1);
  EXPECT_EQ(play.state.waiting_for_stream(), 1u);
  EXPECT_EQ(play.state.ready(), 0u);
  const PortId port = play.port("talker", "states");
  EXPECT_EQ(play.state.deliver_stream(port, Signal::trigger()), DeliverResult::kAccepted);
  EXPECT_EQ(play.state.deliver_stream(port, Signal::trigger()), DeliverResult::kDuplicate);
  EXPECT_EQ(play.state.waiting_for_stream(), 0u);
  EXPECT_EQ(play.state.ready(), 1u);
}

TEST(Readiness, ATriggerIsNotAbsentAndNotEmpty) {
  Play play(
      walk("w", {"x"}, node("a").needs({"x"}).makes(edge("y").to("b")), node("b").needs({"y"})));
  EXPECT_EQ(play.state.deliver(play.port("a", "x"), Signal::trigger()), DeliverResult::kAccepted);
  std::vector<Signal> inputs(1);
  play.state.begin(play.id("a"), inputs);
  EXPECT_EQ(inputs[0], Signal::trigger());
  const Signal outputs[] = {Signal::trigger()};
  EXPECT_EQ(play.state.complete(play.id("a"), outputs, play.routing), CompleteResult::kContinues);
  EXPECT_TRUE(play.is_ready("b"));
  const Signal nothing[] = {Signal()};
  Play other(
      walk("w", {"x"}, node("a").needs({"x"}).makes(edge("y").to("b")), node("b").needs({"y"})));
  other.give("a", "x", 1);
  other.begin("a");
  EXPECT_EQ(other.state.complete(other.id("a"), nothing, other.routing), CompleteResult::kMissing);
  EXPECT_EQ(other.compiled.edges[other.routing.missing].name, "y");
}

TEST(Readiness, OneOutputReachesEveryPlaceItGoesTo) {
  Play play(walk("w",
                 {"x"},
                 node("a")
                     .needs({"x"})
                     .makes(edge("y").to("b").kept().counts_as_token())
                     .makes(edge("y").to_client(Modality::kText))
                     .makes(edge("y").stream_to("other", "sink")),
                 node("b").needs({"y"})));
  play.give("a", "x", 0);
  play.run("a", {5});
  ASSERT_EQ(play.routing.routes.size(), 4u);
  EXPECT_EQ(play.routing.routes[0].kind, RouteKind::kPersist);
  EXPECT_EQ(play.routing.routes[1].kind, RouteKind::kToken);
  EXPECT_EQ(play.routing.routes[2].kind, RouteKind::kEmit);
  EXPECT_EQ(play.routing.routes[3].kind, RouteKind::kStream);
  EXPECT_EQ(play.begin("b"), std::vector<int>{5});
  play.complete("b", {});
  EXPECT_EQ(play.payloads.num_live(), 1u);  // the routes' references
}

TEST(Readiness, EmissionsCarryGrowingTimes) {
  Play play(walk("w",
                 {"x"},
                 loop("outer",
                      2,
                      loop("inner",
                           2,
                           node("a")
                               .needs({"x"})
                               .makes(edge("x").to("a"))
                               .makes(edge("out").to_client(Modality::kTensor)))
                          .gives("x", edge("x").to("b")),
                      node("b").needs({"x"}).makes(edge("again").to("a", "x")))));
  play.give("a", "x", 0);
  for (int round = 0; round < 2; ++round) {
    play.run("a", {1, 1});
    play.run("a", {2, 2});
    play.run("b", {3});
  }
  ASSERT_EQ(play.routing.routes.size(), 4u);
  EXPECT_EQ(play.routing.routes[0].time.to_string(), "0:0.0");
  EXPECT_EQ(play.routing.routes[3].time.to_string(), "0:1.1");
  for (size_t index = 1; index < 4; ++index) {
    EXPECT_LT(play.routing.routes[index - 1].time, play.routing.routes[index].time);
  }
}

TEST(Readiness, AStopDoesNotOutliveItsPass) {
  Play play(walk("w", {"x"}, loop("l", 5, node("a").needs({"x"}).makes(edge("x").to("a")))));
  const LoopId loop = play.compiled.find_loop("l");
  for (uint32_t pass = 1; pass <= 2; ++pass) {
    play.state.start(play.compiled, pass);
    play.give("a", "x", 0);
    EXPECT_EQ(play.run("a", {1}), CompleteResult::kContinues);
    play.begin("a");
    const LoopTime now = play.state.time_of(play.id("a"));
    EXPECT_EQ(play.state.stop_loop(loop, now, play.routing), StopResult::kApplied);
    EXPECT_EQ(play.state.stop_loop(loop, now, play.routing), StopResult::kIgnored);
    EXPECT_EQ(play.complete("a", {2}), CompleteResult::kWalkDone);
    EXPECT_EQ(play.state.stop_loop(loop, now, play.routing), StopResult::kIgnored);
  }
  play.state.start(play.compiled, 3);
  LoopTime of_last_pass;
  of_last_pass.pass = 2;
  of_last_pass.depth = 1;
  EXPECT_EQ(play.state.stop_loop(loop, of_last_pass, play.routing), StopResult::kIgnored);
  of_last_pass.pass = 4;
  EXPECT_EQ(play.state.stop_loop(loop, of_last_pass, play.routing), StopResult::kNotYet);
}

TEST(Readiness, MessagesOfOtherIterationsAreStaleOrTooEarly) {
  Play play(walk("w",
                 {"x"},
                 loop("l",
                      9,
                      node("far").needs({"x"}).makes(edge("y").to("near")),
                      node("near").needs({"y"}).makes(edge("x").to("far")))));
  play.state.start(play.compiled, 3, uint64_t{1} << play.id("near"));
  const EdgeId y = play.compiled.find_edge(play.id("far"), "y", "near");
  const auto arrive = [&](uint32_t pass, uint32_t iteration) {
    LoopTime time;
    time.pass = pass;
    time.depth = 1;
    time.iterations[0] = iteration;
    return play.state.deliver_remote(y, time, Signal::trigger());
  };
  EXPECT_EQ(arrive(2, 0), DeliverResult::kStale);
  EXPECT_EQ(arrive(4, 0), DeliverResult::kNotYet);
  EXPECT_EQ(arrive(3, 1), DeliverResult::kAccepted);  // the next iteration's, kept
  EXPECT_EQ(arrive(3, 2), DeliverResult::kNotYet);
  EXPECT_EQ(play.state.ready(), 0u);
  EXPECT_EQ(arrive(3, 0), DeliverResult::kAccepted);
  EXPECT_EQ(arrive(3, 0), DeliverResult::kDuplicate);
  EXPECT_TRUE(play.is_ready("near"));
  std::vector<Signal> inputs(1);
  play.state.begin(play.id("near"), inputs);
  play.complete("near", {1});
  EXPECT_EQ(play.state.iteration(play.compiled.find_loop("l")), 1u);
  EXPECT_TRUE(play.is_ready("near"));  // by the value that came early
  EXPECT_EQ(arrive(3, 0), DeliverResult::kStale);
  ASSERT_EQ(play.routing.routes.size(), 1u);
  EXPECT_EQ(play.routing.routes[0].kind, RouteKind::kRemote);
}

TEST(Readiness, PayloadsAreHeldNoLongerThanNeeded) {
  Play play(
      walk("w",
           {"latents", "cond"},
           loop("l", 4, node("dit").needs({"latents", "cond"}).makes(edge("latents").to("dit")))
               .gives("latents", edge("latents").to("vae")),
           node("vae").needs({"latents"})));
  play.give("dit", "latents", 0);
  play.give("dit", "cond", 9);
  for (int step = 1; step <= 3; ++step) {
    play.run("dit", {step});
    EXPECT_EQ(play.payloads.num_live(), 2u);  // cond, and one latents shared with the loop's output
  }
  play.run("dit", {4});
  EXPECT_EQ(play.payloads.num_live(), 1u);  // latents on the way to vae; cond died with the loop
  EXPECT_EQ(play.begin("vae"), std::vector<int>{4});
  EXPECT_EQ(play.complete("vae", {}), CompleteResult::kWalkDone);
  EXPECT_EQ(play.payloads.num_live(), 0u);
}

using ReadinessDeathTest = ::testing::Test;

TEST(ReadinessDeathTest, MisuseIsABug) {
  Play play(
      walk("w", {"x"}, node("a").needs({"x"}).makes(edge("y").to("b")), node("b").needs({"y"})));
  std::vector<Signal> inputs(1);
  EXPECT_DEATH(play.state.begin(play.id("a"), inputs), "is not ready");
  EXPECT_DEATH(play.state.complete(play.id("a"), {}, play.routing), "is not running");
  EXPECT_DEATH(play.state.deliver(play.port("b", "y"), Signal::trigger()),
               "is not an input of walk");
}

}  // namespace
}  // namespace mstar::graph

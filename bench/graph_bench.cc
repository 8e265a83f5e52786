// Cost of routing: what one completed node costs one request, from begin() to the next ready node.
// Prints nanoseconds of processor time per completion, median of several rounds, 64 requests in
// turn.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <vector>

#include "mstar/graph/readiness.h"

namespace {

namespace graph = mstar::graph;
using graph::edge;
using graph::loop;
using graph::node;
using graph::walk;

constexpr int kNumRequests = 64;
constexpr int kNumRounds = 15;
constexpr int kIterations = 2000;

graph::WalkGraph decode() {
  return walk("decode",
              {"text_inputs"},
              loop("decode_loop",
                   graph::kUntilStopped,
                   node("LLM")
                       .needs({"text_inputs"})
                       .makes(edge("new_token").to("LLM", "text_inputs").counts_as_token())
                       .makes(edge("new_token").to_client(graph::Modality::kText))));
}

graph::WalkGraph denoise() {
  return walk("image_gen",
              {"latents", "time_index", "cond_latents"},
              loop("image_gen_loop",
                   graph::kUntilStopped,
                   node("dit")
                       .needs({"latents", "time_index", "cond_latents"})
                       .makes(edge("latents").to("dit"))
                       .makes(edge("time_index").to("dit")))
                  .gives("latents", edge("latents").to("vae_decoder")),
              node("vae_decoder").needs({"latents"}));
}

graph::WalkGraph guided() {
  return walk("image_gen_cfg",
              {"latents"},
              loop("denoise",
                   graph::kUntilStopped,
                   parallel(node("LLM").needs({"latents"}).makes(edge("v").to("combine")),
                            node("LLM_cfg").needs({"latents"}).makes(edge("u").to("combine"))),
                   node("combine")
                       .needs({"v", "u"})
                       .makes(edge("latents").to("LLM"))
                       .makes(edge("latents").to("LLM_cfg"))));
}

// One step of every request: each ready node begins, with speculation of its successor if asked,
// and completes. Returns the number of completions.
class Bench {
 public:
  Bench(const graph::WalkGraph& declared, bool speculates)
      : walk_(compile(declared)), speculates_(speculates) {
    for (int request = 0; request < kNumRequests; ++request) {
      states_.push_back(std::make_unique<graph::WalkState>(payloads_));
      states_.back()->start(walk_, 0);
      for (size_t port = 0; port < walk_.ports.size(); ++port) {
        if (!walk_.ports[port].walk_input) continue;
        states_.back()->deliver(static_cast<graph::PortId>(port), graph::Signal::trigger());
      }
    }
    inputs_.resize(graph::kMaxNodes);
    outputs_.resize(graph::kMaxNodes);
  }

  int step() {
    int num_completed = 0;
    for (const auto& state : states_) {
      const auto id =
          static_cast<graph::NodeId>(__builtin_ctzll(state->ready() | state->running()));
      const graph::CompiledNode& info = walk_.nodes[id];
      if ((state->running() >> id & 1) == 0) state->begin(id, {inputs_.data(), info.num_ports});
      graph::NodeId ahead = graph::kNoId;
      if (speculates_) {
        state->speculate(id, candidates_);
        if (!candidates_.empty()) {
          ahead = candidates_[0].node;
          state->begin_speculative(
              candidates_[0], id, {inputs_.data(), walk_.nodes[ahead].num_ports});
        }
      }
      for (int index = 0; index < info.num_outputs; ++index) {
        outputs_[index] = graph::Signal::tensors(payloads_.add(index));
      }
      state->complete(id, {outputs_.data(), info.num_outputs}, routing_);
      if (ahead != graph::kNoId) state->promote(ahead);
      for (const graph::Route& route : routing_.routes) payloads_.release(route.signal.payload);
      routing_.clear();
      ++num_completed;
    }
    return num_completed;
  }

 private:
  graph::CompiledWalk walk_;
  bool speculates_;
  graph::PayloadTable<int> payloads_;
  std::vector<std::unique_ptr<graph::WalkState>> states_;
  std::vector<graph::Signal> inputs_;
  std::vector<graph::Signal> outputs_;
  std::vector<graph::Speculation> candidates_;
  graph::Routing routing_;
};

void measure(const char* name, const graph::WalkGraph& declared, bool speculates) {
  Bench bench(declared, speculates);
  std::vector<double> rounds;
  for (int round = 0; round < kNumRounds; ++round) {
    const std::clock_t start = std::clock();  // processor time: the machine may be shared
    int num_completed = 0;
    for (int iteration = 0; iteration < kIterations; ++iteration) num_completed += bench.step();
    const double taken_ns = 1e9 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    rounds.push_back(taken_ns / num_completed);
  }
  std::sort(rounds.begin(), rounds.end());
  std::printf(
      "%-34s %8.1f ns per completion (best %.1f)\n", name, rounds[kNumRounds / 2], rounds[0]);
}

}  // namespace

int main() {
  measure("decode, one node in a loop", decode(), false);
  measure("decode, launched ahead", decode(), true);
  measure("denoise, three inputs", denoise(), false);
  measure("denoise, launched ahead", denoise(), true);
  measure("guided, three nodes in a loop", guided(), false);
  measure("guided, launched ahead", guided(), true);
  return 0;
}

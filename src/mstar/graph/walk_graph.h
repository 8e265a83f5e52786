#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mstar/graph/chunk_policy.h"
#include "mstar/graph/edge.h"
#include "mstar/graph/node.h"

// What a model's author writes: walks over nodes, and how partitions stream into each other.
// Plain data: printable (print.h), comparable, checked and compiled once (compile.h).
//
//   walk("image_gen", {"latents", "time_index", "cond_latents"},
//        loop("image_gen_loop", 100,
//             node("dit")
//                 .needs({"latents", "time_index", "cond_latents"})
//                 .makes(edge("latents").to("dit"))
//                 .makes(edge("time_index").to("dit")))
//            .gives("latents", edge("latents").to("vae_decoder")),
//        node("vae_decoder").needs({"latents"}).makes(
//            edge("image_output").to_client(Modality::kImage)));
namespace mstar::graph {

struct Section;

// Parts in order. No barrier between them: only edges make a node wait. The order says which
// edges inside a loop go back to the next iteration: those that do not lead to a later part.
struct Sequential {
  std::vector<Section> sections;

  bool operator==(const Sequential&) const;
};

// Parts without order. An edge from one part to another belongs to the same iteration.
struct Parallel {
  std::vector<Section> sections;

  bool operator==(const Parallel&) const;
};

// A value of the body that leaves the loop when the loop ends.
struct LoopOutput {
  std::string body_output;  // an output of a body node (or of a loop in the body); "node.output"
                            // where several have the name
  Edge edge;                // how it travels in the enclosing section

  bool operator==(const LoopOutput&) const = default;
};

inline constexpr int kUntilStopped = std::numeric_limits<int>::max();

// Runs its body again and again. Each iteration every body node runs exactly once.
//  - an input nobody in the body makes is shown again to every iteration;
//  - an edge back to an earlier node (or to itself) brings the next iteration's value; the first
//    value comes from outside the loop;
//  - it ends after `max_iters` iterations, or when a submodule's check_stop names it;
//  - `outputs` give the last iteration's value, `accumulated_outputs` all of them, in order;
//  - edges of body nodes to the client or into a stream travel in every iteration.
struct Loop {
  std::string name;  // "" = cannot be stopped by name
  int max_iters = 0;
  std::vector<Section> sections;  // the body: parts in order
  std::vector<LoopOutput> outputs;
  std::vector<LoopOutput> accumulated_outputs;

  Loop& gives(std::string body_output, Edge edge);
  Loop& gives_all(std::string body_output, Edge edge);

  bool operator==(const Loop&) const;
};

struct Section {
  std::variant<Node, Sequential, Parallel, Loop> value;

  Section(Node part) : value(std::move(part)) {}  // NOLINT: parts convert

  Section(Sequential part) : value(std::move(part)) {}  // NOLINT

  Section(Parallel part) : value(std::move(part)) {}  // NOLINT

  Section(Loop part) : value(std::move(part)) {}  // NOLINT

  bool operator==(const Section&) const;
};

// One named dataflow graph; a request is a sequence of walks.
struct WalkGraph {
  std::string name;
  std::vector<std::string> inputs;  // names the conductor brings, first values of loops included
  std::vector<Section> sections;    // parts in order

  bool operator==(const WalkGraph&) const;
};

// Walks with a state machine of their own; the partitions of a request run side by side.
struct Partition {
  std::string name;
  std::vector<std::string> walks;

  bool operator==(const Partition&) const = default;
};

// A streaming edge between partitions and how its items are cut into chunks.
struct Connection {
  std::string from;       // partition
  std::string to;         // partition
  std::string edge_name;  // the producer's output
  ChunkPolicy policy;

  bool operator==(const Connection&) const = default;
};

// Empty: one partition holds every walk and nothing streams.
struct PartitionTopology {
  std::vector<Partition> partitions;
  std::vector<Connection> connections;

  bool operator==(const PartitionTopology&) const = default;
};

// Everything a model declares about its graphs.
struct ModelGraph {
  std::vector<WalkGraph> walks;
  PartitionTopology topology;

  bool operator==(const ModelGraph&) const = default;
};

template <typename... Parts>
Sequential sequential(Parts&&... parts) {
  return {{Section(std::forward<Parts>(parts))...}};
}

template <typename... Parts>
Parallel parallel(Parts&&... parts) {
  return {{Section(std::forward<Parts>(parts))...}};
}

template <typename... Parts>
Loop loop(std::string name, int max_iters, Parts&&... body) {
  return {std::move(name), max_iters, {Section(std::forward<Parts>(body))...}, {}, {}};
}

template <typename... Parts>
WalkGraph walk(std::string name, std::vector<std::string> inputs, Parts&&... parts) {
  return {std::move(name), std::move(inputs), {Section(std::forward<Parts>(parts))...}};
}

}  // namespace mstar::graph

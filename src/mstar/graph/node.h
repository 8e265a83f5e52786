#pragma once

#include <string>
#include <vector>

#include "mstar/graph/edge.h"

namespace mstar::graph {

// One input a node waits for before it can run.
struct Input {
  std::string name;
  bool is_streaming = false;  // arrives in chunks from another partition

  bool operator==(const Input&) const = default;
};

// One model component in a walk: what it needs, what it makes, where that goes. The name is also
// the name of the submodule that computes it. Plain data. Thread-compatible.
//   node("dit").needs({"latents", "time_index"}).makes(edge("latents").to("dit"))
struct Node {
  std::string name;
  std::vector<Input> inputs;
  std::vector<Edge> outputs;  // declarations: only these names are routed
  // False: the next step of this node is never launched before this one was looked at (the node's
  // stop decision must not be overtaken, not even by one discarded step).
  bool enable_async_scheduling = true;

  // True when some input is a stream: the node runs once per chunk.
  bool consumes_stream() const;

  Node& needs(std::vector<std::string> names);
  Node& needs_stream(std::string input_name);
  Node& makes(Edge output);
  Node& without_async_scheduling();

  bool operator==(const Node&) const = default;
};

Node node(std::string name);

}  // namespace mstar::graph

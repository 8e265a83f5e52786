#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mstar/graph/walk_graph.h"

// Random walks, what their nodes compute, and a plain recursive interpreter of the declaration
// that says what a run must give. It shares nothing with the compiler or the readiness state.
namespace mstar::graph::testing {

using Value = std::vector<uint64_t>;  // the tensors of one payload

// A valid walk of up to `max_nodes` nodes in nested loops; the same seed gives the same walk.
WalkGraph random_walk(uint64_t seed, int max_nodes);

// What node `node` makes for `output` from its inputs, in the declared order.
Value compute(const std::string& node, const std::string& output, const std::vector<Value>& inputs);

// The loop a node's outputs stop, "" for none. Only depends on the values.
using StopRule =
    std::function<std::string(const std::string& node, const std::vector<Value>& outputs)>;

struct ReferenceRun {
  std::map<std::string, int> num_runs;             // [node]
  std::map<std::string, std::vector<Value>> left;  // [edge name]: what it brought outside, in order
};

// Runs the walk with the conductor's inputs ("node.input" -> value).
ReferenceRun interpret(const WalkGraph& walk,
                       const std::map<std::string, Value>& inputs,
                       const StopRule& stop_rule);

}  // namespace mstar::graph::testing

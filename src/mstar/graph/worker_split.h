#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mstar/graph/compile.h"

namespace mstar::graph {

// The part of a walk that one node group (a set of ranks) runs. Ids are the walk's, so a message
// between groups is an EdgeId, a LoopTime and a payload.
struct WorkerGraph {
  uint16_t group = 0;
  uint64_t nodes = 0;            // WalkState::start's local_nodes
  std::vector<PortId> inputs;    // walk inputs the conductor sends here
  std::vector<EdgeId> arriving;  // made by another group, consumed here
  std::vector<EdgeId> leaving;   // made here, consumed by another group
  std::vector<LoopId> loops;     // with at least one node here: told when they are stopped
};

// How a walk is spread over node groups. A loop may be spread too: each group runs its iterations
// on its own nodes, held together by the edges between them.
struct WalkPlacement {
  std::vector<uint16_t> group_of;                     // [node]
  std::vector<WorkerGraph> worker_graphs;             // ordered by group
  std::vector<std::vector<uint16_t>> groups_of_loop;  // [loop]: where a stop must be announced

  const WorkerGraph* find_group(uint16_t group) const;

  // Where a Route of kind kRemote goes.
  uint16_t destination(const CompiledWalk& walk, EdgeId edge) const {
    return group_of[walk.edges[edge].node];
  }
};

// `group_of` has one group per node of the walk.
WalkPlacement split(const CompiledWalk& walk, std::span<const uint16_t> group_of);

}  // namespace mstar::graph

#include "mstar/graph/worker_split.h"

#include <algorithm>

#include "mstar/base/check.h"

namespace mstar::graph {

const WorkerGraph* WalkPlacement::find_group(uint16_t group) const {
  for (const WorkerGraph& graph : worker_graphs) {
    if (graph.group == group) return &graph;
  }
  return nullptr;
}

WalkPlacement split(const CompiledWalk& walk, std::span<const uint16_t> group_of) {
  MSTAR_CHECK(group_of.size() == walk.nodes.size(),
              group_of.size(),
              " groups for ",
              walk.nodes.size(),
              " nodes");
  WalkPlacement placement;
  placement.group_of.assign(group_of.begin(), group_of.end());
  std::vector<uint16_t> groups = placement.group_of;
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  placement.groups_of_loop.resize(walk.loops.size());
  for (uint16_t group : groups) {
    WorkerGraph graph;
    graph.group = group;
    for (size_t node = 0; node < group_of.size(); ++node) {
      if (group_of[node] == group) graph.nodes |= uint64_t{1} << node;
    }
    for (size_t port = 0; port < walk.ports.size(); ++port) {
      if (walk.ports[port].walk_input && group_of[walk.ports[port].node] == group) {
        graph.inputs.push_back(static_cast<PortId>(port));
      }
    }
    for (size_t id = 0; id < walk.edges.size(); ++id) {
      const CompiledEdge& edge = walk.edges[id];
      if (edge.target != EdgeTarget::kNode) continue;
      const uint16_t from = group_of[walk.outputs[edge.output].made_by];
      const uint16_t to = group_of[edge.node];
      if (from == to) continue;
      if (from == group) graph.leaving.push_back(static_cast<EdgeId>(id));
      if (to == group) graph.arriving.push_back(static_cast<EdgeId>(id));
    }
    for (size_t loop = 1; loop < walk.loops.size(); ++loop) {
      if ((walk.loops[loop].all_nodes & graph.nodes) == 0) continue;
      graph.loops.push_back(static_cast<LoopId>(loop));
      placement.groups_of_loop[loop].push_back(group);
    }
    placement.worker_graphs.push_back(std::move(graph));
  }
  return placement;
}

}  // namespace mstar::graph

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/graph/compile.h"
#include "mstar/graph/worker_split.h"

namespace mstar {

// A set of nodes that run on the same ranks.
struct NodeGroup {
  std::vector<std::string> node_names;
  std::vector<int> ranks;
  int tp_size = 1;
  int sp_size = 1;
  std::vector<std::string> graph_walks;  // empty: all walks
};

// One deployment's file (configs/*.yaml): which model, which nodes where, which limits. Keys carry
// upstream's names; an unknown key is an error that names the nearest known one.
struct Deployment {
  std::string model;        // registry key or path; may be empty when the command line names one
  int64_t max_seq_len = 0;  // 0: the model's
  std::vector<NodeGroup> node_groups;  // empty: every node on rank 0
  int64_t max_concurrent_requests = 32;
  Json model_kwargs = Json::object();
  std::string autocast_dtype;
  std::map<std::string, Json> resources;  // overrides by resource key
};

// Throws Error(kInvalidArgument) naming file and key.
Deployment read_deployment(const std::string& path);
Deployment parse_deployment(std::string_view yaml, std::string_view where);

// Where each walk's nodes run: placement[w].group_of is the worker (rank) of each node. Throws
// Error(kInvalidArgument) when a node has no group, a group names an unknown node or walk, or asks
// for ranks that one process cannot offer (tensor-parallel groups across workers).
std::vector<graph::WalkPlacement> place(const graph::CompiledModel& graph,
                                        const Deployment& deployment);

// The nodes each worker hosts.
std::vector<std::vector<std::string>> nodes_by_worker(
    const graph::CompiledModel& graph,
    const std::vector<graph::WalkPlacement>& placements);

}  // namespace mstar

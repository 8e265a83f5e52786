#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/graph/walk_graph.h"

// A walk compiled once at load: names become dense ids, sets become 64-bit masks, and everything
// readiness needs per step is a table. Immutable afterwards and shared by all requests.
// Thread-safe: const after compile().
//
// Ids are indices into the vectors below. The same ids hold on every worker that hosts a part of
// the walk, so messages between workers carry them.
namespace mstar::graph {

using NodeId = uint16_t;
using LoopId = uint16_t;  // 0 is the walk itself, which runs one iteration
using PortId = uint16_t;  // one input of one node
using CellId = uint16_t;
using OutputId = uint16_t;
using EdgeId = uint16_t;

inline constexpr LoopId kWalkScope = 0;
inline constexpr uint16_t kNoId = 0xffff;
inline constexpr int kMaxNodes = 64;  // of one walk; also its loops, and inputs of one node
inline constexpr int kMaxLoopDepth = 4;

enum class EdgeTarget : uint8_t { kNode, kClient, kStream, kNone };

struct CompiledEdge {
  std::string name;
  std::string input;             // the consumer's name for the value
  std::string target_partition;  // of a streaming edge
  std::string stream_node;       // the consumer there
  OutputId output = kNoId;       // what it carries
  EdgeTarget target = EdgeTarget::kNone;
  Modality modality = Modality::kNone;
  bool persist = false;
  bool counts_as_token = false;
  bool loop_back = false;  // brings the next iteration's value
  NodeId node = kNoId;     // consumer, when target is kNode
  PortId port = kNoId;
  CellId cell = kNoId;
};

// A place where values of one port arrive from one source. A port inside loops may have several:
// its first value and what each enclosing loop sends back. Which one counts follows from the
// iteration numbers alone, so nothing is ever copied from a "next" to a "current" slot.
struct Cell {
  PortId port = kNoId;
  LoopId scope = kWalkScope;  // the value belongs to one iteration of this loop
  bool loop_back = false;     // comes from that loop's previous iteration
  bool once = false;          // read by one run only; else shown again until `scope` moves on
};

struct Port {
  std::string name;
  NodeId node = kNoId;
  uint8_t bit = 0;          // in the node's port mask
  uint16_t first_cell = 0;  // loop-backs first, innermost loop first; the base source last
  uint16_t num_cells = 0;
  bool streaming = false;
  bool walk_input = false;  // its base source is the conductor
};

// A named value some node (or loop, when it ends) makes.
struct Output {
  std::string name;
  uint16_t first_edge = 0;
  uint16_t num_edges = 0;
  NodeId made_by = kNoId;             // the node the value comes from, through loops too
  std::vector<OutputId> captured_by;  // outputs of the enclosing loop that keep it
  uint16_t capture = kNoId;           // loops' outputs: index of the kept value
  bool accumulated = false;
};

struct CompiledNode {
  std::string name;
  uint16_t model_node = kNoId;  // index into CompiledModel::nodes: equal names, equal index
  LoopId scope = kWalkScope;    // innermost enclosing loop
  uint16_t first_port = 0;
  uint16_t num_ports = 0;
  uint16_t first_output = 0;
  uint16_t num_outputs = 0;
  uint64_t all_ports = 0;
  uint64_t streaming_ports = 0;
  bool enable_async_scheduling = true;
};

struct CompiledLoop {
  std::string name;
  LoopId parent = kWalkScope;
  uint8_t depth = 0;  // the walk has 0
  int max_iters = 1;
  uint16_t first_output = 0;
  uint16_t num_outputs = 0;
  uint64_t nodes = 0;               // directly inside
  uint64_t loops = 0;               // directly inside
  uint64_t all_nodes = 0;           // at any depth
  uint64_t all_loops = 0;           // at any depth, without itself
  std::vector<CellId> inner_cells;  // die with the loop: they belong to it or to a loop inside
  std::vector<CellId> entry_cells;  // values from outside that one run of the loop uses up
};

class CompiledWalk {
 public:
  std::string name;
  std::vector<CompiledNode> nodes;
  std::vector<CompiledLoop> loops;  // [0] is the walk itself; parents before children
  std::vector<Port> ports;          // grouped by node
  std::vector<Cell> cells;          // grouped by port
  std::vector<Output> outputs;      // grouped by node, then by loop
  std::vector<CompiledEdge> edges;  // grouped by output
  uint16_t num_captures = 0;

  // kNoId when there is no such thing.
  NodeId find_node(std::string_view node) const;
  LoopId find_loop(std::string_view loop) const;
  PortId find_port(NodeId node, std::string_view input) const;
  EdgeId find_edge(NodeId from, std::string_view output, std::string_view destination) const;

  std::span<const Port> ports_of(NodeId node) const {
    return {ports.data() + nodes[node].first_port, nodes[node].num_ports};
  }

  std::span<const Output> outputs_of(NodeId node) const {
    return {outputs.data() + nodes[node].first_output, nodes[node].num_outputs};
  }

  uint64_t all_nodes() const { return loops[kWalkScope].all_nodes; }
};

// Checks and compiles one walk. Throws Error(kInvalidArgument) in the words of the declaration:
// unknown destinations, inputs nobody brings, repeated names, edges that leave a loop, values
// two edges compete for, circles, loops without an end.
CompiledWalk compile(const WalkGraph& walk);

// All walks of a model with its partitions.
struct CompiledModel {
  std::vector<CompiledWalk> walks;
  std::vector<std::string> nodes;      // every node name once, in order of appearance
  PartitionTopology topology;          // one partition "main" when the model declared none
  std::vector<uint16_t> partition_of;  // [walk] -> index into topology.partitions

  uint16_t find_walk(std::string_view walk) const;  // kNoId when unknown
  uint16_t get_walk(std::string_view walk) const;   // throws naming the known ones
};

// Checks and compiles a model: every walk, and that streams and partitions fit together.
CompiledModel compile(const ModelGraph& model);

}  // namespace mstar::graph

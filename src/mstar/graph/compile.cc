#include "mstar/graph/compile.h"

#include <algorithm>
#include <set>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"

// Three passes: collect nodes and loops in declaration order, bind every edge to the input it
// feeds, then give each input its cells and each loop its lists. Names in messages are quoted
// as the author wrote them.
namespace mstar::graph {
namespace {

// Where a part stands: one step per enclosing Sequential, Parallel or loop body.
struct PathStep {
  bool ordered;
  int index;

  bool operator==(const PathStep&) const = default;
};

using Path = std::vector<PathStep>;

struct NodeInfo {
  const Node* node;
  Path path;
};

struct LoopInfo {
  const Loop* loop = nullptr;
  Path path;
};

constexpr uint64_t bit(size_t index) {
  return uint64_t{1} << index;
}

class WalkCompiler {
 public:
  explicit WalkCompiler(const WalkGraph& walk) : walk_(walk) {}

  CompiledWalk compile_walk() {
    if (walk_.name.empty()) fail("has no name");
    out_.name = walk_.name;
    out_.loops.emplace_back();
    loop_infos_.emplace_back();
    Path path;
    visit_all(walk_.sections, kWalkScope, path);
    if (out_.nodes.empty()) fail("has no node");
    sum_up_loops();
    for (size_t id = 0; id < out_.nodes.size(); ++id) add_node_outputs(static_cast<NodeId>(id));
    // Inner loops first: an outer loop may hand on what an inner one gives.
    for (size_t id = out_.loops.size() - 1; id > 0; --id) add_loop_outputs(static_cast<LoopId>(id));
    for (CompiledEdge& edge : out_.edges) bind_edge(edge);
    check_dropped_edges();
    check_circles();
    for (size_t id = 0; id < out_.ports.size(); ++id) add_cells(static_cast<PortId>(id));
    check_walk_inputs();
    list_dying_cells();
    return std::move(out_);
  }

 private:
  template <typename... Pieces>
  [[noreturn]] void fail(const Pieces&... pieces) const {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[walk '", walk_.name, "'] ", pieces...));
  }

  // ---- pass 1: nodes and loops

  void visit_all(const std::vector<Section>& sections,
                 LoopId scope,
                 Path& path,
                 bool ordered = true) {
    for (size_t index = 0; index < sections.size(); ++index) {
      path.push_back({ordered, static_cast<int>(index)});
      visit(sections[index], scope, path);
      path.pop_back();
    }
  }

  void visit(const Section& section, LoopId scope, Path& path) {
    if (const auto* node = std::get_if<Node>(&section.value)) {
      add_node(*node, scope, path);
    } else if (const auto* parts = std::get_if<Sequential>(&section.value)) {
      if (parts->sections.empty()) fail("has a Sequential without parts");
      visit_all(parts->sections, scope, path);
    } else if (const auto* sides = std::get_if<Parallel>(&section.value)) {
      if (sides->sections.empty()) fail("has a Parallel without parts");
      visit_all(sides->sections, scope, path, false);
    } else {
      add_loop(std::get<Loop>(section.value), scope, path);
    }
  }

  void check_entity_name(const std::string& name, std::string_view kind) {
    if (name == kEmitToClient || name.find('.') != std::string::npos) {
      fail(kind, " '", name, "': the name is reserved or has a dot in it; choose another");
    }
    if (!entity_names_.insert(name).second) {
      fail(kind,
           " '",
           name,
           "': the name is taken; nodes and loops of a walk need names of their own");
    }
  }

  void add_node(const Node& node, LoopId scope, const Path& path) {
    if (node.name.empty()) fail("has a node without a name");
    check_entity_name(node.name, "node");
    if (out_.nodes.size() == kMaxNodes) fail("has more than ", kMaxNodes, " nodes");
    if (node.inputs.empty()) {
      fail("node '",
           node.name,
           "' needs no input, so nothing would ever start it; ",
           "give it one (the conductor can send a trigger)");
    }
    if (node.inputs.size() > kMaxNodes) {
      fail("node '", node.name, "' has more than ", kMaxNodes, " inputs");
    }
    CompiledNode made;
    made.name = node.name;
    made.scope = scope;
    made.first_port = static_cast<uint16_t>(out_.ports.size());
    made.num_ports = static_cast<uint16_t>(node.inputs.size());
    made.enable_async_scheduling = node.enable_async_scheduling;
    for (size_t index = 0; index < node.inputs.size(); ++index) {
      const Input& input = node.inputs[index];
      if (input.name.empty()) fail("node '", node.name, "' has an input without a name");
      for (size_t other = 0; other < index; ++other) {
        if (node.inputs[other].name == input.name) {
          fail("node '", node.name, "' needs '", input.name, "' twice");
        }
      }
      Port port;
      port.name = input.name;
      port.node = static_cast<NodeId>(out_.nodes.size());
      port.bit = static_cast<uint8_t>(index);
      port.streaming = input.is_streaming;
      out_.ports.push_back(std::move(port));
      made.all_ports |= bit(index);
      if (input.is_streaming) made.streaming_ports |= bit(index);
    }
    out_.loops[scope].nodes |= bit(out_.nodes.size());
    out_.nodes.push_back(std::move(made));
    node_infos_.push_back({&node, path});
  }

  void add_loop(const Loop& loop, LoopId scope, Path& path) {
    const std::string label = loop.name.empty() ? "without a name" : str_cat("'", loop.name, "'");
    if (!loop.name.empty()) check_entity_name(loop.name, "loop");
    if (loop.sections.empty()) fail("the loop ", label, " has an empty body");
    if (loop.max_iters < 1) {
      fail("the loop ", label, " runs ", loop.max_iters, " iterations, expected at least 1");
    }
    if (loop.max_iters == kUntilStopped && loop.name.empty()) {
      fail("a loop without a name and without max_iters never ends; ",
           "name it so that check_stop can stop it, or give it max_iters");
    }
    if (out_.loops.size() == kMaxNodes) fail("has more than ", kMaxNodes - 1, " loops");
    const auto id = static_cast<LoopId>(out_.loops.size());
    CompiledLoop made;
    made.name = loop.name;
    made.parent = scope;
    made.depth = static_cast<uint8_t>(out_.loops[scope].depth + 1);
    if (made.depth > kMaxLoopDepth) {
      fail("the loop ", label, " lies in more than ", kMaxLoopDepth - 1, " others");
    }
    made.max_iters = loop.max_iters;
    out_.loops[scope].loops |= bit(id);
    out_.loops.push_back(std::move(made));
    loop_infos_.push_back({&loop, path});
    visit_all(loop.sections, id, path);
    if (out_.loops[id].nodes == 0 && out_.loops[id].loops == 0) {
      fail("the loop ", label, " has no node in it");
    }
  }

  void sum_up_loops() {
    for (size_t id = out_.loops.size(); id-- > 0;) {
      CompiledLoop& loop = out_.loops[id];
      loop.all_nodes |= loop.nodes;
      loop.all_loops |= loop.loops;
      if (id == kWalkScope) break;
      out_.loops[loop.parent].all_nodes |= loop.all_nodes;
      out_.loops[loop.parent].all_loops |= loop.all_loops;
    }
  }

  std::string loop_label(LoopId id) const {
    if (id == kWalkScope) return "the walk";
    return out_.loops[id].name.empty() ? "the loop without a name"
                                       : str_cat("the loop '", out_.loops[id].name, "'");
  }

  // ---- pass 2: outputs and edges

  void add_edge(const Edge& edge, const std::string& maker) {
    const std::string where = str_cat("edge '", edge.name, "' of ", maker);
    if (edge.name.empty()) fail("an edge of ", maker, " has no name");
    CompiledEdge made;
    made.name = edge.name;
    made.input = edge.input.empty() ? edge.name : edge.input;
    made.output = static_cast<OutputId>(out_.outputs.size() - 1);
    made.modality = edge.modality;
    made.persist = edge.persist;
    made.counts_as_token = edge.conductor_new_token;
    if (edge.is_streaming()) {
      if (edge.is_emitted() || edge.destination.empty()) {
        fail(where, " streams to partition '", edge.target_partition, "' but names no node there");
      }
      made.target = EdgeTarget::kStream;
      made.target_partition = edge.target_partition;
      made.stream_node = edge.destination;
    } else if (edge.is_emitted()) {
      if (edge.modality == Modality::kNone) {
        fail(where, " goes to the client without a modality; use to_client(Modality::k...)");
      }
      made.target = EdgeTarget::kClient;
    } else if (edge.destination != kNowhere) {
      made.target = EdgeTarget::kNode;
      made.node = out_.find_node(edge.destination);
      if (made.node == kNoId) fail_unknown_node(where, edge.destination);
      made.port = out_.find_port(made.node, made.input);
      if (made.port == kNoId) fail_unknown_input(where, made);
    }
    for (size_t id = out_.outputs.back().first_edge; id < out_.edges.size(); ++id) {
      const CompiledEdge& other = out_.edges[id];
      if (other.target == made.target && other.port == made.port &&
          other.stream_node == made.stream_node && other.input == made.input &&
          other.target_partition == made.target_partition) {
        fail(where, " is declared twice for the same destination");
      }
    }
    out_.edges.push_back(std::move(made));
    ++out_.outputs.back().num_edges;
  }

  [[noreturn]] void fail_unknown_node(const std::string& where, const std::string& name) const {
    std::vector<std::string> known;
    for (const CompiledNode& node : out_.nodes) known.push_back(node.name);
    const std::string nearest = nearest_name(name, known);
    fail(where,
         " goes to '",
         name,
         "', which is not a node of this walk; ",
         nearest.empty() ? str_cat("its nodes are: ", str_join(known, ", "))
                         : str_cat("did you mean '", nearest, "'?"));
  }

  [[noreturn]] void fail_unknown_input(const std::string& where, const CompiledEdge& edge) const {
    std::vector<std::string> known;
    for (const Port& port : out_.ports_of(edge.node)) known.push_back(port.name);
    fail(where,
         " goes to '",
         out_.nodes[edge.node].name,
         "', which has no input '",
         edge.input,
         "' (it needs: ",
         str_join(known, ", "),
         "); add the input or use to(node, input)");
  }

  // One Output per name, its edges together.
  void add_node_outputs(NodeId id) {
    const Node& node = *node_infos_[id].node;
    out_.nodes[id].first_output = static_cast<uint16_t>(out_.outputs.size());
    std::vector<std::string> done;
    for (const Edge& first : node.outputs) {
      if (std::find(done.begin(), done.end(), first.name) != done.end()) continue;
      done.push_back(first.name);
      out_.outputs.push_back({.name = first.name,
                              .first_edge = static_cast<uint16_t>(out_.edges.size()),
                              .made_by = id,
                              .captured_by = {}});
      for (const Edge& edge : node.outputs) {
        if (edge.name == first.name) add_edge(edge, str_cat("node '", node.name, "'"));
      }
    }
    out_.nodes[id].num_outputs = static_cast<uint16_t>(done.size());
    maker_.resize(out_.outputs.size(), {false, id});
  }

  void add_loop_outputs(LoopId id) {
    const Loop& loop = *loop_infos_[id].loop;
    out_.loops[id].first_output = static_cast<uint16_t>(out_.outputs.size());
    for (const LoopOutput& last : loop.outputs) {
      for (const LoopOutput& all : loop.accumulated_outputs) {
        if (last.edge.name == all.edge.name) {
          fail(loop_label(id),
               " gives '",
               all.edge.name,
               "' both as its last value and as all values; call one of them otherwise");
        }
      }
    }
    add_bindings(id, loop.outputs, false);
    add_bindings(id, loop.accumulated_outputs, true);
    out_.loops[id].num_outputs =
        static_cast<uint16_t>(out_.outputs.size() - out_.loops[id].first_output);
    maker_.resize(out_.outputs.size(), {true, id});
  }

  void add_bindings(LoopId id, const std::vector<LoopOutput>& bindings, bool accumulated) {
    std::vector<std::string> done;
    for (const LoopOutput& first : bindings) {
      if (std::find(done.begin(), done.end(), first.edge.name) != done.end()) continue;
      done.push_back(first.edge.name);
      const OutputId source = find_body_output(id, first.body_output);
      const auto output = static_cast<OutputId>(out_.outputs.size());
      out_.outputs.push_back({.name = first.edge.name,
                              .first_edge = static_cast<uint16_t>(out_.edges.size()),
                              .made_by = out_.outputs[source].made_by,
                              .captured_by = {},
                              .capture = out_.num_captures++,
                              .accumulated = accumulated});
      out_.outputs[source].captured_by.push_back(output);
      for (const LoopOutput& binding : bindings) {
        if (binding.edge.name != first.edge.name) continue;
        if (binding.body_output != first.body_output) {
          fail(loop_label(id),
               " gives '",
               first.edge.name,
               "' from both '",
               first.body_output,
               "' and '",
               binding.body_output,
               "'; call one of them otherwise");
        }
        add_edge(binding.edge, loop_label(id));
      }
    }
  }

  // "output" or "node.output" / "loop.output" among what stands directly in the loop.
  OutputId find_body_output(LoopId loop, const std::string& wanted) const {
    OutputId found = kNoId;
    std::vector<std::string> known;
    for (size_t id = 0; id < maker_.size(); ++id) {
      const auto [is_loop, maker] = maker_[id];
      const LoopId scope = is_loop ? out_.loops[maker].parent : out_.nodes[maker].scope;
      if (scope != loop) continue;
      const std::string& owner = is_loop ? out_.loops[maker].name : out_.nodes[maker].name;
      const std::string& name = out_.outputs[id].name;
      known.push_back(str_cat(owner, ".", name));
      if (wanted != name && wanted != known.back()) continue;
      if (found != kNoId) {
        fail(loop_label(loop),
             " gives '",
             wanted,
             "', which several parts of its body make; ",
             "say which: ",
             str_join(known, ", "));
      }
      found = static_cast<OutputId>(id);
    }
    if (found == kNoId) {
      fail(loop_label(loop),
           " gives '",
           wanted,
           "', which nothing directly in its body makes",
           known.empty() ? "" : str_cat(" (it makes: ", str_join(known, ", "), ")"),
           "; values of a loop inside leave through that loop's own outputs");
    }
    return found;
  }

  LoopId scope_of(OutputId output) const {
    const auto [is_loop, maker] = maker_[output];
    return is_loop ? out_.loops[maker].parent : out_.nodes[maker].scope;
  }

  std::string maker_label(OutputId output) const {
    const auto [is_loop, maker] = maker_[output];
    return is_loop ? loop_label(maker) : str_cat("node '", out_.nodes[maker].name, "'");
  }

  bool encloses(LoopId outer, LoopId inner) const {
    while (out_.loops[inner].depth > out_.loops[outer].depth) inner = out_.loops[inner].parent;
    return outer == inner;
  }

  // Decides whether the edge belongs to this iteration or brings the next one's value.
  void bind_edge(CompiledEdge& edge) {
    if (edge.target != EdgeTarget::kNode) return;
    const LoopId scope = scope_of(edge.output);
    const CompiledNode& consumer = out_.nodes[edge.node];
    const std::string where = str_cat(
        "edge '", edge.name, "' from ", maker_label(edge.output), " to '", consumer.name, "'");
    if (!encloses(scope, consumer.scope)) {
      fail(where,
           " leaves ",
           loop_label(scope),
           "; let the loop give it: .gives(\"",
           edge.name,
           "\", edge(...)) for the last value, .gives_all for every iteration's");
    }
    if (out_.ports[edge.port].streaming) {
      fail(where, " feeds a streaming input; use stream_to from another partition, or needs()");
    }
    const auto [is_loop, maker] = maker_[edge.output];
    const Path& from = is_loop ? loop_infos_[maker].path : node_infos_[maker].path;
    edge.loop_back = !comes_later(from, node_infos_[edge.node].path);
    if (edge.loop_back && scope == kWalkScope) {
      fail(where,
           " goes back to an earlier part outside any loop, so '",
           consumer.name,
           "' would wait for a value made after it; reorder the parts or put them into a loop");
    }
  }

  static bool comes_later(const Path& from, const Path& to) {
    for (size_t step = 0; step < from.size() && step < to.size(); ++step) {
      if (from[step] == to[step]) continue;
      return !from[step].ordered || to[step].index > from[step].index;
    }
    return false;  // to itself, or from a loop back into its own body
  }

  void check_dropped_edges() const {
    for (const CompiledEdge& edge : out_.edges) {
      if (edge.target == EdgeTarget::kNone && !edge.persist && !edge.counts_as_token &&
          out_.outputs[edge.output].captured_by.empty()) {
        fail("edge '",
             edge.name,
             "' of ",
             maker_label(edge.output),
             " goes nowhere; give it a destination, keep it with kept(), or remove it");
      }
    }
  }

  // The part of `scope` that holds the node: 2 * node, or 2 * loop + 1.
  size_t part_in(LoopId scope, NodeId node) const {
    LoopId inner = out_.nodes[node].scope;
    if (inner == scope) return 2 * size_t{node};
    while (out_.loops[inner].parent != scope) inner = out_.loops[inner].parent;
    return 2 * size_t{inner} + 1;
  }

  // Same-iteration edges must not form a circle; only members of a Parallel can.
  void check_circles() const {
    std::set<std::pair<size_t, size_t>> waits;  // (later part, earlier part), per scope disjoint
    for (const CompiledEdge& edge : out_.edges) {
      if (edge.target != EdgeTarget::kNode || edge.loop_back) continue;
      const auto [is_loop, maker] = maker_[edge.output];
      waits.insert(
          {part_in(scope_of(edge.output), edge.node), 2 * size_t{maker} + (is_loop ? 1 : 0)});
    }
    std::set<size_t> stuck;
    for (const auto& [later, earlier] : waits) stuck.insert({later, earlier});
    for (bool moved = true; moved;) {
      moved = false;
      for (auto part = stuck.begin(); part != stuck.end();) {
        const bool is_free = std::none_of(waits.begin(), waits.end(), [&](const auto& wait) {
          return wait.first == *part && stuck.contains(wait.second);
        });
        part = is_free ? stuck.erase(part) : std::next(part);
        moved |= is_free;
      }
    }
    if (stuck.empty()) return;
    std::vector<std::string> names;
    for (size_t part : stuck) {
      names.push_back(part % 2 == 1 ? loop_label(static_cast<LoopId>(part / 2))
                                    : str_cat("'", out_.nodes[part / 2].name, "'"));
    }
    fail("these wait for each other in a circle and would never start: ",
         str_join(names, ", "),
         "; put them in order (an edge to an earlier part of a loop means the next iteration)");
  }

  // ---- pass 3: where values arrive

  void add_cells(PortId id) {
    Port& port = out_.ports[id];
    const CompiledNode& node = out_.nodes[port.node];
    const std::string where = str_cat("input '", port.name, "' of '", node.name, "'");
    std::vector<CompiledEdge*> backs, forwards;
    for (CompiledEdge& edge : out_.edges) {
      if (edge.target == EdgeTarget::kNode && edge.port == id) {
        (edge.loop_back ? backs : forwards).push_back(&edge);
      }
    }
    // Innermost loop first: its value counts from its second iteration on.
    std::sort(backs.begin(), backs.end(), [&](const CompiledEdge* a, const CompiledEdge* b) {
      return depth_of(*a) > depth_of(*b);
    });
    for (size_t next = 1; next < backs.size(); ++next) {
      if (depth_of(*backs[next - 1]) == depth_of(*backs[next])) {
        fail_competing(where, *backs[next - 1], *backs[next]);
      }
    }
    if (forwards.size() > 1) fail_competing(where, *forwards[0], *forwards[1]);
    if (!forwards.empty() && !backs.empty() && depth_of(*backs.back()) <= depth_of(*forwards[0])) {
      fail_competing(where, *forwards[0], *backs.back());
    }
    port.first_cell = static_cast<uint16_t>(out_.cells.size());
    for (CompiledEdge* back : backs) add_cell(id, scope_of(back->output), true, back);
    if (!forwards.empty()) {
      add_cell(id, scope_of(forwards[0]->output), false, forwards[0]);
    } else if (port.streaming) {
      add_cell(id, node.scope, false, nullptr);
    } else {
      port.walk_input = true;
      add_cell(id, kWalkScope, false, nullptr);
      check_is_walk_input(where, port, !backs.empty());
    }
    port.num_cells = static_cast<uint16_t>(out_.cells.size() - port.first_cell);
    mark_read_once(port);
  }

  int depth_of(const CompiledEdge& edge) const { return out_.loops[scope_of(edge.output)].depth; }

  void add_cell(PortId port, LoopId scope, bool loop_back, CompiledEdge* edge) {
    if (edge != nullptr) edge->cell = static_cast<CellId>(out_.cells.size());
    out_.cells.push_back({port, scope, loop_back, false});
  }

  [[noreturn]] void fail_competing(const std::string& where,
                                   const CompiledEdge& a,
                                   const CompiledEdge& b) const {
    fail(where,
         " gets a value from both '",
         a.name,
         "' of ",
         maker_label(a.output),
         " and '",
         b.name,
         "' of ",
         maker_label(b.output),
         " in the same iteration; remove one edge");
  }

  void check_is_walk_input(const std::string& where, const Port& port, bool has_loop_back) const {
    const auto& inputs = walk_.inputs;
    if (std::find(inputs.begin(), inputs.end(), port.name) != inputs.end()) return;
    if (has_loop_back) {
      fail(where,
           " has no value in the first iteration; add \"",
           port.name,
           "\" to the walk's inputs (a trigger will do) or an edge from before the loop");
    }
    const std::string nearest = nearest_name(port.name, inputs);
    fail(where,
         " is never brought: no edge leads to it and the walk has no such input; ",
         nearest.empty() ? str_cat("add \"", port.name, "\" to the walk's inputs, or an edge")
                         : str_cat("did you mean '", nearest, "'?"));
  }

  // A cell is read by a single run of the node when every loop between its scope and the node
  // sends a value back, so that it only counts in their first iterations.
  void mark_read_once(const Port& port) {
    const LoopId own = out_.nodes[port.node].scope;
    for (size_t index = port.first_cell; index < out_.cells.size(); ++index) {
      Cell& cell = out_.cells[index];
      cell.once = true;
      for (LoopId loop = own; loop != cell.scope; loop = out_.loops[loop].parent) {
        const bool sends_back = std::any_of(
            out_.cells.begin() + port.first_cell, out_.cells.end(), [&](const Cell& other) {
              return other.loop_back && other.scope == loop;
            });
        if (!sends_back) cell.once = false;
      }
    }
  }

  void check_walk_inputs() const {
    std::set<std::string> seen;
    for (const std::string& input : walk_.inputs) {
      if (!seen.insert(input).second) fail("lists the input '", input, "' twice");
      const bool used = std::any_of(out_.ports.begin(), out_.ports.end(), [&](const Port& port) {
        return port.walk_input && port.name == input;
      });
      if (!used) fail("has the input '", input, "', which no node takes from outside; remove it");
    }
  }

  void list_dying_cells() {
    for (size_t id = 0; id < out_.cells.size(); ++id) {
      const Cell& cell = out_.cells[id];
      LoopId loop = out_.nodes[out_.ports[cell.port].node].scope;
      // From the node outwards: loops inside the cell's scope.
      for (; loop != cell.scope; loop = out_.loops[loop].parent) {
        if (out_.loops[loop].parent == cell.scope) {
          out_.loops[loop].entry_cells.push_back(static_cast<CellId>(id));
        }
      }
      for (;; loop = out_.loops[loop].parent) {
        out_.loops[loop].inner_cells.push_back(static_cast<CellId>(id));
        if (loop == kWalkScope) break;
      }
    }
  }

  const WalkGraph& walk_;
  CompiledWalk out_;
  std::vector<NodeInfo> node_infos_;
  std::vector<LoopInfo> loop_infos_;
  std::vector<std::pair<bool, uint16_t>> maker_;  // [output] -> (is a loop's, node or loop)
  std::set<std::string> entity_names_;
};

template <typename List>
uint16_t find_named(const List& list, std::string_view name) {
  for (size_t index = 0; index < list.size(); ++index) {
    if (list[index].name == name) return static_cast<uint16_t>(index);
  }
  return kNoId;
}

}  // namespace

CompiledWalk compile(const WalkGraph& walk) {
  return WalkCompiler(walk).compile_walk();
}

NodeId CompiledWalk::find_node(std::string_view node) const {
  return find_named(nodes, node);
}

LoopId CompiledWalk::find_loop(std::string_view loop) const {
  return loop.empty() ? kNoId : find_named(loops, loop);
}

PortId CompiledWalk::find_port(NodeId node, std::string_view input) const {
  const uint16_t index = find_named(ports_of(node), input);
  return index == kNoId ? kNoId : static_cast<PortId>(nodes[node].first_port + index);
}

EdgeId CompiledWalk::find_edge(NodeId from,
                               std::string_view output,
                               std::string_view destination) const {
  const uint16_t index = find_named(outputs_of(from), output);
  if (index == kNoId) return kNoId;
  const Output& made = outputs_of(from)[index];
  for (size_t id = made.first_edge; id < size_t{made.first_edge} + made.num_edges; ++id) {
    const CompiledEdge& edge = edges[id];
    const bool same = edge.target == EdgeTarget::kNode     ? nodes[edge.node].name == destination
                      : edge.target == EdgeTarget::kClient ? destination == kEmitToClient
                      : edge.target == EdgeTarget::kStream ? edge.stream_node == destination
                                                           : destination == kNowhere;
    if (same) return static_cast<EdgeId>(id);
  }
  return kNoId;
}

}  // namespace mstar::graph

#include <algorithm>
#include <set>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/graph/compile.h"

namespace mstar::graph {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(word, known);
  return nearest.empty() ? str_cat("known are: ", str_join(known, ", "))
                         : str_cat("did you mean '", nearest, "'?");
}

class ModelCompiler {
 public:
  explicit ModelCompiler(const ModelGraph& model) : model_(model) {}

  CompiledModel compile_all() {
    if (model_.walks.empty()) fail("[model] declares no walk, expected at least one");
    for (const WalkGraph& walk : model_.walks) {
      if (out_.find_walk(walk.name) != kNoId) {
        fail(str_cat("[walk '", walk.name, "'] is declared twice; walks need names of their own"));
      }
      out_.walks.push_back(compile(walk));
      number_nodes(out_.walks.back());
    }
    set_topology();
    check_connections();
    for (size_t walk = 0; walk < out_.walks.size(); ++walk) check_streams_of(walk);
    check_consumers();
    return std::move(out_);
  }

 private:
  void number_nodes(CompiledWalk& walk) {
    for (CompiledNode& node : walk.nodes) {
      auto found = std::find(out_.nodes.begin(), out_.nodes.end(), node.name);
      node.model_node = static_cast<uint16_t>(found - out_.nodes.begin());
      if (found == out_.nodes.end()) out_.nodes.push_back(node.name);
    }
  }

  void set_topology() {
    out_.topology = model_.topology;
    if (out_.topology.partitions.empty()) {
      Partition all{"main", {}};
      for (const CompiledWalk& walk : out_.walks) all.walks.push_back(walk.name);
      out_.topology.partitions.push_back(std::move(all));
    }
    out_.partition_of.assign(out_.walks.size(), kNoId);
    std::vector<std::string> walk_names;
    for (const CompiledWalk& walk : out_.walks) walk_names.push_back(walk.name);
    for (size_t index = 0; index < out_.topology.partitions.size(); ++index) {
      const Partition& partition = out_.topology.partitions[index];
      if (find_partition(partition.name) != static_cast<int>(index)) {
        fail(str_cat("[partition '", partition.name, "'] is declared twice"));
      }
      for (const std::string& name : partition.walks) {
        const uint16_t walk = out_.find_walk(name);
        if (walk == kNoId) {
          fail(str_cat("[partition '",
                       partition.name,
                       "'] names the walk '",
                       name,
                       "', which does not exist; ",
                       did_you_mean(name, walk_names)));
        }
        if (out_.partition_of[walk] != kNoId) {
          fail(str_cat("[walk '", name, "'] is in two partitions, expected one"));
        }
        out_.partition_of[walk] = static_cast<uint16_t>(index);
      }
    }
    for (size_t walk = 0; walk < out_.walks.size(); ++walk) {
      if (out_.partition_of[walk] == kNoId) {
        fail(str_cat("[walk '",
                     out_.walks[walk].name,
                     "'] belongs to no partition; add it to one of the topology's partitions"));
      }
    }
  }

  void check_connections() {
    for (size_t index = 0; index < connections().size(); ++index) {
      const Connection& connection = connections()[index];
      const std::string where = str_cat(
          "connection ", connection.from, " -> ", connection.to, " '", connection.edge_name, "'");
      for (const std::string& end : {connection.from, connection.to}) {
        if (find_partition(end) < 0) {
          fail(str_cat("[",
                       where,
                       "] names the partition '",
                       end,
                       "', which does not exist; ",
                       did_you_mean(end, partition_names())));
        }
      }
      if (connection.from == connection.to) {
        fail(str_cat("[", where, "] stays inside one partition; a plain edge does that"));
      }
      connection.policy.validate(where);
      if (find_connection(connection.from, connection.to, connection.edge_name) !=
          static_cast<int>(index)) {
        fail(str_cat("[", where, "] is declared twice"));
      }
    }
    connection_used_.assign(connections().size(), false);
  }

  // Every streaming edge of the walk has a connection and a consumer.
  void check_streams_of(size_t walk_index) {
    const CompiledWalk& walk = out_.walks[walk_index];
    const std::string& from = partition(out_.partition_of[walk_index]).name;
    for (const CompiledEdge& edge : walk.edges) {
      if (edge.target != EdgeTarget::kStream) continue;
      const std::string where = str_cat("walk '", walk.name, "', edge '", edge.name, "'");
      if (find_partition(edge.target_partition) < 0) {
        fail(str_cat("[",
                     where,
                     "] streams to the partition '",
                     edge.target_partition,
                     "', which does not exist; ",
                     did_you_mean(edge.target_partition, partition_names())));
      }
      const int connection = find_connection(from, edge.target_partition, edge.name);
      if (connection < 0) {
        fail(str_cat("[",
                     where,
                     "] streams from '",
                     from,
                     "' to '",
                     edge.target_partition,
                     "', but the topology has no such connection; add {\"",
                     from,
                     "\", \"",
                     edge.target_partition,
                     "\", \"",
                     edge.name,
                     "\", a chunk policy}"));
      }
      connection_used_[connection] = true;
      if (!has_consumer(edge)) {
        fail(str_cat("[",
                     where,
                     "] streams to '",
                     edge.stream_node,
                     "', but no walk of partition '",
                     edge.target_partition,
                     "' has a node '",
                     edge.stream_node,
                     "' with the streaming input '",
                     edge.input,
                     "'; add needs_stream(\"",
                     edge.input,
                     "\") there"));
      }
      fed_.insert({edge.target_partition, edge.stream_node, edge.input});
    }
  }

  bool has_consumer(const CompiledEdge& edge) const {
    for (size_t index = 0; index < out_.walks.size(); ++index) {
      if (partition(out_.partition_of[index]).name != edge.target_partition) continue;
      const CompiledWalk& walk = out_.walks[index];
      const NodeId node = walk.find_node(edge.stream_node);
      if (node == kNoId) continue;
      const PortId port = walk.find_port(node, edge.input);
      if (port != kNoId && walk.ports[port].streaming) return true;
    }
    return false;
  }

  // Every streaming input has a producer, and every connection an edge.
  void check_consumers() {
    for (size_t index = 0; index < out_.walks.size(); ++index) {
      const CompiledWalk& walk = out_.walks[index];
      const std::string& in = partition(out_.partition_of[index]).name;
      for (const Port& port : walk.ports) {
        const std::string& node = walk.nodes[port.node].name;
        if (port.streaming && !fed_.contains({in, node, port.name})) {
          fail(str_cat("[walk '",
                       walk.name,
                       "', node '",
                       node,
                       "'] waits for the stream '",
                       port.name,
                       "', but no edge streams it into partition '",
                       in,
                       "'"));
        }
      }
    }
    for (size_t index = 0; index < connections().size(); ++index) {
      if (connection_used_[index]) continue;
      const Connection& unused = connections()[index];
      fail(str_cat("[connection ",
                   unused.from,
                   " -> ",
                   unused.to,
                   " '",
                   unused.edge_name,
                   "'] no walk of '",
                   unused.from,
                   "' has this streaming edge; remove the ",
                   "connection or add stream_to(\"",
                   unused.to,
                   "\", ...)"));
    }
  }

  const std::vector<Connection>& connections() const { return out_.topology.connections; }

  const Partition& partition(size_t index) const { return out_.topology.partitions[index]; }

  int find_partition(std::string_view name) const {
    const auto& all = out_.topology.partitions;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Partition& p) { return p.name == name; });
    return found == all.end() ? -1 : static_cast<int>(found - all.begin());
  }

  int find_connection(std::string_view from, std::string_view to, std::string_view edge) const {
    for (size_t index = 0; index < connections().size(); ++index) {
      const Connection& candidate = connections()[index];
      if (candidate.from == from && candidate.to == to && candidate.edge_name == edge) {
        return static_cast<int>(index);
      }
    }
    return -1;
  }

  std::vector<std::string> partition_names() const {
    std::vector<std::string> names;
    for (const Partition& each : out_.topology.partitions) names.push_back(each.name);
    return names;
  }

  const ModelGraph& model_;
  CompiledModel out_;
  std::vector<bool> connection_used_;
  std::set<std::vector<std::string>> fed_;  // {partition, node, input}
};

}  // namespace

uint16_t CompiledModel::find_walk(std::string_view walk) const {
  for (size_t index = 0; index < walks.size(); ++index) {
    if (walks[index].name == walk) return static_cast<uint16_t>(index);
  }
  return kNoId;
}

uint16_t CompiledModel::get_walk(std::string_view walk) const {
  const uint16_t found = find_walk(walk);
  if (found != kNoId) return found;
  std::vector<std::string> known;
  for (const CompiledWalk& each : walks) known.push_back(each.name);
  fail(str_cat("[walk '", walk, "'] does not exist; ", did_you_mean(walk, known)));
}

CompiledModel compile(const ModelGraph& model) {
  return ModelCompiler(model).compile_all();
}

}  // namespace mstar::graph

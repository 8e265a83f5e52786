#include "mstar/graph/print.h"

#include <map>
#include <set>

#include "mstar/base/str_cat.h"

namespace mstar::graph {
namespace {

// Draws one walk. Edges are drawn after all nodes, so that Mermaid keeps the nodes in their boxes.
class MermaidWriter {
 public:
  std::string write(const WalkGraph& walk) {
    text_ = "flowchart LR\n";
    draw(walk.sections, 1);
    for (const std::string& input : walk.inputs) draw_input(input);
    for (const auto& [input, node] : streams_) draw_stream_input(input, node);
    for (const Made& made : edges_) draw_edge(made);
    return std::move(text_);
  }

 private:
  struct Made {
    std::string from;   // Mermaid id
    std::string label;  // in front of the edge's name
    Edge edge;
    bool at_end;  // given by a loop
    int order;    // of the maker
  };

  void line(int depth, const std::string& content) {
    text_ += std::string(2 * static_cast<size_t>(depth), ' ') + content + "\n";
  }

  // Text between quotes of a Mermaid label.
  static std::string quoted(std::string_view text) {
    std::string safe;
    for (char c : text) safe += c == '"' ? std::string("#quot;") : std::string(1, c);
    return str_cat('"', safe, '"');
  }

  std::string id_of(const std::string& node) {
    const auto [at, is_new] = ids_.try_emplace(node, ids_.size());
    return str_cat("n", at->second);
  }

  void draw(const std::vector<Section>& sections, int depth) {
    for (const Section& section : sections) draw(section, depth);
  }

  void draw(const Section& section, int depth) {
    if (const auto* node = std::get_if<Node>(&section.value)) {
      const std::string id = id_of(node->name);
      line(depth, str_cat(id, "[", quoted(node->name), "]"));
      order_[node->name] = ++num_drawn_;
      for (const Input& input : node->inputs) {
        consumers_.insert({input.name, node->name});
        if (input.is_streaming) streams_.emplace_back(input.name, node->name);
      }
      for (const Edge& edge : node->outputs) edges_.push_back({id, "", edge, false, num_drawn_});
    } else if (const auto* parts = std::get_if<Sequential>(&section.value)) {
      draw(parts->sections, depth);
    } else if (const auto* sides = std::get_if<Parallel>(&section.value)) {
      draw(sides->sections, depth);
    } else {
      draw_loop(std::get<Loop>(section.value), depth);
    }
  }

  void draw_loop(const Loop& loop, int depth) {
    const std::string id = str_cat("loop", ++num_loops_);
    const std::string times = loop.max_iters == kUntilStopped
                                  ? std::string("until stopped")
                                  : str_cat(loop.name.empty() ? "x" : "at most x", loop.max_iters);
    const std::string title = loop.name.empty() ? times : str_cat(loop.name, ", ", times);
    line(depth, str_cat("subgraph ", id, "[", quoted(title), "]"));
    draw(loop.sections, depth + 1);
    line(depth, "end");
    for (const LoopOutput& given : loop.outputs) {
      edges_.push_back({id, "last ", given.edge, true, num_drawn_});
    }
    for (const LoopOutput& given : loop.accumulated_outputs) {
      edges_.push_back({id, "all ", given.edge, true, num_drawn_});
    }
  }

  void draw_input(const std::string& input) {
    const std::string id = str_cat("in_", ++num_inputs_);
    line(1, str_cat(id, "([", quoted(input), "])"));
    for (const auto& [name, node] : consumers_) {
      if (name != input || is_fed_before(input, node)) continue;
      line(1, str_cat(id, " --> ", id_of(node)));
    }
  }

  void draw_stream_input(const std::string& input, const std::string& node) {
    const std::string id = str_cat("in_", ++num_inputs_);
    line(1, str_cat(id, "[[", quoted(str_cat("stream: ", input)), "]]"));
    line(1, str_cat(id, " ==> ", id_of(node)));
  }

  // An earlier part brings the value, so it is not the conductor's.
  bool is_fed_before(const std::string& input, const std::string& node) {
    for (const Made& made : edges_) {
      if (made.edge.destination == node && made.edge.input == input && !made.edge.is_streaming() &&
          made.order < order_[node]) {
        return true;
      }
    }
    return false;
  }

  void draw_edge(const Made& made) {
    const Edge& edge = made.edge;
    std::string label = made.label + edge.name;
    if (edge.input != edge.name && !edge.input.empty()) label += str_cat(" as ", edge.input);
    if (edge.persist) label += " (kept)";
    if (edge.is_streaming()) {
      const std::string stream = id_of(str_cat(edge.target_partition, ": ", edge.destination));
      line(1,
           str_cat(
               stream, "[[", quoted(str_cat(edge.target_partition, ": ", edge.destination)), "]]"));
      line(1, str_cat(made.from, " ==>|", quoted(label), "| ", stream));
    } else if (edge.is_emitted()) {
      line(1,
           str_cat(made.from,
                   " -->|",
                   quoted(str_cat(label, ": ", to_string(edge.modality))),
                   "| client(((client)))"));
    } else if (edge.destination.empty()) {
      if (edge.persist) line(1, str_cat(made.from, " -->|", quoted(label), "| kept[(kept)]"));
    } else {
      const bool is_back = !made.at_end && order_[edge.destination] <= made.order;
      line(1,
           str_cat(made.from,
                   is_back ? " -.->|" : " -->|",
                   quoted(label),
                   "| ",
                   id_of(edge.destination)));
    }
  }

  std::string text_;
  std::map<std::string, size_t> ids_;
  std::map<std::string, int> order_;
  std::set<std::pair<std::string, std::string>> consumers_;   // (input, node)
  std::vector<std::pair<std::string, std::string>> streams_;  // the same, fed by a stream
  std::vector<Made> edges_;
  int num_drawn_ = 0;
  int num_loops_ = 0;
  int num_inputs_ = 0;
};

Json to_json(const Edge& edge) {
  Json json = Json::object({{"name", edge.name}, {"to", edge.destination}});
  if (!edge.input.empty() && edge.input != edge.name) json.set("input", edge.input);
  if (edge.persist) json.set("persist", true);
  if (edge.conductor_new_token) json.set("conductor_new_token", true);
  if (edge.modality != Modality::kNone) json.set("modality", to_string(edge.modality));
  if (edge.is_streaming()) json.set("target_partition", edge.target_partition);
  return json;
}

Json to_json(const std::vector<Section>& sections);

Json to_json(const Node& node) {
  Json inputs = Json::array();
  Json streams = Json::array();
  for (const Input& input : node.inputs)
    (input.is_streaming ? streams : inputs).push_back(input.name);
  Json outputs = Json::array();
  for (const Edge& edge : node.outputs) outputs.push_back(to_json(edge));
  Json json = Json::object({{"node", node.name}, {"inputs", inputs}});
  if (streams.size() > 0) json.set("streaming_inputs", streams);
  json.set("outputs", outputs);
  if (!node.enable_async_scheduling) json.set("enable_async_scheduling", false);
  return json;
}

Json to_json(const std::vector<LoopOutput>& outputs) {
  Json json = Json::array();
  for (const LoopOutput& output : outputs) {
    json.push_back(
        Json::object({{"body_output", output.body_output}, {"edge", to_json(output.edge)}}));
  }
  return json;
}

Json to_json(const Loop& loop) {
  Json json = Json::object({{"loop", loop.name}});
  if (loop.max_iters != kUntilStopped) json.set("max_iters", loop.max_iters);
  json.set("body", to_json(loop.sections));
  if (!loop.outputs.empty()) json.set("outputs", to_json(loop.outputs));
  if (!loop.accumulated_outputs.empty()) {
    json.set("accumulated_outputs", to_json(loop.accumulated_outputs));
  }
  return json;
}

Json to_json(const std::vector<Section>& sections) {
  Json json = Json::array();
  for (const Section& section : sections) {
    if (const auto* node = std::get_if<Node>(&section.value)) {
      json.push_back(to_json(*node));
    } else if (const auto* loop = std::get_if<Loop>(&section.value)) {
      json.push_back(to_json(*loop));
    } else if (const auto* parts = std::get_if<Sequential>(&section.value)) {
      json.push_back(Json::object({{"sequential", to_json(parts->sections)}}));
    } else {
      json.push_back(
          Json::object({{"parallel", to_json(std::get<Parallel>(section.value).sections)}}));
    }
  }
  return json;
}

Json to_json(const std::vector<std::string>& names) {
  Json json = Json::array();
  for (const std::string& name : names) json.push_back(name);
  return json;
}

}  // namespace

std::string to_mermaid(const WalkGraph& walk) {
  return MermaidWriter().write(walk);
}

std::string to_mermaid(const ModelGraph& model) {
  std::string text;
  for (const WalkGraph& walk : model.walks) {
    text += str_cat("### ", walk.name, "\n\n```mermaid\n", to_mermaid(walk), "```\n\n");
  }
  const PartitionTopology& topology = model.topology;
  if (topology.connections.empty()) return text;
  text += "### partitions\n\n```mermaid\nflowchart LR\n";
  std::map<std::string, size_t> ids;
  for (const Partition& partition : topology.partitions) {
    const size_t id = ids.try_emplace(partition.name, ids.size()).first->second;
    text +=
        str_cat("  p", id, "[\"", partition.name, "<br>", str_join(partition.walks, ", "), "\"]\n");
  }
  for (const Connection& connection : topology.connections) {
    text += str_cat("  p",
                    ids[connection.from],
                    " ==>|\"",
                    connection.edge_name,
                    "<br>",
                    connection.policy.to_string(),
                    "\"| p",
                    ids[connection.to],
                    "\n");
  }
  return text + "```\n";
}

Json to_json(const WalkGraph& walk) {
  return Json::object({{"walk", walk.name},
                       {"inputs", to_json(walk.inputs)},
                       {"sections", to_json(walk.sections)}});
}

Json to_json(const ModelGraph& model) {
  Json walks = Json::array();
  for (const WalkGraph& walk : model.walks) walks.push_back(to_json(walk));
  Json partitions = Json::array();
  for (const Partition& partition : model.topology.partitions) {
    partitions.push_back(
        Json::object({{"name", partition.name}, {"walks", to_json(partition.walks)}}));
  }
  Json connections = Json::array();
  for (const Connection& connection : model.topology.connections) {
    connections.push_back(Json::object({{"from", connection.from},
                                        {"to", connection.to},
                                        {"edge_name", connection.edge_name},
                                        {"chunk_policy", connection.policy.to_string()}}));
  }
  return Json::object({{"walks", walks}, {"partitions", partitions}, {"connections", connections}});
}

}  // namespace mstar::graph

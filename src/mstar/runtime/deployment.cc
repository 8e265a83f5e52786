#include "mstar/runtime/deployment.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

#include "yaml-cpp/yaml.h"

namespace mstar {

namespace {

constexpr int kMaxDepth = 32;

// A plain scalar is what YAML's core schema says it is; a quoted one is a string.
Json scalar_to_json(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") {
    return text;
  }
  if (text == "true" || text == "True") {
    return true;
  }
  if (text == "false" || text == "False") {
    return false;
  }
  if (text == "null" || text == "~" || text.empty()) {
    return nullptr;
  }
  int64_t integer = 0;
  if (YAML::convert<int64_t>::decode(node, integer)) {
    return integer;
  }
  double number = 0;
  if (YAML::convert<double>::decode(node, number)) {
    return number;
  }
  return text;
}

Json to_json(const YAML::Node& node, std::string_view where, int depth) {
  if (depth > kMaxDepth) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", where, "] nested deeper than ", kMaxDepth, " levels"));
  }
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const YAML::Node& element : node) {
      list.push_back(to_json(element, where, depth + 1));
    }
    return list;
  }
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& member : node) {
      const std::string key = member.first.Scalar();
      if (object.contains(key)) {
        throw Error(ErrorCode::kInvalidArgument,
                    str_cat("[", where, "] key \"", key, "\" stands twice"));
      }
      object.set(key, to_json(member.second, where, depth + 1));
    }
    return object;
  }
  return node.IsScalar() ? scalar_to_json(node) : Json();
}

std::vector<std::string> strings(const Json& list, const std::string& where, const char* key) {
  std::vector<std::string> out;
  if (!list.is_array()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        str_cat(
            "[", where, "] \"", key, "\": found ", list.type_name(), ", expected a list of names"));
  }
  for (const Json& element : list.get_array()) {
    if (!element.is_string()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          str_cat("[", where, "] \"", key, "\": found ", element.type_name(), ", expected a name"));
    }
    out.push_back(element.get_string());
  }
  return out;
}

NodeGroup read_group(const Json& json, const std::string& where) {
  JsonReader reader(json, where);
  NodeGroup group;
  group.node_names = strings(reader.get("node_names"), where, "node_names");
  for (const Json& rank : reader.get("ranks").get_array()) {
    group.ranks.push_back(static_cast<int>(rank.get_int()));
  }
  group.tp_size = static_cast<int>(reader.get_int("tp_size", 1));
  group.sp_size = static_cast<int>(reader.get_int("sp_size", 1));
  if (const Json* walks = reader.find("graph_walks")) {
    group.graph_walks = strings(*walks, where, "graph_walks");
  }
  reader.finish();
  constexpr int kMaxRank = 63;
  const bool ranks_ok = !group.ranks.empty() && std::ranges::all_of(group.ranks, [](int rank) {
    return rank >= 0 && rank <= kMaxRank;
  });
  if (!ranks_ok) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", where, "] \"ranks\": expected one or more of 0 to ", kMaxRank));
  }
  return group;
}

bool lists(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Deployment parse_deployment(std::string_view yaml, std::string_view where) {
  Json json;
  try {
    json = to_json(YAML::Load(std::string(yaml)), where, 0);
  } catch (const YAML::Exception& error) {
    throw Error(
        ErrorCode::kInvalidArgument,
        str_cat("[", where, "] not valid YAML, line ", error.mark.line + 1, ": ", error.msg));
  }
  JsonReader reader(json, std::string(where));
  Deployment out;
  out.model = reader.get_string("model", "");
  out.max_seq_len = reader.get_int("max_seq_len", 0);
  out.max_concurrent_requests = reader.get_int("max_concurrent_requests", 32);
  out.autocast_dtype = reader.get_string("autocast_dtype", "");
  if (const Json* kwargs = reader.find("model_kwargs")) {
    JsonReader check(*kwargs, str_cat(where, ": model_kwargs"));  // must be an object
    out.model_kwargs = *kwargs;
  }
  if (const Json* groups = reader.find("node_groups")) {
    for (size_t index = 0; index < groups->get_array().size(); ++index) {
      out.node_groups.push_back(
          read_group((*groups)[index], str_cat(where, ": node_groups[", index, "]")));
    }
  }
  if (const Json* resources = reader.find("resources")) {
    JsonReader check(*resources, str_cat(where, ": resources"));
    for (const auto& [key, overrides] : resources->get_object()) {
      out.resources.emplace(key, overrides);
    }
  }
  reader.finish();
  if (out.max_concurrent_requests < 1 || out.max_concurrent_requests > 4096) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[",
                        where,
                        "] \"max_concurrent_requests\": found ",
                        out.max_concurrent_requests,
                        ", expected 1 to 4096"));
  }
  return out;
}

Deployment read_deployment(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Error(ErrorCode::kNotFound, str_cat("[", path, "] cannot be read"));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return parse_deployment(text.str(), path);
}

std::vector<graph::WalkPlacement> place(const graph::CompiledModel& graph,
                                        const Deployment& deployment) {
  for (size_t index = 0; index < deployment.node_groups.size(); ++index) {
    const NodeGroup& group = deployment.node_groups[index];
    const std::string where = str_cat("node_groups[", index, "]");
    for (const std::string& node : group.node_names) {
      if (!lists(graph.nodes, node)) {
        throw Error(ErrorCode::kInvalidArgument,
                    str_cat("[",
                            where,
                            "] no node \"",
                            node,
                            "\"; the model has ",
                            str_join(graph.nodes, ", ")));
      }
    }
    for (const std::string& walk : group.graph_walks) {
      graph.get_walk(walk);  // throws naming the known ones
    }
    if (group.tp_size * group.sp_size != 1 || group.ranks.size() != 1) {
      throw Error(ErrorCode::kUnsupported,
                  str_cat("[",
                          where,
                          "] one rank a group and tp_size = sp_size = 1: on one ",
                          "machine the threads of a rank already share its work"));
    }
  }
  std::vector<graph::WalkPlacement> placements;
  for (const graph::CompiledWalk& walk : graph.walks) {
    std::vector<uint16_t> group_of(walk.nodes.size(), 0);
    for (size_t node = 0; node < walk.nodes.size() && !deployment.node_groups.empty(); ++node) {
      const auto group = std::ranges::find_if(deployment.node_groups, [&](const NodeGroup& one) {
        return lists(one.node_names, walk.nodes[node].name) &&
               (one.graph_walks.empty() || lists(one.graph_walks, walk.name));
      });
      if (group == deployment.node_groups.end()) {
        throw Error(ErrorCode::kInvalidArgument,
                    str_cat("[node_groups] node \"",
                            walk.nodes[node].name,
                            "\" of walk \"",
                            walk.name,
                            "\" is in no group"));
      }
      group_of[node] = static_cast<uint16_t>(group->ranks.front());
    }
    placements.push_back(graph::split(walk, group_of));
  }
  const auto workers = nodes_by_worker(graph, placements);
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    if (workers[rank].empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[node_groups] no node is on rank ",
                          rank,
                          ", but one is on rank ",
                          workers.size() - 1));
    }
  }
  return placements;
}

std::vector<std::vector<std::string>> nodes_by_worker(
    const graph::CompiledModel& graph,
    const std::vector<graph::WalkPlacement>& placements) {
  std::vector<std::vector<std::string>> workers(1);
  for (size_t walk = 0; walk < placements.size(); ++walk) {
    for (size_t node = 0; node < placements[walk].group_of.size(); ++node) {
      const size_t worker = placements[walk].group_of[node];
      if (worker >= workers.size()) {
        workers.resize(worker + 1);
      }
      const std::string& name = graph.walks[walk].nodes[node].name;
      if (!lists(workers[worker], name)) {
        workers[worker].push_back(name);
      }
    }
  }
  return workers;
}

}  // namespace mstar

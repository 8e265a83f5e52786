// `mstar check`: whether a model could be served as the command line and the deployment say.
#include <algorithm>
#include <cstdio>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/commands.h"
#include "mstar/cli/loaded_model.h"
#include "mstar/graph/compile.h"
#include "mstar/runtime/deployment.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

namespace {

// Resource overrides name resources and keys that exist.
void check_overrides(const OpenedModel& opened) {
  std::vector<NodeResourceSpec> specs = opened.model->get_node_resources();
  for (const auto& [key, overrides] : opened.deployment.resources) {
    const auto spec = std::ranges::find(specs, key, &NodeResourceSpec::resource_key);
    if (spec == specs.end()) {
      std::vector<std::string> keys;
      for (const NodeResourceSpec& one : specs) {
        keys.push_back(one.resource_key);
      }
      throw Error(
          ErrorCode::kInvalidArgument,
          str_cat("[resources] found \"", key, "\", expected one of ", str_join(keys, ", ")));
    }
    apply_overrides(spec->spec, overrides, str_cat("resources.", key));
  }
}

}  // namespace

int check_command(const std::vector<std::string>& words) {
  std::vector<Flag> declared = model_flags();
  declared.push_back({.name = "json", .help = "the result as JSON"});
  Flags flags("check", declared);
  flags.parse(words);
  if (flags.get_bool("help")) {
    std::printf("mstar check [MODEL] [options]\n\n%s", flags.help().c_str());
    return 0;
  }
  if (flags.positionals().size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, "[command line] check: one model at a time");
  }
  const OpenedModel opened =
      open_from_flags(flags, flags.positionals().empty() ? "" : flags.positionals().front());
  const graph::CompiledModel graph = graph::compile(opened.model->get_graph_walk_graphs());
  const auto placements = place(graph, opened.deployment);
  check_overrides(opened);
  ThreadPool pool(opened.options.num_threads);
  CpuStream stream(pool);
  opened.model->check_weights({.pool = pool,
                               .stream = stream,
                               .activation_dtype = opened.options.engine.activation_dtype,
                               .quantization = opened.options.engine.quantization,
                               .progress = {}});
  const ModelDescription& model = opened.model->description();
  const auto num_workers = static_cast<int64_t>(nodes_by_worker(graph, placements).size());
  if (flags.get_bool("json")) {
    std::printf("%s\n",
                Json::object({{"ok", true},
                              {"model", model.name},
                              {"family", model.family},
                              {"nodes", static_cast<int64_t>(graph.nodes.size())},
                              {"walks", static_cast<int64_t>(graph.walks.size())},
                              {"workers", num_workers}})
                    .dump(2)
                    .c_str());
  } else {
    std::printf("%s (%s): %zu nodes, %zu walks, %ld worker%s; weights as the configuration says\n",
                model.name.c_str(),
                model.family.c_str(),
                graph.nodes.size(),
                graph.walks.size(),
                static_cast<long>(num_workers),
                num_workers == 1 ? "" : "s");
  }
  return 0;
}

}  // namespace mstar

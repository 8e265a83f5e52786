// `mstar inspect`: what a checkpoint is and would need, without loading it.
#include <cstdio>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/commands.h"
#include "mstar/cli/loaded_model.h"
#include "mstar/graph/print.h"
#include "mstar/runtime/memory_check.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

namespace {

std::string modality_words(const std::vector<Modality>& modalities) {
  std::vector<std::string> words;
  for (const Modality modality : modalities) {
    words.emplace_back(graph::to_string(modality));
  }
  return str_join(words, ", ");
}

Json modality_list(const std::vector<Modality>& modalities) {
  Json list = Json::array();
  for (const Modality modality : modalities) {
    list.push_back(graph::to_string(modality));
  }
  return list;
}

const char* kind_of(const ResourceSpec& spec) {
  struct Names {
    const char* operator()(const KVSpec&) const { return "kv cache"; }

    const char* operator()(const AttentionSpec&) const { return "attention"; }

    const char* operator()(const PositionSpec&) const { return "positions"; }

    const char* operator()(const SamplerSpec&) const { return "sampler"; }
  };

  return std::visit(Names(), spec);
}

std::vector<MemoryItem> memory_plan(const OpenedModel& opened) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const LoadContext context{.pool = pool,
                            .stream = stream,
                            .activation_dtype = opened.options.engine.activation_dtype,
                            .quantization = opened.options.engine.quantization,
                            .progress = {}};
  return plan_memory(*opened.model, {}, context, opened.deployment.resources);
}

Json inspect_json(const OpenedModel& opened) {
  const ModelDescription& model = opened.model->description();
  Json resources = Json::array();
  for (const NodeResourceSpec& resource : opened.model->get_node_resources()) {
    Json nodes = Json::array();
    for (const std::string& node : resource.nodes) {
      nodes.push_back(node);
    }
    resources.push_back(Json::object({{"key", resource.resource_key},
                                      {"kind", kind_of(resource.spec)},
                                      {"nodes", std::move(nodes)}}));
  }
  Json memory = Json::array();
  for (const MemoryItem& item : memory_plan(opened)) {
    memory.push_back(Json::object({{"what", item.what}, {"size_bytes", item.size_bytes}}));
  }
  const graph::ModelGraph graph = opened.model->get_graph_walk_graphs();
  return Json::object({{"name", model.name},
                       {"family", model.family},
                       {"input_modalities", modality_list(model.input_modalities)},
                       {"output_modalities", modality_list(model.output_modalities)},
                       {"max_model_len", model.max_model_len},
                       {"config", model.config},
                       {"parameters", model.parameters.describe()},
                       {"resources", std::move(resources)},
                       {"memory_plan", std::move(memory)},
                       {"memory_available_bytes", opened.options.memory_bytes},
                       {"walks", graph::to_json(graph)}});
}

void print_text(const OpenedModel& opened) {
  const ModelDescription& model = opened.model->description();
  std::printf("# %s (%s)\n\n%s -> %s",
              model.name.c_str(),
              model.family.c_str(),
              modality_words(model.input_modalities).c_str(),
              modality_words(model.output_modalities).c_str());
  if (model.max_model_len > 0) {
    std::printf(", up to %lld tokens", static_cast<long long>(model.max_model_len));
  }
  std::printf("\n\n## Configuration\n\n%s\n", model.config.dump(2).c_str());
  std::printf("\n## Parameters of a request\n\n%s", model.parameters.help_text().c_str());
  std::printf("\n## Walks\n\n%s", graph::to_mermaid(opened.model->get_graph_walk_graphs()).c_str());
  std::printf("\n## Resources\n\n");
  for (const NodeResourceSpec& resource : opened.model->get_node_resources()) {
    std::printf("  %-16s %-12s %s\n",
                resource.resource_key.c_str(),
                kind_of(resource.spec),
                str_join(resource.nodes, ", ").c_str());
  }
  std::printf("\n## Memory\n\n");
  int64_t total = 0;
  for (const MemoryItem& item : memory_plan(opened)) {
    std::printf("  %-24s %10.1f MiB\n",
                item.what.c_str(),
                static_cast<double>(item.size_bytes) / (1 << 20));
    total += item.size_bytes;
  }
  std::printf("  %-24s %10.1f MiB\n", "together", static_cast<double>(total) / (1 << 20));
  const int64_t have = opened.options.memory_bytes;
  std::printf("  %s\n",
              str_cat("needs ",
                      gigabytes(total),
                      ", have ",
                      gigabytes(have),
                      total > have ? ": does not fit" : "")
                  .c_str());
}

}  // namespace

int inspect_command(const std::vector<std::string>& words) {
  std::vector<Flag> declared = model_flags();
  declared.push_back({.name = "json", .help = "everything as JSON"});
  declared.push_back({.name = "walks", .help = "only the walk graphs, as Mermaid in Markdown"});
  Flags flags("inspect", declared);
  flags.parse(words);
  if (flags.get_bool("help")) {
    std::printf("mstar inspect MODEL [options]\n\n%s", flags.help().c_str());
    return 0;
  }
  if (flags.positionals().size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, "[command line] inspect: one model at a time");
  }
  const OpenedModel opened =
      open_from_flags(flags, flags.positionals().empty() ? "" : flags.positionals().front());
  if (flags.get_bool("walks")) {
    std::fputs(graph::to_mermaid(opened.model->get_graph_walk_graphs()).c_str(), stdout);
  } else if (flags.get_bool("json")) {
    std::printf("%s\n", inspect_json(opened).dump(2).c_str());
  } else {
    print_text(opened);
  }
  return 0;
}

}  // namespace mstar

#include "mstar/runtime/memory_check.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

// The number in a file that holds one, or -1 ("max", or no such file).
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

int64_t available_in_machine() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kilobytes = 0;
  std::string unit;
  while (file >> name >> kilobytes) {
    std::getline(file, unit);
    if (name == "MemAvailable:") {
      return kilobytes * 1024;
    }
  }
  return 0;
}

// Of a control group's memory, the cached files: they make room when it is needed.
int64_t cached_files(const char* statistics) {
  std::ifstream file(statistics);
  int64_t total = 0;
  std::string name;
  int64_t value = 0;
  while (file >> name >> value) {
    if (name == "inactive_file" || name == "active_file") {
      total += value;
    }
  }
  return total;
}

// What the control group leaves; -1 where it sets no limit. Version 2, then version 1.
int64_t available_in_group() {
  struct Files {
    const char* limit;
    const char* used;
    const char* statistics;
  };

  constexpr Files kVersions[] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
       "/sys/fs/cgroup/memory/memory.usage_in_bytes",
       "/sys/fs/cgroup/memory/memory.stat"}};
  for (const Files& files : kVersions) {
    const int64_t limit = number_in(files.limit);
    const int64_t used = number_in(files.used);
    if (limit > 0 && used >= 0) {
      return std::max<int64_t>(limit - used + std::min(used, cached_files(files.statistics)), 0);
    }
  }
  return -1;
}

}  // namespace

int64_t available_memory() {
  const int64_t machine = available_in_machine();
  const int64_t group = available_in_group();
  return group < 0 ? machine : std::min(machine, group);
}

std::string gigabytes(int64_t bytes) {
  char text[32];
  const bool small = bytes < 1'000'000'000;
  std::snprintf(text,
                sizeof(text),
                small ? "%.1f MB" : "%.1f GB",
                static_cast<double>(bytes) / (small ? 1e6 : 1e9));
  return text;
}

std::vector<MemoryItem> plan_memory(const Model& model,
                                    const std::vector<std::string>& nodes,
                                    const LoadContext& context,
                                    const std::map<std::string, Json>& overrides) {
  std::vector<MemoryItem> plan = model.memory_plan(nodes, context);
  for (NodeResourceSpec& resource : model.get_node_resources()) {
    const auto is_hosted = [&](const std::string& node) {
      return std::ranges::find(nodes, node) != nodes.end();
    };
    if (!std::holds_alternative<KVSpec>(resource.spec) ||
        (!nodes.empty() && std::ranges::none_of(resource.nodes, is_hosted))) {
      continue;
    }
    follow_activations(context.activation_dtype, resource.spec);
    if (const auto own = overrides.find(resource.resource_key); own != overrides.end()) {
      apply_overrides(resource.spec, own->second, str_cat("resources.", own->first));
    }
    const auto& kv = std::get<KVSpec>(resource.spec);
    plan.push_back({str_cat(resource.resource_key, " pool"),
                    kv.max_num_pages * kv.page_size * kv.num_layers * kv.num_kv_heads *
                        kv.head_dim * 2 * element_bytes(kv.dtype)});
  }
  return plan;
}

int64_t total_bytes(const std::vector<MemoryItem>& plan) {
  int64_t total = 0;
  for (const MemoryItem& item : plan) {
    total += item.size_bytes;
  }
  return total;
}

void check_memory(const std::vector<MemoryItem>& plan, int64_t available) {
  const int64_t needed = total_bytes(plan);
  if (available <= 0 || needed <= available) {
    return;
  }
  std::vector<std::string> items;
  for (const MemoryItem& item : plan) {
    items.push_back(str_cat(item.what, " ", gigabytes(item.size_bytes)));
  }
  throw Error(ErrorCode::kUnavailable,
              str_cat("[memory] needs ",
                      gigabytes(needed),
                      ", have ",
                      gigabytes(available),
                      " (",
                      str_join(items, ", "),
                      "): take --quantization int8, fewer --outputs, a lower --max-num-seqs or "
                      "--max-model-len, or a larger machine; --memory-gb overrides what there is"));
}

}  // namespace mstar

#include "mstar/cli/golden/registry.h"

#include <algorithm>

#include "mstar/base/json.h"

namespace mstar::golden {

std::vector<std::pair<std::string, const Runner*>> Registry::find(const GoldenCase& golden) const {
  std::vector<std::string> names = golden.classes;
  if (const Json* function = golden.config.find("function")) {
    names.push_back(function->get_string());
  }
  std::vector<std::pair<std::string, const Runner*>> runners;
  for (const std::string& name : names) {
    const auto found = classes_.find(name);
    if (found == classes_.end()) {
      return {};
    }
    runners.emplace_back(name, &found->second);
  }
  if (!names.empty()) {
    return runners;
  }
  size_t longest = 0;
  for (const auto& [prefix, runner] : prefixes_) {
    if (golden.name.starts_with(prefix)) {
      longest = std::max(longest, prefix.size());
    }
  }
  for (const auto& [prefix, runner] : prefixes_) {
    if (prefix.size() == longest && golden.name.starts_with(prefix)) {
      runners.emplace_back(prefix, &runner);
    }
  }
  return runners;
}

Registry build_registry() {
  Registry registry;
  add_norm_kinds(registry);
  add_mlp_kinds(registry);
  add_moe_kinds(registry);
  add_rope_kinds(registry);
  add_attention_kinds(registry);
  add_paged_kinds(registry);
  add_stream_kinds(registry);
  add_parallel_kinds(registry);
  add_checkpoint_kinds(registry);
  add_cosmos3_parts_kinds(registry);
  add_cosmos3_transformer_kinds(registry);
  add_cosmos3_codec_kinds(registry);
  add_cosmos3_pipeline_kinds(registry);
  add_cosmos3_reasoner_kinds(registry);
  add_cosmos3_window_kinds(registry);
  add_sampler_kinds(registry);
  add_whisper_kinds(registry);
  add_lm_kinds(registry);
  add_tokenizer_kinds(registry);
  return registry;
}

}  // namespace mstar::golden

#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/cli/golden/golden_case.h"

namespace mstar::golden {

// Computes one case and reports through `result`. Throwing fails the case.
using Runner =
    std::function<void(const GoldenCase& golden, RunContext& context, CaseResult& result)>;

// Which code computes which case. A case whose config names classes is run once per class; the
// others are found by the beginning of their names. Filled once by build_registry(), then read.
class Registry {
 public:
  // For config.class (config.function too).
  void add_class(std::string name, Runner runner) { classes_[std::move(name)] = std::move(runner); }

  // For names that begin so. The longest matching prefix wins; several runners of the same prefix
  // all run, each for its part of the outputs.
  void add_prefix(std::string prefix, Runner runner) {
    prefixes_.emplace_back(std::move(prefix), std::move(runner));
  }

  // Every runner the case needs with the variant it computes; empty when the case is of an unknown
  // kind.
  std::vector<std::pair<std::string, const Runner*>> find(const GoldenCase& golden) const;

 private:
  std::map<std::string, Runner, std::less<>> classes_;
  std::vector<std::pair<std::string, Runner>> prefixes_;
};

// All kinds there are. New ones: a file with an add_…_kinds() function, and its line here.
Registry build_registry();

void add_norm_kinds(Registry& registry);
void add_mlp_kinds(Registry& registry);
void add_moe_kinds(Registry& registry);
void add_rope_kinds(Registry& registry);
void add_attention_kinds(Registry& registry);
void add_paged_kinds(Registry& registry);
void add_stream_kinds(Registry& registry);
void add_parallel_kinds(Registry& registry);
void add_checkpoint_kinds(Registry& registry);
void add_cosmos3_parts_kinds(Registry& registry);
void add_cosmos3_transformer_kinds(Registry& registry);
void add_cosmos3_codec_kinds(Registry& registry);
void add_cosmos3_pipeline_kinds(Registry& registry);
void add_cosmos3_reasoner_kinds(Registry& registry);
void add_cosmos3_window_kinds(Registry& registry);
void add_sampler_kinds(Registry& registry);
void add_whisper_kinds(Registry& registry);
void add_lm_kinds(Registry& registry);
void add_tokenizer_kinds(Registry& registry);

}  // namespace mstar::golden

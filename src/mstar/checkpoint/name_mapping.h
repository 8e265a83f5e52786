#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mstar {

// Patterns are dotted names, compared component by component: "*" stands for any one component
// ("model.layers.*.mlp"). A pattern matches a run of whole components anywhere in a name; "^" in
// front ties it to the start, "$" behind to the end. So "up_proj" never matches "gate_up_proj".
// In replacements each "*" gives back, in order, what a "*" of the pattern stood for.

// Replaces the first matching run. An empty `to` removes it.
struct RenameRule {
  std::string from;
  std::string to;
};

// The checkpoint's `source` is one shard of our parameter `target`:
//   {"qkv_proj", "q_proj", "q"}, {"experts.gate_up_proj", "experts.*.gate_proj.weight", "gate:*"}
struct StackedParamRule {
  std::string target;
  std::string source;
  std::string shard_id;
};

// How the names of a checkpoint become ours: `skip` first, then the first rename rule that
// matches, then the first stacked rule that matches. Plain data, set up per model.
struct NameMapping {
  std::vector<std::string> skip;  // tensors that carry nothing for us
  std::vector<RenameRule> rename;
  std::vector<StackedParamRule> stacked;
};

struct MappedName {
  bool skipped = false;
  std::string name;      // our parameter
  std::string shard_id;  // empty: the whole parameter
};

MappedName map_name(const NameMapping& mapping, std::string_view checkpoint_name);

// Whether `pattern` (as above) matches somewhere in `name`.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace mstar

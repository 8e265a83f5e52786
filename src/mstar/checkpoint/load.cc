#include "mstar/checkpoint/load.h"

#include <algorithm>
#include <unordered_map>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

const char* kind_name(LoadProblem::Kind kind) {
  switch (kind) {
    case LoadProblem::Kind::kMissing: return "missing";
    case LoadProblem::Kind::kUnknown: return "unknown";
    case LoadProblem::Kind::kBadShape: return "wrong shape";
    case LoadProblem::Kind::kBadType: return "wrong type";
    case LoadProblem::Kind::kRepeated: return "repeated";
  }
  return "";
}

std::string shard_text(const std::string& parameter, const std::string& shard_id) {
  return shard_id.empty() ? parameter : str_cat(parameter, " (shard \"", shard_id, "\")");
}

// Why the tensor cannot be loaded; no detail when it can.
LoadProblem examine(const TensorInfo& tensor, const LoadTarget& target, const MappedName& mapped) {
  const Parameter& parameter = *target.parameter;
  Misfit misfit = parameter.misfit(tensor.shape, tensor.dtype, mapped.shard_id);
  LoadProblem problem;
  problem.detail = std::move(misfit.detail);
  switch (misfit.kind) {
    case Misfit::Kind::kShape: problem.kind = LoadProblem::Kind::kBadShape; return problem;
    case Misfit::Kind::kType: problem.kind = LoadProblem::Kind::kBadType; return problem;
    case Misfit::Kind::kShard:
      problem.kind = LoadProblem::Kind::kUnknown;
      problem.detail = str_cat(target.name, " has ", problem.detail);
      return problem;
    case Misfit::Kind::kNone: break;
  }
  // One shard, a group of them ("gate:"), or with "" all.
  const int only = parameter.find_shard(mapped.shard_id);
  bool taken = false;
  for (size_t shard = 0; shard < parameter.shards().size(); ++shard) {
    const bool is_meant = only >= 0 ? static_cast<int>(shard) == only
                                    : parameter.shards()[shard].id.starts_with(mapped.shard_id);
    taken = taken || (is_meant && parameter.is_loaded(static_cast<int>(shard)));
  }
  if (taken) {
    problem.kind = LoadProblem::Kind::kRepeated;
    problem.detail =
        str_cat(shard_text(target.name, mapped.shard_id), " is already filled by another tensor");
  }
  return problem;
}

std::string nearest_target(const std::string& name, std::span<const LoadTarget> targets) {
  // Same last components are what a wrong prefix looks like.
  std::string best;
  size_t best_length = 0;
  for (const LoadTarget& target : targets) {
    const auto [a, b] =
        std::ranges::mismatch(name.rbegin(), name.rend(), target.name.rbegin(), target.name.rend());
    const auto length = static_cast<size_t>(a - name.rbegin());
    if (length > best_length) {
      best_length = length;
      best = target.name;
    }
  }
  return best_length >= 8 ? str_cat("; the nearest parameter is ", best) : "";
}

}  // namespace

std::string CompletenessReport::to_string(size_t max_lines) const {
  std::string text;
  for (size_t index = 0; index < problems.size() && index < max_lines; ++index) {
    const LoadProblem& problem = problems[index];
    if (index > 0) {
      text += '\n';
    }
    text += str_cat("[",
                    problem.file,
                    "] ",
                    kind_name(problem.kind),
                    " tensor \"",
                    problem.tensor,
                    "\"",
                    problem.detail.empty() ? "" : ": ",
                    problem.detail);
  }
  if (problems.size() > max_lines) {
    text += str_cat("\n… and ", problems.size() - max_lines, " more");
  }
  return text;
}

void CompletenessReport::throw_if_bad() const {
  if (!ok()) {
    throw Error(ErrorCode::kInvalidArgument, to_string());
  }
}

CompletenessReport load_parameters(const CheckpointReader& reader,
                                   std::span<const LoadTarget> targets,
                                   const NameMapping& mapping) {
  CompletenessReport report;
  std::unordered_map<std::string_view, const LoadTarget*> by_name;
  for (const LoadTarget& target : targets) {
    MSTAR_CHECK(by_name.emplace(target.name, &target).second, "two parameters ", target.name);
  }
  std::unordered_map<const LoadTarget*, bool> refused;  // reported already, so not missing too
  for (const TensorInfo& tensor : reader.tensors()) {
    const MappedName mapped = map_name(mapping, tensor.name);
    if (mapped.skipped) {
      ++report.num_skipped;
      continue;
    }
    const auto found = by_name.find(mapped.name);
    if (found == by_name.end()) {
      report.problems.push_back(
          {LoadProblem::Kind::kUnknown,
           reader.path_of(tensor),
           tensor.name,
           str_cat("no parameter takes it", nearest_target(mapped.name, targets))});
      continue;
    }
    const LoadTarget& target = *found->second;
    LoadProblem problem = examine(tensor, target, mapped);
    if (!problem.detail.empty()) {
      problem.file = reader.path_of(tensor);
      problem.tensor = tensor.name;
      report.problems.push_back(std::move(problem));
      refused[&target] = true;
      continue;
    }
    if (target.weight_loader) {
      target.weight_loader(*target.parameter, reader.get(tensor), mapped.shard_id);
    } else {
      target.parameter->load(reader.get(tensor), mapped.shard_id);
    }
    ++report.num_loaded;
  }
  const std::string where = reader.file_paths().size() == 1
                                ? reader.file_paths().front()
                                : str_cat(reader.file_paths().size(), " checkpoint files");
  for (const LoadTarget& target : targets) {
    const Parameter& parameter = *target.parameter;
    if (parameter.is_complete() || refused.contains(&target)) {
      continue;
    }
    for (size_t index = 0; index < parameter.shards().size(); ++index) {
      const ShardSpec& spec = parameter.shards()[index];
      if (!parameter.is_loaded(static_cast<int>(index)) && !spec.optional) {
        report.problems.push_back(
            {LoadProblem::Kind::kMissing,
             where,
             target.name,
             str_cat(spec.id.empty() ? "" : str_cat("shard \"", spec.id, "\", "),
                     "expected ",
                     to_string(spec.shape))});
      }
    }
  }
  return report;
}

void load_strictly(const CheckpointReader& reader,
                   std::span<const LoadTarget> targets,
                   const NameMapping& mapping) {
  load_parameters(reader, targets, mapping).throw_if_bad();
}

}  // namespace mstar

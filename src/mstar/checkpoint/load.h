#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"
#include "mstar/checkpoint/name_mapping.h"
#include "mstar/checkpoint/parameter.h"

namespace mstar {

// What is wrong between a checkpoint and the parameters it should fill.
struct LoadProblem {
  enum class Kind : uint8_t { kMissing, kUnknown, kBadShape, kBadType, kRepeated };

  Kind kind = Kind::kMissing;
  std::string file;    // where the tensor is, or should be
  std::string tensor;  // its name in the checkpoint; a missing one: our parameter and shard
  std::string detail;  // what was found and expected
};

// Every problem of one load, nothing left out. Empty: the checkpoint and the model are one.
struct CompletenessReport {
  std::vector<LoadProblem> problems;
  int64_t num_loaded = 0;   // tensors of the checkpoint that went into parameters
  int64_t num_skipped = 0;  // by the mapping's skip list

  bool ok() const { return problems.empty(); }

  // One line a problem, the first `max_lines` of them, then how many more there are.
  std::string to_string(size_t max_lines = 20) const;

  // Throws Error(kInvalidArgument) with to_string() when there are problems.
  void throw_if_bad() const;
};

// A parameter under its full name, and who takes its tensors. `load` is usually the module's
// weight_loader(); empty means Parameter::load.
struct LoadTarget {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  Parameter* parameter = nullptr;
  std::function<void(Parameter& parameter, const Tensor& loaded, const std::string& shard_id)>
      weight_loader;
};

// Fills the targets from the checkpoint: every tensor must go somewhere or be on the skip list,
// every piece of every parameter must come. Loads what fits and reports the rest; data is not
// touched, only mapped. Also see load_strictly().
CompletenessReport load_parameters(const CheckpointReader& reader,
                                   std::span<const LoadTarget> targets,
                                   const NameMapping& mapping);

// load_parameters, then throw_if_bad.
void load_strictly(const CheckpointReader& reader,
                   std::span<const LoadTarget> targets,
                   const NameMapping& mapping);

}  // namespace mstar

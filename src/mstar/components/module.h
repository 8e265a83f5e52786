#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/base/thread_pool.h"
#include "mstar/checkpoint/load.h"
#include "mstar/kernels/ops/matmul.h"

namespace mstar {

// How loaded tensors become what kernels read.
struct FinalizeOptions {
  ThreadPool& pool;
  WeightFormat weight_format = WeightFormat::kKeep;  // of matrices
  Activations activations = Activations::kExact;  // how block-quantized matrices meet their inputs
};

// A part of a model that owns weights. Parameters and children carry the names of the checkpoint,
// joined by dots: "self_attn.q_proj.weight". Life of a module: built from sizes, filled through
// load_targets(), turned into packed weights by finalize(), then only read (const). Children are
// members of their parent. Thread-compatible: after finalize() any number of threads may call
// forward() at the same time.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;

  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Every parameter of this module and its children, under its full name.
  std::vector<LoadTarget> load_targets(std::string_view prefix = {});

  // The parameter of that dotted name, or null.
  Parameter* find_parameter(std::string_view name);

  // Takes one tensor of the checkpoint for `param`; `shard_id` says which part of it, "" for all.
  // Throws Error(kInvalidArgument) for an unknown shard or another shape.
  virtual void weight_loader(Parameter& param,
                             const Tensor& loaded_weight,
                             std::string_view loaded_shard_id = {});

  // Packs what was loaded, children first, and lets go of the checkpoint's tensors. Once.
  void finalize(const FinalizeOptions& options);

 protected:
  // One piece, under its own name.
  Parameter& add_parameter(std::string name, const Shape& shape, ParameterKind kind);

  // Several pieces (checkpoint/parameter.h).
  Parameter& add_parameter(std::string name,
                           std::vector<ShardSpec> shards,
                           const Shape& whole,
                           ParameterKind kind);

  // `child` must be a member, or owned by one.
  void add_module(std::string name, Module& child);

  // How the child of that name is packed: a model may spare some a lossy format.
  virtual FinalizeOptions options_of_child(std::string_view name,
                                           const FinalizeOptions& options) const {
    (void)name;
    return options;
  }

  // Turns this module's own parameters into what forward() reads.
  virtual void pack(const FinalizeOptions& options) { (void)options; }

 private:
  void collect(const std::string& prefix, std::vector<LoadTarget>& targets);

  std::deque<Parameter> parameters_;  // references stay valid
  std::vector<std::pair<std::string, Module*>> children_;
  bool finalized_ = false;
};

// The loaded vector of a parameter (norm weights, biases) as f32 or bf16, of its own memory;
// undefined when nothing was loaded. Releases the parameter.
Tensor take_vector(Parameter& parameter);

// All loaded pieces packed as one matrix. Releases the parameter. Throws
// Error(kUnsupported) when they have different element types.
PackedWeight take_packed(Parameter& parameter, const FinalizeOptions& options);

// Matrices of one element type and width, one below the other, where they lie: packing reads them
// as one.
struct StackedRows {
  std::vector<Tensor> parts;  // each [rows, width], dense rows

  bool defined() const { return !parts.empty(); }

  Shape shape() const;  // [all rows, width]
};

// The loaded matrices of several parameters; undefined when their element types differ.
StackedRows stack_rows(const std::vector<const Parameter*>& parameters);

}  // namespace mstar

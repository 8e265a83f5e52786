#include "mstar/components/module.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

std::vector<LoadTarget> Module::load_targets(std::string_view prefix) {
  std::vector<LoadTarget> targets;
  collect(prefix.empty() ? std::string() : str_cat(prefix, "."), targets);
  return targets;
}

void Module::collect(const std::string& prefix, std::vector<LoadTarget>& targets) {
  for (Parameter& parameter : parameters_) {
    targets.push_back({prefix + parameter.name(),
                       &parameter,
                       [this](Parameter& param, const Tensor& loaded, const std::string& shard_id) {
                         weight_loader(param, loaded, shard_id);
                       }});
  }
  for (const auto& [name, child] : children_) {
    child->collect(str_cat(prefix, name, "."), targets);
  }
}

Parameter* Module::find_parameter(std::string_view name) {
  for (Parameter& parameter : parameters_) {
    if (parameter.name() == name) {
      return &parameter;
    }
  }
  for (const auto& [child_name, child] : children_) {
    if (name.size() > child_name.size() && name.starts_with(child_name) &&
        name[child_name.size()] == '.') {
      if (Parameter* found = child->find_parameter(name.substr(child_name.size() + 1))) {
        return found;
      }
    }
  }
  return nullptr;
}

void Module::weight_loader(Parameter& param,
                           const Tensor& loaded_weight,
                           std::string_view loaded_shard_id) {
  param.load(loaded_weight, loaded_shard_id);
}

void Module::finalize(const FinalizeOptions& options) {
  MSTAR_CHECK(!finalized_, "finalize() was called before");
  finalized_ = true;
  for (const auto& [name, child] : children_) {
    child->finalize(options_of_child(name, options));
  }
  pack(options);
}

Parameter& Module::add_parameter(std::string name, const Shape& shape, ParameterKind kind) {
  return parameters_.emplace_back(std::move(name), shape, kind);
}

Parameter& Module::add_parameter(std::string name,
                                 std::vector<ShardSpec> shards,
                                 const Shape& whole,
                                 ParameterKind kind) {
  return parameters_.emplace_back(std::move(name), std::move(shards), whole, kind);
}

void Module::add_module(std::string name, Module& child) {
  children_.emplace_back(std::move(name), &child);
}

Tensor take_vector(Parameter& parameter) {
  if (!parameter.is_complete()) {
    return Tensor();
  }
  std::vector<Tensor> pieces;
  for (const Tensor& piece : parameter.pieces()) {
    pieces.push_back(piece.dtype() == DType::kF16 ? piece.to(DType::kF32) : piece);
  }
  bool one_type = true;
  for (const Tensor& piece : pieces) {
    one_type = one_type && piece.dtype() == pieces.front().dtype();
  }
  int64_t size = 0;
  for (const Tensor& piece : pieces) {
    size += piece.dim(0);
  }
  const DType dtype = one_type ? pieces.front().dtype() : DType::kF32;
  Tensor joined = Tensor::empty({size}, dtype);
  std::byte* target = joined.bytes();
  for (const Tensor& piece : pieces) {
    const Tensor dense = piece.to(dtype);
    std::copy_n(dense.bytes(), dense.size_bytes(), target);
    target += dense.size_bytes();
  }
  parameter.release();
  return joined;
}

namespace {

// The pieces that came, as [rows, width] with dense rows.
std::vector<Tensor> matrices_of(const Parameter& parameter) {
  std::vector<Tensor> parts;
  for (const Tensor& piece : parameter.pieces()) {
    if (piece.defined()) {
      parts.push_back(piece.has_dense_rows() ? piece : piece.copy());
    }
  }
  return parts;
}

}  // namespace

PackedWeight take_packed(Parameter& parameter, const FinalizeOptions& options) {
  MSTAR_CHECK(parameter.is_complete(), parameter.name(), " was not loaded");
  const int count = static_cast<int>(parameter.pieces().size());
  if (!parameter.have_one_dtype(0, count)) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[",
                        parameter.name(),
                        "] its parts have different element types; store "
                        "them in one type"));
  }
  PackedWeight packed = PackedWeight::pack(
      matrices_of(parameter), options.pool, options.weight_format, options.activations);
  parameter.release();
  return packed;
}

Shape StackedRows::shape() const {
  Shape shape = parts.front().shape();
  for (size_t index = 1; index < parts.size(); ++index) {
    shape[0] += parts[index].dim(0);
  }
  return shape;
}

StackedRows stack_rows(const std::vector<const Parameter*>& parameters) {
  StackedRows stack;
  for (const Parameter* parameter : parameters) {
    MSTAR_CHECK(parameter->is_complete(), parameter->name(), " was not loaded");
    for (Tensor& part : matrices_of(*parameter)) {
      if (stack.defined() && part.dtype() != stack.parts.front().dtype()) {
        return {};
      }
      stack.parts.push_back(std::move(part));
    }
  }
  return stack;
}

}  // namespace mstar

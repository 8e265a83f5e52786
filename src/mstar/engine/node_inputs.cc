#include "mstar/engine/node_inputs.h"

#include <cstring>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

Tensor copy_if_defined(const Tensor& tensor) {
  return tensor.defined() ? tensor.copy() : tensor;
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kInternal, str_cat("[collate] ", what));
}

// All or none of the tensors must be there.
TensorList column(std::span<const ARNodeInputs* const> inputs,
                  const char* name,
                  const auto& field_of) {
  TensorList list;
  for (const ARNodeInputs* one : inputs) {
    if (Tensor tensor = field_of(*one); tensor.defined()) {
      list.push_back(std::move(tensor));
    }
  }
  if (!list.empty() && list.size() != inputs.size()) {
    fail(str_cat("only ", list.size(), " of ", inputs.size(), " requests have ", name));
  }
  return list;
}

Tensor joined(const TensorList& list, StackingMethod method, int dim, const char* name) {
  if (list.empty() || method == StackingMethod::kNone) {
    return {};
  }
  const Tensor& first = list.front();
  if (method == StackingMethod::kStack) {
    Shape shape = {static_cast<int64_t>(list.size())};
    for (const int64_t size : first.shape()) {
      shape.push_back(size);
    }
    Tensor out = Tensor::empty(shape, first.dtype());
    for (size_t index = 0; index < list.size(); ++index) {
      if (!(list[index].shape() == first.shape()) || list[index].dtype() != first.dtype()) {
        fail(str_cat(name, " of different shapes cannot be stacked"));
      }
      const Tensor source = list[index].copy();
      std::memcpy(out.bytes() + static_cast<int64_t>(index) * source.size_bytes(),
                  source.bytes(),
                  static_cast<size_t>(source.size_bytes()));
    }
    return out;
  }
  Shape shape = first.shape();
  shape[dim] = 0;
  for (const Tensor& one : list) {
    if (one.num_dims() != first.num_dims() || one.dtype() != first.dtype()) {
      fail(str_cat(name, " of different ranks or types cannot be joined"));
    }
    shape[dim] += one.dim(dim);
  }
  Tensor out = Tensor::empty(shape, first.dtype());
  int64_t begin = 0;
  for (const Tensor& one : list) {
    // Rows of the leading dims (one for dim 0, three for 3-axis positions).
    const Tensor target = out.slice(dim, begin, begin + one.dim(dim));
    const Tensor source = one.copy();
    const int64_t outer = dim == 0 ? 1 : one.dim(0);
    const int64_t bytes = outer == 0 ? 0 : source.size_bytes() / outer;
    for (int64_t row = 0; row < outer && bytes > 0; ++row) {
      std::byte* to = dim == 0
                          ? target.bytes()
                          : target.bytes() + row * target.stride(0) * element_bytes(one.dtype());
      std::memcpy(to, source.bytes() + row * bytes, static_cast<size_t>(bytes));
    }
    begin += one.dim(dim);
  }
  return out;
}

}  // namespace

void NodeInputs::clone_tensors() {
  for (auto& [name, list] : tensor_inputs) {
    for (Tensor& tensor : list) {
      tensor = copy_if_defined(tensor);
    }
  }
}

std::unique_ptr<NodeInputs> NodeInputs::clone() const {
  auto copy = std::make_unique<NodeInputs>(*this);
  copy->clone_tensors();
  return copy;
}

std::unique_ptr<NodeInputs> ARNodeInputs::clone() const {
  auto copy = std::make_unique<ARNodeInputs>(*this);
  copy->clone_tensors();
  copy->input_ids = copy_if_defined(input_ids);
  copy->input_embeds = copy_if_defined(input_embeds);
  if (auto* one = std::get_if<Tensor>(&copy->custom_pos_ids)) {
    *one = copy_if_defined(*one);
  } else if (auto* labelled = std::get_if<LabelledPositions>(&copy->custom_pos_ids)) {
    for (auto& [label, tensor] : *labelled) {
      tensor = copy_if_defined(tensor);
    }
  }
  return copy;
}

CollatedInputs ARNodeInputs::collate(std::span<const ARNodeInputs* const> inputs,
                                     StackingMethod stacking_method) {
  CollatedInputs out;
  for (const ARNodeInputs* one : inputs) {
    out.total_seq_len += one->input_seq_len;
  }
  out.input_ids =
      column(inputs, "input_ids", [](const ARNodeInputs& one) { return one.input_ids; });
  out.input_embeds =
      column(inputs, "input_embeds", [](const ARNodeInputs& one) { return one.input_embeds; });
  out.custom_pos_ids = column(inputs, "custom_pos_ids", [](const ARNodeInputs& one) {
    const Tensor* positions = std::get_if<Tensor>(&one.custom_pos_ids);
    return positions != nullptr ? *positions : Tensor();
  });
  out.joined_input_ids = joined(out.input_ids, stacking_method, 0, "input_ids");
  out.joined_input_embeds = joined(out.input_embeds, stacking_method, 0, "input_embeds");
  const int position_dim = out.custom_pos_ids.empty() ? 0 : out.custom_pos_ids[0].num_dims() - 1;
  out.joined_pos_ids = joined(out.custom_pos_ids, stacking_method, position_dim, "custom_pos_ids");
  return out;
}

}  // namespace mstar

#include "mstar/engine/batched_model_output.h"

#include <algorithm>

#include "mstar/base/check.h"

namespace mstar {

int64_t BatchedModelOutput::row_of(RequestHandle request, size_t position) const {
  if (!row_request_ids) {
    return static_cast<int64_t>(position);
  }
  const auto found = std::ranges::find(*row_request_ids, request);
  MSTAR_CHECK(found != row_request_ids->end(), "no row for request ", request);
  return found - row_request_ids->begin();
}

BatchedModelOutput BatchedModelOutput::coerce(
    std::unordered_map<RequestHandle, NamedTensors> outputs) {
  BatchedModelOutput out;
  out.per_rid_outputs = std::move(outputs);
  return out;
}

const NamedTensors* BatchedModelOutput::get(RequestHandle request) const {
  const auto it = per_rid_outputs.find(request);
  return it == per_rid_outputs.end() ? nullptr : &it->second;
}

NamedTensors BatchedModelOutput::pop(RequestHandle request) {
  auto node = per_rid_outputs.extract(request);
  return node.empty() ? NamedTensors() : std::move(node.mapped());
}

void BatchedModelOutput::update(BatchedModelOutput other) {
  for (auto& [request, tensors] : other.per_rid_outputs) {
    NamedTensors& mine = per_rid_outputs[request];
    for (auto& [name, list] : tensors) {
      mine.set(name, std::move(list));
    }
  }
  for (auto& [name, list] : other.packed_outputs) {
    packed_outputs.set(name, std::move(list));
  }
  if (other.check_stop_buffers) {
    check_stop_buffers = std::move(other.check_stop_buffers);
  }
  if (other.row_outputs) {
    row_outputs = std::move(other.row_outputs);
    row_request_ids = std::move(other.row_request_ids);
  }
}

std::optional<NamedTensors> BatchedModelOutput::clone_check_stop_buffers() const {
  if (!check_stop_buffers) {
    return std::nullopt;
  }
  NamedTensors copies;
  for (const auto& [name, list] : *check_stop_buffers) {
    TensorList copied;
    for (const Tensor& tensor : list) {
      copied.push_back(tensor.copy());
    }
    copies.set(name, std::move(copied));
  }
  return copies;
}

NamedTensors BatchedModelOutput::clone_row_outputs(int64_t num_rows) const {
  NamedTensors copies;
  if (row_outputs) {
    for (const auto& [name, list] : *row_outputs) {
      TensorList copied;
      for (const Tensor& tensor : list) {
        copied.push_back(tensor.slice(0, 0, std::min(num_rows, tensor.dim(0))).copy());
      }
      copies.set(name, std::move(copied));
    }
  }
  return copies;
}

}  // namespace mstar

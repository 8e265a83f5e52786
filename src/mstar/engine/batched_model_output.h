#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "mstar/engine/named_tensors.h"
#include "mstar/resources/step.h"

namespace mstar {

// One step's outputs, split by how they are addressed. Thread-compatible.
struct BatchedModelOutput {
  // By request.
  std::unordered_map<RequestHandle, NamedTensors> per_rid_outputs;

  // Whole batch tensors that a captured forward made, which unpack_packed_outputs cuts.
  NamedTensors packed_outputs;

  // What the stop check reads: batch tensors whose row i belongs to request i of the step. Absent:
  // the per-request outputs.
  std::optional<NamedTensors> check_stop_buffers;

  // Outputs as batch tensors with row i for request i: the engine copies each once and hands out
  // views of rows.
  std::optional<NamedTensors> row_outputs;
  std::optional<std::vector<RequestHandle>> row_request_ids;  // default: the step's order

  // Row of `request` in the row-addressed outputs; `position` is its place in the step.
  int64_t row_of(RequestHandle request, size_t position) const;

  // From the plain form a forward may return.
  static BatchedModelOutput coerce(std::unordered_map<RequestHandle, NamedTensors> outputs);

  // Null when the request has none. Row-addressed outputs do not count.
  const NamedTensors* get(RequestHandle request) const;

  // Takes one request's outputs out; row-addressed tensors stay.
  NamedTensors pop(RequestHandle request);

  // Adds another step's outputs; a request in both keeps the other's values for equal names.
  void update(BatchedModelOutput other);

  // What check_stop_batched reads, or null.
  const NamedTensors* get_check_stop_input() const {
    return check_stop_buffers ? &*check_stop_buffers : nullptr;
  }

  // Detached copies: the next replay overwrites a captured graph's buffers before they are read.
  // `num_rows` leaves padding rows out.
  std::optional<NamedTensors> clone_check_stop_buffers() const;
  NamedTensors clone_row_outputs(int64_t num_rows) const;
};

// A step's row-addressed outputs on the host. Row i of every buffer belongs to request_ids[i]; a
// padded replay may leave further rows.
struct HostRows {
  std::span<const RequestHandle> request_ids;
  const NamedTensors& buffers;
};

}  // namespace mstar

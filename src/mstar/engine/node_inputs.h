#pragma once

#include <any>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "mstar/engine/named_tensors.h"
#include "mstar/engine/request_state.h"

namespace mstar {

// One request's prepared inputs to one step of one node: what prepare_inputs returns and
// declare_step, preprocess and postprocess read. Thread-compatible.
struct NodeInputs {
  NodeInputs() = default;
  virtual ~NodeInputs() = default;
  NodeInputs(const NodeInputs&) = default;
  NodeInputs& operator=(const NodeInputs&) = default;

  NamedTensors tensor_inputs;
  ValueMap kwargs;
  std::any resource_step_info;  // what declare_step needs beyond the length
  int64_t input_seq_len = 0;    // tokens this step adds, for planning

  // A copy whose tensors are copies too, so that a capture's template may be used again.
  virtual std::unique_ptr<NodeInputs> clone() const;

 protected:
  void clone_tensors();
};

enum class StackingMethod : uint8_t {
  kNone,   // keep a list
  kCat,    // join along dim 0
  kStack,  // a new dim 0; shapes must agree
};

struct ARNodeInputs;

// Several requests' inputs as one. Lists are parallel to the requests; under kCat and kStack the
// joined tensors are in `joined`.
struct CollatedInputs {
  TensorList input_ids;  // empty when absent in all; an error when only some have it
  TensorList input_embeds;
  TensorList custom_pos_ids;
  int64_t total_seq_len = 0;
  Tensor joined_input_ids;  // undefined under kNone
  Tensor joined_input_embeds;
  Tensor joined_pos_ids;
};

// For language models: ids or embeddings (usually one of them) and positions, with
// input_seq_len set.
struct ARNodeInputs : NodeInputs {
  Tensor input_ids;     // [input_seq_len] i32, or undefined
  Tensor input_embeds;  // [input_seq_len, hidden_size], or undefined

  using LabelledPositions = std::map<std::string, Tensor>;
  // Explicit positions: none, one tensor ([n] or [3, n]), or one a label.
  std::variant<std::monostate, Tensor, LabelledPositions> custom_pos_ids;

  std::unique_ptr<NodeInputs> clone() const override;

  // Throws Error(kInternal) when the requests do not fit together: some with ids and some
  // without, shapes that cannot be stacked.
  static CollatedInputs collate(std::span<const ARNodeInputs* const> inputs,
                                StackingMethod stacking_method = StackingMethod::kNone);
};

}  // namespace mstar

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mstar/engine/named_tensors.h"
#include "mstar/engine/node_inputs.h"
#include "mstar/resources/step.h"
#include "mstar/tensor/stream.h"

namespace mstar {

class NodeResources;

// What a submodule wants captured at warm-up: one or more buckets of (rows, tokens). Load time.
struct CaptureConfig {
  enum class Kind : uint8_t {
    kBatched,  // every row has `seq_len` tokens (decode, denoise); padding rows are template rows
               // with real spans
    kPacked,   // rows of any length up to the bucket's tokens (prefill); padding rows are empty
  };

  Kind kind = Kind::kBatched;
  std::string capture_graph_walk;
  std::vector<std::string> replay_graph_walks;  // further walks served by the same capture
  CaptureKey capture_key;
  std::vector<int> capture_batch_sizes = {1, 2, 4, 8, 16};
  int64_t seq_len = 1;                              // kBatched: tokens a row
  std::vector<int64_t> capture_token_lengths = {};  // kPacked
  // Template inputs of one row of `seq_len` tokens (kBatched), or of the given length (kPacked).
  std::function<std::unique_ptr<NodeInputs>(int64_t seq_len)> make_node_input;
  bool caps_eager_batch_size = true;  // the largest captured batch bounds eager steps too
  // Packed tokens for each token of a row: 2 where both guidance branches are in one step.
  int64_t tokens_multiplier = 1;
  // kBatched: recorded when a batch first asks for it, not at warm-up: one of just its size, or one
  // that fills `least_fill` of it. For steps so long, or so seldom, that recording, which runs them
  // once, would hold up the start. Its padding rows keep no pages.
  bool lazy = false;
  // kBatched: the share of a bucket's rows that a batch must fill to be replayed by it; smaller
  // ones run eagerly. For buckets so large that padding costs more than a capture saves.
  double least_fill = 0.0;

  // Whether a batch of `bs` rows may use a bucket of `bucket_bs`.
  bool fills(int bs, int bucket_bs) const {
    return bs <= bucket_bs && static_cast<double>(bs) >= least_fill * bucket_bs;
  }
};

// What the captured function of a region gets: its static inputs and the node's resources.
struct PiecewiseCallInputs {
  NamedTensors& tensors;
  const NodeResources& resources;
  const StepContext& context;
  Stream& stream;
};

// One inner function of a submodule's forward that is captured by itself, while the rest stays
// eager. It declares, plans and commits its own step at every call.
struct PiecewiseConfig {
  std::string label;  // "block_loop"
  std::vector<int> capture_batch_sizes = {1, 2, 4, 8};
  std::vector<int64_t> capture_token_lengths;  // empty: seq_len tokens a row
  int64_t seq_len = 1;
  std::function<NamedTensors(int batch_size, int64_t num_tokens)> make_static_inputs;
  std::function<NamedTensors(const PiecewiseCallInputs&)> capture_fn;
  // May be empty: the region touches no resources.
  std::function<
      bool(std::span<const RequestHandle>, std::span<const int64_t> seq_lens, SubmoduleStep&)>
      declare_step;
};

}  // namespace mstar

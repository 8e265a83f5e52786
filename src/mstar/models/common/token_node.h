#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mstar/engine/submodule.h"

namespace mstar {

// Tokens that end the text: a std::vector<int32_t> in CurrentForwardPassInfo::values.
inline constexpr std::string_view kStopTokenIds = "stop_token_ids";

// Rows of activations that captured steps keep for good, for memory plans: sizes up to 16 rows
// share theirs, 32 and 64 have their own when they come.
inline constexpr int64_t kCapturedTokenRows = 16 + 32 + 64;

// What the nodes that draw one token a step have in common: batches of any requests, decode steps
// captured, the end at a stop token, log-probabilities for who wants them, and no token drawn from
// values that are none. A model says how a step computes (draw) and what it declares.
//   out  new_token       [1] i32
//        token_logprobs  where the request asks for them (token_logprobs.h)
class TokenNodeSubmodule : public ARNodeSubmodule {
 public:
  // `decode_walk` is the walk of one token a request, `decode_loop` its loop.
  TokenNodeSubmodule(std::string decode_walk, std::string decode_loop)
      : decode_walk_(std::move(decode_walk)), decode_loop_(std::move(decode_loop)) {}

  bool can_batch(const ExecutingBatch& batch, std::span<NodeInputs* const> inputs) override;

  // Steps with rows that want log-probabilities run eagerly: their logits leave the step.
  bool can_use_graph_capture(const ExecutingBatch& batch,
                             std::span<NodeInputs* const> inputs) override;

  NamedTensors forward(std::string_view graph_walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) final;

  BatchedModelOutput forward_batched(std::string_view graph_walk,
                                     const ModelInputsFromEngine& engine_inputs,
                                     ForwardArgs& args) final;

  // Fails a request whose last hidden state is not finite, and turns the logits that forward left
  // in the outputs into log-probabilities. The hidden states of a batch are checked with its stops.
  void postprocess(const CurrentForwardPassInfo& info,
                   NamedTensors& outputs,
                   const NodeInputs* inputs) override;

  // Ends the decode loop at one of kStopTokenIds.
  void check_stop(const CurrentForwardPassInfo& info,
                  const NamedTensors& outputs,
                  const InputMetadata& metadata,
                  std::vector<std::string_view>& stopped_loops) override;
  bool check_stop_batched(std::span<const CurrentForwardPassInfo* const> infos,
                          const HostRows& rows,
                          std::span<const InputMetadata> metadata,
                          std::span<std::vector<std::string_view>> stopped) override;

  std::vector<CaptureConfig> get_capture_configs(Device device, int tp_world_size) override;

 protected:
  // What one step drew. Entry i of the tensors belongs to the step's row drawing[i]: all rows but
  // those that are chunks and not a prompt's last.
  struct Drawn {
    std::vector<int64_t> drawing;
    Tensor tokens;               // [drawing] i32; undefined when no row draws
    Tensor hidden;               // [drawing, hidden_size] that they were drawn from
    std::vector<Tensor> logits;  // [drawing], see keep_logits()
    std::string_view output = "new_token";
  };

  virtual Drawn draw(std::string_view graph_walk,
                     const ModelInputsFromEngine& engine_inputs,
                     ForwardArgs& args) = 0;

  // Row `row`'s logits where its request wants log-probabilities, else undefined: copies, for a
  // sampler changes its logits in place. `logits` [drawing, vocab].
  static std::vector<Tensor> keep_logits(const ModelInputsFromEngine& engine_inputs,
                                         const std::vector<int64_t>& drawing,
                                         const Tensor& logits);

 private:
  const std::string decode_walk_;
  const std::string decode_loop_;
};

}  // namespace mstar

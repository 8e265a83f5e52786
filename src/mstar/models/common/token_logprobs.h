#pragma once

#include <cstdint>
#include <string_view>

#include "mstar/engine/named_tensors.h"

// Log-probabilities of drawn tokens, as text nodes make them and text streams read them. They are
// natural logarithms of the model's own distribution: before penalties, bias and temperature.
namespace mstar {

// The most alternatives a request may ask for.
inline constexpr int32_t kMaxTopLogprobs = 20;

// CurrentForwardPassInfo::values: how many of the likeliest tokens are told beside the drawn one,
// an int32_t. Absent: no log-probabilities.
inline constexpr std::string_view kNumLogprobs = "num_logprobs";

// The edge from the node to the client. It carries {ids [1 + k] i32, logprobs [1 + k] f32}: the
// drawn token, then the k likeliest, likeliest first, ties by the smaller id.
inline constexpr std::string_view kLogprobsEdge = "token_logprobs";

// What that edge carries for one drawn token. `logits` [1, vocab] f32 on the host; k is cut to the
// vocabulary. NaN counts as minus infinity.
TensorList token_logprobs(const Tensor& logits, int32_t token, int32_t num_top);

// Throws Error(kInternal) naming `where` when a row that logits are made of has a value that is
// none: drawing from it would give nonsense without a word. f32 or bf16, on the host.
void require_finite(const Tensor& hidden, std::string_view where);

}  // namespace mstar

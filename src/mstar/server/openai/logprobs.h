#pragma once

#include <cstdint>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/engine/model.h"

// Log-probabilities of tokens in the shapes of the OpenAI API.
namespace mstar {

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}; null for none.
Json chat_logprobs(const std::vector<TokenLogprob>& tokens);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; null for none. `offset` is the
// number of characters of the answer before these tokens, and moves on.
Json completion_logprobs(const std::vector<TokenLogprob>& tokens, int64_t& offset);

}  // namespace mstar

#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace mstar {

// Which tokens may come next in one answer, as far as it is written: the sampler draws among them.
// Owned by one request's sampler row and used by the executor only, between two steps.
class TokenRules {
 public:
  virtual ~TokenRules() = default;

  // Back to the begin of the answer.
  virtual void reset() = 0;

  // Writes a bit for each token, token t at bit t % 32 of word t / 32, [ceil(vocab / 32)]. At least
  // one token of the vocabulary is allowed.
  virtual void fill_mask(std::span<uint32_t> mask) = 0;

  // The token that was drawn under the last mask.
  virtual void accept(int32_t token) = 0;
};

// What a request brings: makes the rules of its answer. Immutable, thread-safe.
class TokenRulesSource {
 public:
  virtual ~TokenRulesSource() = default;
  virtual std::unique_ptr<TokenRules> start() const = 0;
};

}  // namespace mstar

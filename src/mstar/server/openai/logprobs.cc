#include "mstar/server/openai/logprobs.h"

#include <cmath>

namespace mstar {

namespace {

// JSON has no infinity; this is what other servers send for a token that cannot come.
Json logprob_json(double logprob) {
  constexpr double kImpossible = -9999.0;
  return std::isfinite(logprob) ? logprob : kImpossible;
}

Json candidate_json(const TokenLogprob::Candidate& candidate) {
  Json bytes = Json::array();
  for (const char byte : candidate.bytes) {
    bytes.push_back(static_cast<int64_t>(static_cast<unsigned char>(byte)));
  }
  return Json::object({{"token", candidate.bytes},
                       {"logprob", logprob_json(candidate.logprob)},
                       {"bytes", std::move(bytes)}});
}

int64_t count_characters(std::string_view text) {
  int64_t count = 0;
  for (const char byte : text) {
    count += (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U ? 1 : 0;
  }
  return count;
}

}  // namespace

Json chat_logprobs(const std::vector<TokenLogprob>& tokens) {
  if (tokens.empty()) {
    return nullptr;
  }
  Json content = Json::array();
  for (const TokenLogprob& token : tokens) {
    Json one = candidate_json(token.token);
    Json top = Json::array();
    for (const TokenLogprob::Candidate& candidate : token.top) {
      top.push_back(candidate_json(candidate));
    }
    one.set("top_logprobs", std::move(top));
    content.push_back(std::move(one));
  }
  return Json::object({{"content", std::move(content)}, {"refusal", nullptr}});
}

Json completion_logprobs(const std::vector<TokenLogprob>& tokens, int64_t& offset) {
  if (tokens.empty()) {
    return nullptr;
  }
  Json texts = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const TokenLogprob& token : tokens) {
    texts.push_back(token.token.bytes);
    logprobs.push_back(logprob_json(token.token.logprob));
    offsets.push_back(offset);
    offset += token.is_shown ? count_characters(token.token.bytes) : 0;
    Json top = Json::object();
    top.set(token.token.bytes, logprob_json(token.token.logprob));
    for (const TokenLogprob::Candidate& candidate : token.top) {
      top.set(candidate.bytes, logprob_json(candidate.logprob));
    }
    tops.push_back(std::move(top));
  }
  return Json::object({{"tokens", std::move(texts)},
                       {"token_logprobs", std::move(logprobs)},
                       {"top_logprobs", std::move(tops)},
                       {"text_offset", std::move(offsets)}});
}

}  // namespace mstar

#include "mstar/text/detokenizer.h"

namespace mstar {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string Detokenizer::push(int32_t id) {
  if (tokenizer_->token(id).empty() || (skip_special_ && tokenizer_->is_special(id))) {
    return "";
  }
  if (!tokenizer_->can_stream()) {
    ids_.push_back(id);
    return push_whole();
  }
  bytes_.clear();
  tokenizer_->append_token_bytes(id, is_first_, bytes_);
  is_first_ = false;
  std::string out;
  stream_.push(bytes_, out);
  return out;
}

// The last token may still change its end, so text comes out one token late.
std::string Detokenizer::push_whole() {
  std::string text = tokenizer_->decode({ids_.data(), ids_.size() - 1});
  const std::string longer = tokenizer_->decode(ids_);
  size_t same = 0;
  while (same < text.size() && same < longer.size() && text[same] == longer[same]) {
    ++same;
  }
  while (same > 0 && same < longer.size() && is_utf8_continuation(longer[same])) {
    --same;
  }
  if (same <= released_.size()) {
    return "";
  }
  std::string out = longer.substr(released_.size(), same - released_.size());
  released_ += out;
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  stream_.finish(out);
  if (!ids_.empty()) {
    const std::string text = tokenizer_->decode(ids_);
    out = text.size() > released_.size() ? text.substr(released_.size()) : "";
    released_ = text;
  }
  return out;
}

}  // namespace mstar

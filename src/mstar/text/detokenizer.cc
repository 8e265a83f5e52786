#include "mstar/text/detokenizer.h"

namespace mstar {

namespace {

// Of a prompt, how many tokens tell how the next one is written: more than a character's bytes.
constexpr size_t kContextTokens = 8;

}  // namespace

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

bool Detokenizer::skips(int32_t id) const {
  return tokenizer_->token(id).empty() || (skip_special_ && tokenizer_->is_special(id));
}

void Detokenizer::follow(std::span<const int32_t> prompt) {
  size_t begin = prompt.size();
  size_t num_shown = 0;
  while (begin > 0 && num_shown < kContextTokens) {
    --begin;
    num_shown += skips(prompt[begin]) ? 0 : 1;
  }
  for (const int32_t id : prompt.subspan(begin)) {
    if (tokenizer_->can_stream()) {
      static_cast<void>(push(id));
    } else if (!skips(id)) {
      ids_.push_back(id);
    }
  }
  if (!ids_.empty()) {
    released_ = tokenizer_->decode(ids_);
  }
}

std::string Detokenizer::push(int32_t id) {
  if (skips(id)) {
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

std::string Detokenizer::bytes_of(int32_t id) const {
  std::string bytes;
  if (tokenizer_->is_special(id)) {
    bytes = tokenizer_->token(id);
  } else if (tokenizer_->can_stream()) {
    tokenizer_->append_token_bytes(id, is_first_, bytes);
  } else if (ids_.empty()) {
    bytes = tokenizer_->decode(std::span(&id, 1));
  } else {
    const int32_t both[] = {ids_.back(), id};
    const std::string before = tokenizer_->decode(std::span(both, 1));
    bytes = tokenizer_->decode(both);
    bytes.erase(0, bytes.starts_with(before) ? before.size() : 0);
  }
  return bytes;
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

std::string prompt_text(const std::shared_ptr<const Tokenizer>& tokenizer,
                        std::span<const int32_t> prompt) {
  if (!tokenizer->can_stream()) {
    return tokenizer->decode(prompt, true);
  }
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const int32_t id : prompt) {
    text += detokenizer.push(id);
  }
  return text;
}

}  // namespace mstar

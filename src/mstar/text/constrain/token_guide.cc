#include "mstar/text/constrain/token_guide.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

void merge(const TokenMask& from, std::span<uint32_t> to) {
  for (size_t word = 0; word < to.size(); ++word) {
    to[word] |= from[word];
  }
}

}  // namespace

size_t MaskCache::Hash::operator()(const Key& key) const {
  uint64_t hash = 0x9E3779B97F4A7C15ULL;
  for (const uint64_t word : key) {
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDULL;
    hash ^= hash >> 32;
  }
  return hash;
}

std::shared_ptr<const TokenMask> MaskCache::find(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = masks_.find(key);
  return found == masks_.end() ? nullptr : found->second;
}

void MaskCache::insert(const Key& key, std::shared_ptr<const TokenMask> mask) {
  const size_t size = 4 * mask->size() + 8 * key.size() + 64;
  const std::lock_guard lock(mutex_);
  if (size_bytes_ + size > max_bytes_) {
    masks_.clear();
    size_bytes_ = 0;
  }
  if (masks_.emplace(key, std::move(mask)).second) {
    size_bytes_ += size;
  }
}

TokenGuide::TokenGuide(std::shared_ptr<const TokenGrammar> grammar)
    : grammar_(std::move(grammar)), automaton_(*grammar_->grammar) {
  reset();
}

void TokenGuide::reset() {
  automaton_.clear();
  threads_.assign(1, JsonAutomaton::begin());
  num_accepted_ = 0;
}

void TokenGuide::fill_mask(std::span<uint32_t> mask) {
  MSTAR_CHECK(mask.size() == num_words(), mask.size(), " words, expected ", num_words());
  std::ranges::fill(mask, 0U);
  for (const JsonAutomaton::Frame& thread : threads_) {
    merge(*mask_of(thread), mask);
  }
  if (num_accepted_ == 0) {
    const TokenMask& never = grammar_->tokens->not_first();
    for (size_t word = 0; word < mask.size(); ++word) {
      mask[word] &= ~never[word];
    }
  }
  if (threads_.empty()) {
    merge(grammar_->tokens->stops(), mask);
  }
}

// Threads do not look at each other: the mask of a state is the union of its threads' masks.
std::shared_ptr<const TokenMask> TokenGuide::mask_of(const JsonAutomaton::Frame& thread) {
  const WrittenTokens& tokens = *grammar_->tokens;
  key_.assign(1, grammar_->id);
  automaton_.append_key(thread, tokens.all().max_depth(), key_);
  if (auto known = grammar_->cache->find(key_)) {
    return known;
  }
  ++num_computed_;
  auto mask = std::make_shared<TokenMask>(num_words());
  const uint32_t free = automaton_.free_characters(thread, WrittenTokens::kMaxCharacters);
  if (free > 0) {
    *mask = tokens.text_of_length(free);
  }
  walk(thread, free > 0 ? tokens.not_text() : tokens.all(), *mask);
  if (automaton_.may_end(thread)) {
    merge(tokens.stops(), *mask);
  }
  grammar_->cache->insert(key_, mask);
  return mask;
}

// Depth first. The threads of each byte on the way lie behind those of the byte before it.
void TokenGuide::walk(const JsonAutomaton::Frame& thread, const TokenTrie& trie, TokenMask& mask) {
  const size_t arena_size = automaton_.arena_size();
  scratch_.assign(1, thread);
  bases_.assign(trie.max_depth() + 2, 0);        // [depth] where its threads begin
  arena_sizes_.assign(trie.max_depth() + 1, 0);  // [depth] behind its step
  bases_[1] = 1;
  arena_sizes_[0] = arena_size;
  const std::vector<TokenTrie::Node>& nodes = trie.nodes();
  for (uint32_t at = 0; at < nodes.size();) {
    const TokenTrie::Node& node = nodes[at];
    const size_t depth = node.depth;
    automaton_.shrink_arena(arena_sizes_[depth - 1]);
    const size_t base = bases_[depth];
    scratch_.resize(base);
    for (size_t from = bases_[depth - 1]; from < base; ++from) {
      automaton_.step(scratch_[from], node.byte, base, scratch_);
    }
    if (scratch_.size() == base) {
      at = node.end;
      continue;
    }
    bases_[depth + 1] = scratch_.size();
    arena_sizes_[depth] = automaton_.arena_size();
    for (const int32_t token : trie.tokens_at(node)) {
      mask[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
    }
    ++at;
  }
  automaton_.shrink_arena(arena_size);
}

void TokenGuide::accept(int32_t token) {
  ++num_accepted_;
  const std::string_view bytes = grammar_->tokens->bytes(token);
  if (bytes.empty()) {
    threads_.clear();
    return;
  }
  // Each thread on its own, as its mask was made: the limit of their number must not drop all that
  // the mask allowed.
  JsonAutomaton::Threads next;
  for (const JsonAutomaton::Frame& thread : threads_) {
    scratch_.assign(1, thread);
    for (const char byte : bytes) {
      const size_t base = scratch_.size();
      for (size_t from = 0; from < base; ++from) {
        automaton_.step(scratch_[from], static_cast<uint8_t>(byte), base, scratch_);
      }
      scratch_.erase(scratch_.begin(), scratch_.begin() + static_cast<std::ptrdiff_t>(base));
    }
    for (const JsonAutomaton::Frame& frame : scratch_) {
      if (next.size() < JsonAutomaton::kMaxThreads &&
          std::ranges::find(next, frame) == next.end()) {
        next.push_back(frame);
      }
    }
  }
  threads_ = std::move(next);
  constexpr size_t kMaxArena = 4096;
  if (automaton_.arena_size() > kMaxArena) {
    automaton_.collect(threads_);
  }
}

TokenGrammars::TokenGrammars(std::shared_ptr<const Tokenizer> tokenizer,
                             int64_t vocab_size,
                             std::vector<int32_t> stop_tokens)
    : tokenizer_(std::move(tokenizer)),
      vocab_size_(vocab_size),
      stop_tokens_(std::move(stop_tokens)),
      cache_(std::make_shared<MaskCache>(kCacheBytes)) {}

std::shared_ptr<const TokenGrammar> TokenGrammars::get(const Json& schema,
                                                       const std::string& where) {
  const std::string text = schema.dump();
  if (text.size() > kMaxSchemaBytes) {
    throw Error(
        ErrorCode::kTooLarge,
        str_cat("[", where, "] has ", text.size(), " bytes, the limit is ", kMaxSchemaBytes));
  }
  // One schema at a time: compiling is milliseconds, and so is the vocabulary, once.
  const std::lock_guard lock(mutex_);
  if (const auto known = known_.find(text); known != known_.end()) {
    return known->second;
  }
  if (tokens_ == nullptr) {
    tokens_ = std::make_shared<const WrittenTokens>(*tokenizer_, vocab_size_, stop_tokens_);
  }
  auto made = std::make_shared<TokenGrammar>();
  made->id = next_id_++;
  made->grammar = compile_json_schema(schema, where, !tokens_->has_all_bytes());
  made->tokens = tokens_;
  made->cache = cache_;
  if (order_.size() >= kMaxGrammars) {
    known_.erase(order_.front());
    order_.erase(order_.begin());
  }
  known_.emplace(text, made);
  order_.push_back(text);
  return made;
}

}  // namespace mstar

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/text/constrain/json_automaton.h"
#include "mstar/text/constrain/token_trie.h"

namespace mstar {

// Masks of automaton states that were asked for before, of all grammars of a model. Bounded: when
// it is full it begins anew. Thread-safe.
class MaskCache {
 public:
  using Key = std::vector<uint64_t>;

  explicit MaskCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  std::shared_ptr<const TokenMask> find(const Key& key) const;
  void insert(const Key& key, std::shared_ptr<const TokenMask> mask);

 private:
  struct Hash {
    size_t operator()(const Key& key) const;
  };

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const TokenMask>, Hash> masks_;
  size_t size_bytes_ = 0;
};

// The documents of one grammar in the tokens of one vocabulary. Immutable but for its cache,
// thread-safe.
struct TokenGrammar {
  uint64_t id = 0;  // among the grammars that share the cache
  std::shared_ptr<const JsonGrammar> grammar;
  std::shared_ptr<const WrittenTokens> tokens;
  std::shared_ptr<MaskCache> cache;
};

// One answer that is being written: which tokens may come next. One thread at a time.
class TokenGuide {
 public:
  explicit TokenGuide(std::shared_ptr<const TokenGrammar> grammar);

  // Back to the begin of the answer.
  void reset();

  // The tokens that may come next, never none. `mask` has num_words() words.
  void fill_mask(std::span<uint32_t> mask);

  // Moves on by a token that the mask allowed. Any other ends the answer: then only the stop tokens
  // may come.
  void accept(int32_t token);

  size_t num_words() const { return grammar_->tokens->num_words(); }

  int64_t num_computed() const { return num_computed_; }  // masks that the cache did not have

 private:
  std::shared_ptr<const TokenMask> mask_of(const JsonAutomaton::Frame& thread);
  void walk(const JsonAutomaton::Frame& thread, const TokenTrie& trie, TokenMask& mask);

  std::shared_ptr<const TokenGrammar> grammar_;
  JsonAutomaton automaton_;
  JsonAutomaton::Threads threads_;
  int64_t num_accepted_ = 0;
  int64_t num_computed_ = 0;
  // Working memory.
  JsonAutomaton::Threads scratch_;
  std::vector<size_t> bases_;
  std::vector<size_t> arena_sizes_;
  MaskCache::Key key_;
};

// Makes grammars of schemas, for one model; remembers the latest. Thread-safe.
class TokenGrammars {
 public:
  static constexpr size_t kMaxSchemaBytes = 256 << 10;
  static constexpr size_t kMaxGrammars = 32;
  static constexpr size_t kCacheBytes = 64 << 20;

  // Nothing is computed before the first grammar is asked for.
  TokenGrammars(std::shared_ptr<const Tokenizer> tokenizer,
                int64_t vocab_size,
                std::vector<int32_t> stop_tokens);

  // `schema` as compile_json_schema() takes it. Throws as that does, and as WrittenTokens does.
  std::shared_ptr<const TokenGrammar> get(const Json& schema, const std::string& where);

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const int64_t vocab_size_;
  const std::vector<int32_t> stop_tokens_;
  const std::shared_ptr<MaskCache> cache_;
  std::mutex mutex_;
  std::shared_ptr<const WrittenTokens> tokens_;
  std::map<std::string, std::shared_ptr<const TokenGrammar>, std::less<>> known_;
  std::vector<std::string> order_;  // oldest first
  uint64_t next_id_ = 0;
};

}  // namespace mstar

#pragma once

// Hash table from token text to token id, built once and then only read.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mstar {

// 64-bit hash of short strings; not stable between versions, never stored.
uint64_t hash_bytes(std::string_view bytes);

// Thread-safe once filled.
class Vocabulary {
 public:
  // Room for this many tokens without growing.
  void reserve(size_t num_tokens, size_t num_bytes);

  // Adds a token; a text that is there already keeps its first id. True when it was new.
  bool add(std::string_view text, int32_t id);

  // Id of the token with this text, or -1.
  int32_t find(std::string_view text) const;

  size_t size() const { return num_tokens_; }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
    uint32_t offset = 0;
    uint32_t size = 0;
  };

  void grow(size_t num_slots);
  size_t probe(std::string_view text, uint64_t hash) const;

  std::vector<Slot> slots_;
  std::string bytes_;
  size_t num_tokens_ = 0;
};

}  // namespace mstar

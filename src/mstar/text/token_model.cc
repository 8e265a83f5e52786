#include "mstar/text/token_model.h"

#include <algorithm>
#include <cstring>

namespace mstar {

WordCache::WordCache() : entries_(kNumEntries) {}

bool WordCache::find(std::string_view word, uint64_t hash, std::vector<int32_t>& out) const {
  const Entry& entry = entries_[hash & (kNumEntries - 1)];
  if (entry.tag != static_cast<uint32_t>(hash >> 32) || entry.word_size != word.size() ||
      std::memcmp(entry.word, word.data(), word.size()) != 0) {
    return false;
  }
  out.insert(out.end(), entry.ids, entry.ids + entry.num_ids);
  return true;
}

void WordCache::insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
  if (word.size() > kMaxWordBytes || ids.size() > kMaxIds) {
    return;
  }
  Entry& entry = entries_[hash & (kNumEntries - 1)];
  entry.tag = static_cast<uint32_t>(hash >> 32);
  entry.word_size = static_cast<uint8_t>(word.size());
  entry.num_ids = static_cast<uint8_t>(ids.size());
  std::copy(word.begin(), word.end(), entry.word);
  std::copy(ids.begin(), ids.end(), entry.ids);
}

}  // namespace mstar

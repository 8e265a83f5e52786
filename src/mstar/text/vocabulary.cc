#include "mstar/text/vocabulary.h"

#include <bit>
#include <cstring>

namespace mstar {

namespace {

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
constexpr size_t kMinSlots = 64;

uint64_t mix(uint64_t value) {
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93u;
  value ^= value >> 32;
  return value;
}

}  // namespace

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size() * kMultiplier;
  const char* data = bytes.data();
  size_t left = bytes.size();
  while (left >= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    hash = mix(hash ^ word) * kMultiplier;
    data += 8;
    left -= 8;
  }
  if (left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, data, left);
    hash = mix(hash ^ word) * kMultiplier;
  }
  return mix(hash);
}

void Vocabulary::reserve(size_t num_tokens, size_t num_bytes) {
  bytes_.reserve(num_bytes);
  grow(std::bit_ceil(num_tokens * 2 + kMinSlots));
}

void Vocabulary::grow(size_t num_slots) {
  if (num_slots <= slots_.size()) {
    return;
  }
  std::vector<Slot> old(num_slots);
  std::swap(old, slots_);
  for (const Slot& slot : old) {
    if (slot.id >= 0) {
      const std::string_view text = std::string_view(bytes_).substr(slot.offset, slot.size);
      slots_[probe(text, hash_bytes(text))] = slot;
    }
  }
}

size_t Vocabulary::probe(std::string_view text, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t index = hash & mask;
  while (slots_[index].id >= 0) {
    const Slot& slot = slots_[index];
    if (slot.hash == static_cast<uint32_t>(hash >> 32) && slot.size == text.size() &&
        std::memcmp(bytes_.data() + slot.offset, text.data(), text.size()) == 0) {
      break;
    }
    index = (index + 1) & mask;
  }
  return index;
}

bool Vocabulary::add(std::string_view text, int32_t id) {
  if ((num_tokens_ + 1) * 2 > slots_.size()) {
    grow(std::bit_ceil(slots_.size() * 2 + kMinSlots));
  }
  const uint64_t hash = hash_bytes(text);
  Slot& slot = slots_[probe(text, hash)];
  if (slot.id >= 0) {
    return false;
  }
  slot = {static_cast<uint32_t>(hash >> 32),
          id,
          static_cast<uint32_t>(bytes_.size()),
          static_cast<uint32_t>(text.size())};
  bytes_.append(text);
  ++num_tokens_;
  return true;
}

int32_t Vocabulary::find(std::string_view text) const {
  return slots_.empty() ? -1 : slots_[probe(text, hash_bytes(text))].id;
}

}  // namespace mstar

#pragma once

#include <cstdint>

namespace mstar {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): four random words for a key and a counter.
struct PhiloxWords {
  uint32_t words[4];
};

// Always inlined: files of several instruction sets use it.
__attribute__((always_inline)) constexpr PhiloxWords philox(uint64_t key,
                                                            uint64_t counter_low,
                                                            uint64_t counter_high) {
  uint32_t x0 = static_cast<uint32_t>(counter_low);
  uint32_t x1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t x2 = static_cast<uint32_t>(counter_high);
  uint32_t x3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53U} * x0;
    const uint64_t product1 = uint64_t{0xCD9E8D57U} * x2;
    x0 = static_cast<uint32_t>(product1 >> 32) ^ x1 ^ key0;
    x1 = static_cast<uint32_t>(product1);
    x2 = static_cast<uint32_t>(product0 >> 32) ^ x3 ^ key1;
    x3 = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return {{x0, x1, x2, x3}};
}

}  // namespace mstar

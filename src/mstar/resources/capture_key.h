#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "mstar/base/check.h"
#include "mstar/resources/names.h"

namespace mstar {

// Which capture of a walk a batch belongs to when the token count is not the whole story (guidance
// on or off, a latent shape): up to six integers, compared by value. It depends only on facts that
// hold for the request's whole life. A default key says that the walk has a single capture.
class CaptureKey {
 public:
  static constexpr int kMaxParts = 6;

  CaptureKey() = default;

  explicit CaptureKey(bool flag) : CaptureKey({static_cast<int64_t>(flag)}) {}

  CaptureKey(std::initializer_list<int64_t> parts) {
    MSTAR_CHECK(parts.size() <= kMaxParts, "parts=", parts.size());
    for (const int64_t part : parts) {
      parts_[static_cast<size_t>(num_parts_++)] = part;
    }
  }

  bool empty() const { return num_parts_ == 0; }

  int size() const { return num_parts_; }

  int64_t operator[](int index) const { return parts_[static_cast<size_t>(index)]; }

  friend auto operator<=>(const CaptureKey&, const CaptureKey&) = default;

 private:
  int32_t num_parts_ = 0;
  std::array<int64_t, kMaxParts> parts_{};
};

// "none", "(1)", "(16, 60, 104)".
std::string to_string(const CaptureKey& key);

// Identity of one captured graph.
struct BucketKey {
  WalkId graph_walk = -1;
  int32_t bs = 0;          // request rows
  int32_t num_tokens = 0;  // packed tokens over all rows
  CaptureKey key;

  friend auto operator<=>(const BucketKey&, const BucketKey&) = default;
};

std::string to_string(const BucketKey& key);

// The right to replay one slot of one bucket for one step; granted before the step is declared.
struct SlotLease {
  int32_t slot = -1;  // global over the engine: index of the static buffers that the capture reads
  BucketKey bucket;
};

}  // namespace mstar

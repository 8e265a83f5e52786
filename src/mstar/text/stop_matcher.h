#pragma once

// Finds stop strings in streamed text, wherever its pieces are cut. Holds back only what may be
// the beginning of a stop string. One thread; one per sequence.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mstar {

class StopMatcher {
 public:
  // Empty stop strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that `piece` makes certain not to belong to a stop string. Once stopped(), "".
  std::string push(std::string_view piece);

  // The end without a stop: what was held back.
  std::string finish();

  // True when a stop string has appeared; the text before the earliest of them has been returned.
  bool stopped() const { return matched_ >= 0; }

  // Index of the stop string found, in the order given, or -1.
  int matched() const { return matched_; }

 private:
  // Progress of one stop string: how many of its bytes end the text seen (Knuth-Morris-Pratt).
  struct Progress {
    std::string text;
    std::vector<uint32_t> fallback;
    uint32_t length = 0;
    int index = 0;
  };

  static void advance(Progress& stop, char byte);

  std::vector<Progress> stops_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace mstar

#pragma once

#include <cstdint>
#include <optional>

#include "mstar/resources/step.h"

namespace mstar {

// Cuts a sequence of units (latent frames) into windows that are generated one after another, each
// repeating the last `overlap_units` of the one before. Plain data, immutable.
class WindowSchedule {
 public:
  struct Window {
    int64_t start = 0;  // units
    int64_t end = 0;
    int64_t cond_units = 0;  // leading units known from the window before

    // What the window adds: the commits of all windows partition [0, total_units).
    int64_t commit_start() const { return start + cond_units; }

    friend bool operator==(const Window&, const Window&) = default;
  };

  // `context_units` 0: windows see everything before them. Throws Error(kInvalidArgument) unless
  // 0 <= overlap < window and total > 0.
  WindowSchedule(int64_t total_units,
                 int64_t window_units,
                 int64_t context_units = 0,
                 int64_t overlap_units = 0);

  int64_t num_windows() const { return num_windows_; }

  int64_t total_units() const { return total_units_; }

  // Window k of num_windows(); the last one may be short.
  Window window(int64_t index) const;

  // The total rounded up so that every window is full.
  int64_t padded_total() const;

  // What the committed keys and values of earlier windows keep; nothing: everything.
  std::optional<RetentionPolicy> retention(int64_t tokens_per_unit, int64_t prefix_tokens) const;

 private:
  int64_t total_units_;
  int64_t window_units_;
  int64_t context_units_;
  int64_t overlap_units_;
  int64_t num_windows_;
};

}  // namespace mstar

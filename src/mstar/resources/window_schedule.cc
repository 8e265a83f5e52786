#include "mstar/resources/window_schedule.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

WindowSchedule::WindowSchedule(int64_t total_units,
                               int64_t window_units,
                               int64_t context_units,
                               int64_t overlap_units)
    : total_units_(total_units),
      window_units_(window_units),
      context_units_(context_units),
      overlap_units_(overlap_units),
      num_windows_(1) {
  if (total_units <= 0 || context_units < 0 || overlap_units < 0 || overlap_units >= window_units) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[window schedule] total ",
                        total_units,
                        ", window ",
                        window_units,
                        ", context ",
                        context_units,
                        ", overlap ",
                        overlap_units,
                        "; expected total > 0, context >= 0 and 0 <= overlap < window"));
  }
  if (total_units > window_units) {
    const int64_t stride = window_units - overlap_units;
    num_windows_ = 1 + (total_units - window_units + stride - 1) / stride;
  }
}

WindowSchedule::Window WindowSchedule::window(int64_t index) const {
  MSTAR_CHECK(index >= 0 && index < num_windows_, "window ", index, " of ", num_windows_);
  const int64_t start = index * (window_units_ - overlap_units_);
  return {start, std::min(start + window_units_, total_units_), index > 0 ? overlap_units_ : 0};
}

int64_t WindowSchedule::padded_total() const {
  if (num_windows_ == 1) {
    return total_units_;
  }
  return window_units_ + (num_windows_ - 1) * (window_units_ - overlap_units_);
}

std::optional<RetentionPolicy> WindowSchedule::retention(int64_t tokens_per_unit,
                                                         int64_t prefix_tokens) const {
  if (context_units_ == 0) {
    return std::nullopt;
  }
  return RetentionPolicy{context_units_ * tokens_per_unit, prefix_tokens};
}

}  // namespace mstar

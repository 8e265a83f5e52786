#include "mstar/resources/window_schedule.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"

namespace mstar {
namespace {

TEST(WindowSchedule, ChainedAndKeptWindowsOf189Frames) {
  const int64_t total = 1 + (189 - 1) / 4;  // latent frames
  const WindowSchedule chained(total, 8, 16, 2);
  EXPECT_EQ(chained.num_windows(), 8);
  EXPECT_EQ(chained.padded_total(), 50);
  EXPECT_EQ(chained.window(1), (WindowSchedule::Window{6, 14, 2}));
  const WindowSchedule kept(total, 8, 16, 0);
  EXPECT_EQ(kept.num_windows(), 6);
  EXPECT_EQ(kept.padded_total(), 48);
  EXPECT_EQ(kept.retention(390, 77), (RetentionPolicy{16 * 390, 77}));
  EXPECT_FALSE(WindowSchedule(total, 8).retention(390, 77).has_value());
}

TEST(WindowSchedule, CommitsPartitionTheTotal) {
  for (int64_t total = 1; total < 40; ++total) {
    for (int64_t window = 1; window < 12; ++window) {
      for (int64_t overlap = 0; overlap < window; ++overlap) {
        const WindowSchedule schedule(total, window, 0, overlap);
        int64_t frontier = 0;
        for (int64_t index = 0; index < schedule.num_windows(); ++index) {
          EXPECT_EQ(schedule.window(index).commit_start(), frontier);
          EXPECT_GT(schedule.window(index).end, frontier);
          frontier = schedule.window(index).end;
        }
        EXPECT_EQ(frontier, total);
        EXPECT_GE(schedule.padded_total(), total);
      }
    }
  }
}

TEST(WindowSchedule, RefusesOverlapThatNeverAdvances) {
  EXPECT_THROW(WindowSchedule(10, 4, 0, 4), Error);
  EXPECT_THROW(WindowSchedule(0, 4), Error);
  EXPECT_THROW(WindowSchedule(10, 4, -1), Error);
}

}  // namespace
}  // namespace mstar

#include "mstar/text/stop_matcher.h"

#include "gtest/gtest.h"

namespace mstar {

namespace {

TEST(StopMatcherTest, finds_a_stop_across_pieces) {
  StopMatcher matcher({"###", "END"});
  EXPECT_EQ(matcher.push("abc#"), "abc");
  EXPECT_EQ(matcher.push("#x"), "##x");
  EXPECT_EQ(matcher.push("yE"), "y");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.push("Dmore"), "");
  EXPECT_EQ(matcher.matched(), 1);
  EXPECT_EQ(matcher.push("ignored"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcherTest, holds_back_only_a_beginning) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("aaa"), "a");  // "aa" may go on to "aab"
  EXPECT_EQ(matcher.push("b"), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcherTest, the_end_releases_what_was_held) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.push("text\n\nUs"), "text");
  EXPECT_EQ(matcher.finish(), "\n\nUs");
}

TEST(StopMatcherTest, text_before_the_stop_comes_out) {
  StopMatcher matcher({"", "stop"});
  EXPECT_EQ(matcher.push("one stop two"), "one ");
  EXPECT_EQ(matcher.matched(), 1);
}

TEST(StopMatcherTest, of_stops_that_end_together_the_longest_counts) {
  StopMatcher matcher({"c", "abc"});
  EXPECT_EQ(matcher.push("xab"), "x");
  EXPECT_EQ(matcher.push("c"), "");
  EXPECT_EQ(matcher.matched(), 1);
}

TEST(StopMatcherTest, without_stops_everything_passes) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
}

}  // namespace

}  // namespace mstar

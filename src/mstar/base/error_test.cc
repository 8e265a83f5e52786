#include "mstar/base/error.h"

#include <gtest/gtest.h>

#include "mstar/base/check.h"

namespace mstar {
namespace {

TEST(Error, CarriesCodeAndMessage) {
  const Error error(ErrorCode::kNotFound, "no such model: x");
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_STREQ(error.what(), "no such model: x");
  EXPECT_STREQ(to_string(error.code()), "not_found");
}

TEST(CheckDeathTest, PrintsTheValues) {
  const int pages = 3;
  EXPECT_DEATH(MSTAR_CHECK(pages < 2, "pages=", pages), "check failed: pages < 2: pages=3");
}

TEST(StrCat, JoinsPieces) {
  EXPECT_EQ(str_cat("a", 1, ' ', 2.5, " ", true), "a1 2.5 true");
  EXPECT_EQ(str_join(std::string_view("abc"), ","), "a,b,c");
}

}  // namespace
}  // namespace mstar

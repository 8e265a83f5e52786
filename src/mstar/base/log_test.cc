#include "mstar/base/log.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"

namespace mstar {
namespace {

constexpr int64_t kTime = 1'777'629'600'123;

TEST(Log, TextQuotesWhatCouldBreakTheLine) {
  EXPECT_EQ(format_log_line(LogLevel::kInfo,
                            LogFormat::kText,
                            kTime,
                            "served",
                            {{"path", "/a\n2026 forged"}, {"status", 200}}),
            "2026-05-01T10:00:00.123Z info served path=\"/a\\n2026 forged\" status=200\n");
}

TEST(Log, JsonIsOneDocumentALine) {
  const std::string line =
      format_log_line(LogLevel::kWarning, LogFormat::kJson, kTime, "slow", {{"seconds", 1.5}});
  const Json json = Json::parse(line);
  EXPECT_EQ(json.at("level"), Json("warning"));
  EXPECT_EQ(json.at("message"), Json("slow"));
  EXPECT_EQ(json.at("time"), Json("2026-05-01T10:00:00.123Z"));
  EXPECT_EQ(json.at("seconds"), Json(1.5));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Log, WordsAreCheckedAndLevelsOrdered) {
  EXPECT_THROW(parse_log_level("loud", "command line"), Error);
  EXPECT_THROW(parse_log_format("xml", "command line"), Error);
  set_log(parse_log_level("warning", ""), parse_log_format("text", ""));
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  EXPECT_TRUE(log_enabled(LogLevel::kError));
  set_log(LogLevel::kOff, LogFormat::kText);
  EXPECT_FALSE(log_enabled(LogLevel::kError));
  set_log(LogLevel::kInfo, LogFormat::kText);
}

}  // namespace
}  // namespace mstar

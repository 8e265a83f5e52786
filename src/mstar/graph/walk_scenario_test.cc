#include "mstar/graph/testing/walk_scenario.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar::graph::testing {
namespace {

std::vector<std::filesystem::path> scenario_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MSTAR_SOURCE_DIR) + "/tests/walks")) {
    if (entry.path().extension() == ".walk") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class WalkScenarioTest : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(WalkScenarioTest, HoldsWhatItSays) {
  std::ifstream file(GetParam());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::string> failures = WalkScenario(text).run();
  EXPECT_TRUE(failures.empty()) << str_join(failures, "\n");
}

INSTANTIATE_TEST_SUITE_P(Files,
                         WalkScenarioTest,
                         ::testing::ValuesIn(scenario_files()),
                         [](const auto& file) { return file.param.stem().string(); });

constexpr const char* kOneNode = R"(
walk w: x
  node a: x
    y -> client text
start r w
)";

std::vector<std::string> run(const std::string& commands) {
  return WalkScenario(kOneNode + commands).run();
}

TEST(WalkScenario, SaysWhichExpectationFailed) {
  EXPECT_TRUE(run("give r a.x 1\nready r a\nrun r a 1\ndone r a y=2 -> walk_done\n").empty());
  EXPECT_EQ(run("ready r a\n").size(), 1u);
  EXPECT_EQ(run("give r a.x 1\nrun r a 7\n").size(), 1u);
  EXPECT_EQ(run("give r a.x 1\nrun r a 1\ndone r a y=2 -> continues\n").size(), 1u);
  EXPECT_EQ(run("give r a.x 1\nrun r a 1\ndone r a y=2 -> walk_done\nrouted emit y=3\n").size(),
            1u);
  EXPECT_EQ(run("give r a.x 1\npayloads 0\n").size(), 1u);
}

TEST(WalkScenario, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(run("frobnicate r\n"), Error);
  EXPECT_THROW(run("ready nobody a\n"), Error);
  EXPECT_THROW(run("give r b.x 1\n"), Error);
}

}  // namespace
}  // namespace mstar::graph::testing

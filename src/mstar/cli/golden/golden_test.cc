#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/safetensors.h"
#include "mstar/cli/golden/case_process.h"
#include "mstar/cli/golden/run_golden.h"

namespace mstar::golden {
namespace {

namespace fs = std::filesystem;

class GoldenTest : public ::testing::Test {
 protected:
  GoldenTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = (fs::temp_directory_path() / str_cat("mstar_golden_", test->name())).string();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const Tensor x = Tensor::from(std::vector<float>{-1, 2}, {2});
    const Tensor out = Tensor::from(std::vector<float>{0, 2}, {2});
    const Tensor wrong = Tensor::from(std::vector<float>{0, 2.5F}, {2});
    write_safetensors(folder_ + "/good.safetensors", {{"x", x}, {"out", out}});
    write_safetensors(folder_ + "/wrong.safetensors", {{"x", x}, {"out", wrong}});
  }

  ~GoldenTest() override { fs::remove_all(folder_); }

  // One activation case; `config` replaces its config.
  static std::string record(std::string_view name,
                            std::string_view file,
                            std::string_view config = R"({"activation":"relu"})",
                            std::string_view more = "") {
    return str_cat(R"({"name":")",
                   name,
                   R"(","file":")",
                   file,
                   R"(","config":)",
                   config,
                   R"(,"tolerance":{"out":{"atol":0.001,"rtol":0},"extra":{"exact":true}},)",
                   R"("tensors":{"x":{"role":"input"},"out":{"role":"output"})",
                   more,
                   "}}");
  }

  GoldenCounts run(const std::string& records, const std::string& only = "") {
    std::ofstream(folder_ + "/cases.json") << str_cat(R"({"format":1,"cases":[)", records, "]}");
    std::ostringstream out;
    const GoldenCounts counts =
        run_golden({.folders = {folder_}, .model_folder = "", .only = only}, out);
    text_ = out.str();
    return counts;
  }

  std::string folder_;
  std::string text_;
};

TEST_F(GoldenTest, CountsWhatPassesAndWhatDoesNot) {
  const GoldenCounts counts =
      run(str_cat(record("activation_a", "good.safetensors"),
                  ",",
                  record("activation_b", "wrong.safetensors"),
                  ",",
                  record("activation_c", "absent.safetensors"),
                  ",",
                  record("strange_d", "good.safetensors"),
                  ",",
                  record("activation_e", "good.safetensors", R"({"class":"Strange"})"),
                  ",",
                  record("activation_f", "good.safetensors", "{}"),
                  ",",
                  record("activation_g",
                         "good.safetensors",
                         R"({"activation":"relu"})",
                         R"(,"extra":{"role":"output"})")));
  EXPECT_EQ(counts.passed, 1) << text_;
  EXPECT_EQ(counts.failed, 6) << text_;
  EXPECT_EQ(counts.skipped, 0) << text_;
  for (const char* line : {"PASS activation_a",
                           "FAIL activation_b",
                           "FAIL activation_c",
                           "FAIL strange_d: unknown kind",
                           "FAIL activation_e: unknown kind",
                           "FAIL activation_f: [activation_f] config has no \"activation\"",
                           "FAIL activation_g: output \"extra\" was not computed",
                           "1 passed, 6 failed, 0 skipped"}) {
    EXPECT_NE(text_.find(line), std::string::npos) << line << "\nin\n" << text_;
  }
}

// A wrong case fails and says why; it is no bug of the ops.
TEST_F(GoldenTest, SizesThatDoNotFitFailTheCase) {
  const Tensor heads = Tensor::zeros({2, 1, 4}, DType::kF32);
  write_safetensors(folder_ + "/rope.safetensors",
                    {{"q", heads}, {"k", heads}, {"positions", Tensor::zeros({2}, DType::kI64)}});
  for (const char* head_dim : {"6", "-1", "0"}) {
    run(record(
        "rope_a", "rope.safetensors", str_cat(R"({"rope_theta":100,"head_dim":)", head_dim, "}")));
    EXPECT_NE(text_.find("FAIL rope_a: [rope_a] head_dim"), std::string::npos) << text_;
  }
  const auto zeros = [](int64_t rows) { return Tensor::zeros({rows, 8}, DType::kF32); };
  write_safetensors(folder_ + "/rows.safetensors",
                    {{"x", zeros(3)},
                     {"q_proj.weight", zeros(8)},
                     {"k_proj.weight", zeros(4)},
                     {"v_proj.weight", zeros(4)},
                     {"o_proj.weight", zeros(8)}});
  for (const char* lens : {"[2,2]", "[4294967296]", "[-1,4]", "[]"}) {
    run(record("attention_a",
               "rows.safetensors",
               str_cat(R"({"class":"Attention","hidden_size":8,"num_heads":2,"num_kv_heads":1,)",
                       R"("head_dim":4,"pos_key":null,"seq_lens":)",
                       lens,
                       "}"),
               R"(,"q_proj.weight":{"role":"weight"},"k_proj.weight":{"role":"weight"},)"
               R"("v_proj.weight":{"role":"weight"},"o_proj.weight":{"role":"weight"})"));
    EXPECT_NE(text_.find("do not add up to the 3 rows"), std::string::npos) << text_;
  }
}

TEST(CaseProcess, ACaseThatEndsItsProcessFailsAlone) {
  std::vector<std::string> lines;
  run_in_children(
      4,
      []() -> RunCase {
        return [](size_t index) -> Outcome {
          if (index == 1) {
            std::raise(SIGKILL);
          }
          if (index == 3) {
            std::_Exit(7);
          }
          return {Verdict::kPass, str_cat("two\nlines ", index)};
        };
      },
      [&](size_t index, const Outcome& outcome) {
        lines.push_back(str_cat(index, static_cast<char>(outcome.verdict), outcome.summary));
      });
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "0Ptwo\nlines 0");
  EXPECT_EQ(lines[1], "1Fended the process: Killed");
  EXPECT_EQ(lines[2], "2Ptwo\nlines 2");
  EXPECT_EQ(lines[3], "3Fended the process with exit code 7");
}

TEST_F(GoldenTest, SelectsByPattern) {
  const std::string records = str_cat(
      record("activation_a", "good.safetensors"), ",", record("activation_b", "wrong.safetensors"));
  EXPECT_EQ(run(records, "_a").passed, 1);
  EXPECT_EQ(run(records, "*_b").failed, 1);
  EXPECT_EQ(run(records, "nothing").failed, 1);
  EXPECT_TRUE(is_selected("rope_far_x", "rope*far*"));
  EXPECT_FALSE(is_selected("rope_near", "rope*far*"));
}

}  // namespace
}  // namespace mstar::golden

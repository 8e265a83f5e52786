#include "mstar/checkpoint/load.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/safetensors.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

Tensor counted(const Shape& shape, float first = 0.0F) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (float& value : values) {
    value = first++;
  }
  return Tensor::from(values, shape);
}

class LoadTest : public ::testing::Test {
 protected:
  LoadTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = (fs::temp_directory_path() / str_cat("mstar_load_", test->name())).string();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  ~LoadTest() override { fs::remove_all(folder_); }

  std::unique_ptr<CheckpointReader> checkpoint(
      const std::vector<std::pair<std::string, Tensor>>& tensors) {
    write_safetensors(folder_ + "/w.safetensors", tensors);
    return open_checkpoint(folder_);
  }

  std::string folder_;
};

ShardSpec rows(std::string id, const Shape& shape, int64_t stack_row) {
  ShardSpec spec;
  spec.id = std::move(id);
  spec.shape = shape;
  spec.stack_row = stack_row;
  return spec;
}

// As GGUF keeps experts: the gates of all of them in one tensor.
TEST_F(LoadTest, FillsAGroupOfShardsFromOneTensor) {
  const auto reader = checkpoint(
      {{"experts.gate_exps", counted({2, 2, 3})}, {"experts.up_exps", counted({2, 2, 3}, 12)}});
  NameMapping mapping;
  mapping.stacked = {{"weight", "experts.gate_exps", "gate:"},
                     {"weight", "experts.up_exps", "up:"}};
  const auto parameter = [] {
    std::vector<ShardSpec> shards;
    for (const char* id : {"gate:0", "up:0", "gate:1", "up:1"}) {
      shards.push_back(rows(id, {2, 3}, 0));
    }
    return Parameter("weight", std::move(shards), {}, ParameterKind::kMatrix);
  };
  Parameter weight = parameter();
  load_strictly(*reader, std::vector<LoadTarget>{{"weight", &weight, {}}}, mapping);
  const std::vector<float> joined = weight.join().to_floats();
  EXPECT_EQ(joined[0], 0.0F);    // gate:0
  EXPECT_EQ(joined[6], 12.0F);   // up:0
  EXPECT_EQ(joined[12], 6.0F);   // gate:1
  EXPECT_EQ(joined[18], 18.0F);  // up:1

  Parameter other(
      "weight", {rows("gate:0", {2, 4}, 0), rows("up:0", {2, 4}, 0)}, {}, ParameterKind::kMatrix);
  const CompletenessReport report =
      load_parameters(*reader, std::vector<LoadTarget>{{"weight", &other, {}}}, mapping);
  EXPECT_NE(report.to_string().find("expected [1, 2, 4]"), std::string::npos) << report.to_string();
}

TEST_F(LoadTest, FillsWholeAndStackedParameters) {
  const auto reader = checkpoint({{"q_proj.weight", counted({2, 3})},
                                  {"k_proj.weight", counted({1, 3}, 6)},
                                  {"norm.weight", counted({3}, 9)},
                                  {"skip_me", counted({1})}});
  Parameter qkv(
      "weight", {rows("q", {2, 3}, 0), rows("k", {1, 3}, 2)}, {3, 3}, ParameterKind::kMatrix);
  Parameter norm("weight", {3}, ParameterKind::kFloating);
  NameMapping mapping;
  mapping.skip = {"skip_me"};
  mapping.stacked = {{"qkv_proj", "q_proj", "q"}, {"qkv_proj", "k_proj", "k"}};
  const std::vector<LoadTarget> targets = {{"qkv_proj.weight", &qkv, {}},
                                           {"norm.weight", &norm, {}}};
  const CompletenessReport report = load_parameters(*reader, targets, mapping);
  EXPECT_TRUE(report.ok()) << report.to_string();
  EXPECT_EQ(report.num_loaded, 3);
  EXPECT_EQ(report.num_skipped, 1);
  EXPECT_EQ(qkv.join().to_floats(), counted({3, 3}).to_floats());
  EXPECT_EQ(norm.join().to_floats(), counted({3}, 9).to_floats());
}

TEST_F(LoadTest, SplitsOneTensorIntoItsShards) {
  const auto reader = checkpoint({{"qkv_proj.weight", counted({3, 3})}});
  Parameter qkv(
      "weight", {rows("q", {2, 3}, 0), rows("k", {1, 3}, 2)}, {3, 3}, ParameterKind::kMatrix);
  const std::vector<LoadTarget> targets = {{"qkv_proj.weight", &qkv, {}}};
  load_strictly(*reader, targets, {});
  EXPECT_EQ(qkv.pieces()[1].to_floats(), counted({1, 3}, 6).to_floats());
}

TEST_F(LoadTest, ListsEveryProblem) {
  const auto reader = checkpoint({{"a", counted({2, 2})},
                                  {"b", Tensor::from(std::vector<int64_t>{1}, {1})},
                                  {"c2", counted({1})},
                                  {"model.layers.0.extra.weight", counted({1})},
                                  {"twice.x", counted({1})},
                                  {"twice.y", counted({1})},
                                  {"p", counted({1})}});
  Parameter a("a", {2, 3});
  Parameter b("b", {1});
  Parameter c("c", {1});
  Parameter twice("twice", {1});
  Parameter parts("p", {rows("q", {1}, 0)}, {}, ParameterKind::kMatrix);
  NameMapping mapping;
  mapping.rename = {{"twice.*", "twice"}};
  const std::vector<LoadTarget> targets = {
      {"a", &a, {}}, {"b", &b, {}}, {"c", &c, {}}, {"twice", &twice, {}}, {"p", &parts, {}}};
  const CompletenessReport report = load_parameters(*reader, targets, mapping);
  const std::string text = report.to_string();
  for (const char* line :
       {"wrong shape tensor \"a\": shape [2, 2], expected [2, 3]",
        "wrong type tensor \"b\": dtype i64, expected f32, bf16, f16 or a GGUF block type",
        "unknown tensor \"c2\": no parameter takes it",
        "unknown tensor \"model.layers.0.extra.weight\"",
        "repeated tensor \"twice.y\": twice is already filled",
        "unknown tensor \"p\": p has no shard \"\", expected one of q",
        "missing tensor \"c\": expected [1]"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nin\n" << text;
  }
  EXPECT_NE(text.find(folder_ + "/w.safetensors]"), std::string::npos);
  EXPECT_EQ(report.problems.size(), 7U) << text;
  EXPECT_NE(report.to_string(2).find("and 5 more"), std::string::npos);
  EXPECT_THROW(report.throw_if_bad(), Error);
}

TEST_F(LoadTest, KeepsTheRanksPart) {
  Parameter column("weight",
                   {{.id = "", .shape = {4, 3}, .dim = 0, .begin = 2, .size = 2}},
                   {},
                   ParameterKind::kMatrix);
  column.load(counted({4, 3}));
  EXPECT_EQ(column.join().to_floats(), counted({2, 3}, 6).to_floats());
  Parameter row("weight",
                {{.id = "", .shape = {2, 4}, .dim = 1, .begin = 1, .size = 2}},
                {},
                ParameterKind::kMatrix);
  row.load(counted({2, 4}));
  EXPECT_EQ(row.join().to_floats(), (std::vector<float>{1, 2, 5, 6}));
  EXPECT_THROW(row.load(counted({2, 4})), Error);
}

TEST_F(LoadTest, StacksExpertsFromOneTensorOrMany) {
  const auto make = [] {
    std::vector<ShardSpec> shards;
    for (int64_t expert = 0; expert < 2; ++expert) {
      for (int64_t part = 0; part < 2; ++part) {
        ShardSpec spec = rows(str_cat(part == 0 ? "gate:" : "up:", expert), {2, 3}, part * 2);
        spec.stack_index = expert;
        spec.begin = 1;
        spec.size = 1;
        shards.push_back(spec);
      }
    }
    return Parameter("experts.gate_up_proj", shards, {2, 4, 3}, ParameterKind::kMatrix);
  };
  const Tensor all = counted({2, 4, 3});
  Parameter whole = make();
  whole.load(all);
  Parameter single = make();
  single.load(all.select(0, 1).slice(0, 2, 4), "up:1");
  EXPECT_EQ(whole.pieces()[3].to_floats(), (std::vector<float>{21, 22, 23}));
  EXPECT_EQ(single.pieces()[3].to_floats(), whole.pieces()[3].to_floats());
  EXPECT_FALSE(single.is_complete());
  EXPECT_TRUE(whole.is_complete());
}

TEST(Narrow, CutsQuantizedRowsAtBlocks) {
  Tensor weight = Tensor::empty({2, 96}, DType::kQ8_0);
  for (int64_t index = 0; index < weight.size_bytes(); ++index) {
    weight.bytes()[index] = static_cast<std::byte>(index);
  }
  const Tensor cut = narrow(weight, 1, 32, 64);
  EXPECT_EQ(cut.shape(), (Shape{2, 64}));
  EXPECT_EQ(cut.bytes()[0], static_cast<std::byte>(34));
  EXPECT_EQ(cut.bytes()[68], static_cast<std::byte>(3 * 34 + 34));
  EXPECT_THROW(narrow(weight, 1, 16, 32), Error);
  EXPECT_EQ(narrow(weight, 0, 1, 1).bytes(), weight.bytes() + 102);
}

}  // namespace
}  // namespace mstar

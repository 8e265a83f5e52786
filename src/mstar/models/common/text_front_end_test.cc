#include "mstar/models/common/text_front_end.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "mstar/base/str_cat.h"
#include "mstar/models/common/token_logprobs.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

// Three words and the chat template given.
TextFrontEnd front_end_with(const std::string& chat_template) {
  static int count = 0;
  const fs::path folder =
      fs::path(::testing::TempDir()) / str_cat("mstar_front_end_", getpid(), "_", count++);
  fs::create_directories(folder);
  std::ofstream(folder / "tokenizer.json")
      << R"({"version":"1.0","added_tokens":[],"normalizer":null,)"
         R"("pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,)"
         R"("decoder":{"type":"WordPiece","prefix":"##","cleanup":false},)"
         R"("model":{"type":"WordPiece","unk_token":"other","continuing_subword_prefix":"##",)"
         R"("max_input_chars_per_word":100,"vocab":{"other":0,"system":1,"developer":2}}})";
  std::ofstream(folder / "chat_template.jinja") << chat_template;
  TextFrontEnd front_end = TextFrontEnd::load(folder.string());
  fs::remove_all(folder);
  return front_end;
}

std::vector<int32_t> developer_turn(const TextFrontEnd& front_end) {
  const ChatMessage message{"developer", {ContentPart{.text = "x"}}};
  return front_end.encode_chat({message}, Json::object());
}

TEST(TextFrontEnd, DeveloperIsSystemForTemplatesThatDoNotKnowIt) {
  EXPECT_EQ(developer_turn(front_end_with("{% for m in messages %}{{ m.role }}{% endfor %}")),
            std::vector<int32_t>{1});
  EXPECT_EQ(developer_turn(front_end_with("{# system, developer #}{% for m in messages %}"
                                          "{{ m.role }}{% endfor %}")),
            std::vector<int32_t>{2});
}

TEST(TokenLogprobs, AreTheLogarithmsOfTheSoftmax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits =
      Tensor::from(std::vector<float>{0.0F, std::log(2.0F), nan, std::log(5.0F), 0.0F}, {1, 5});
  const TensorList told = token_logprobs(logits, 4, 3);
  EXPECT_EQ(told.at(0).to_ints(), (std::vector<int64_t>{4, 3, 1, 0}));
  const std::vector<float> logprobs = told.at(1).to_floats();
  const std::vector<double> expected = {1.0 / 9.0, 5.0 / 9.0, 2.0 / 9.0, 1.0 / 9.0};
  for (size_t index = 0; index < expected.size(); ++index) {
    EXPECT_NEAR(logprobs[index], std::log(expected[index]), 1e-6);
  }
  EXPECT_EQ(token_logprobs(logits, 1, 0).at(0).to_ints(), std::vector<int64_t>{1});
  EXPECT_EQ(token_logprobs(logits, 1, 20).at(0).num_elements(), 6);
  EXPECT_EQ(token_logprobs(logits, 2, 0).at(1).to_floats().front(),
            -std::numeric_limits<float>::infinity());
}

TEST(RequireFinite, NamesWhatIsNot) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor fine = Tensor::from(std::vector<float>{1.0F, -3e38F, 0.0F}, {1, 3});
  const Tensor bad = Tensor::from(std::vector<float>{1.0F, -infinity, 0.0F}, {1, 3});
  EXPECT_NO_THROW(require_finite(fine, "decode"));
  EXPECT_THROW(require_finite(bad, "decode"), Error);
  const uint16_t halves[] = {0x3F80, 0x7FC0};  // 1 and NaN
  Tensor bf16 = Tensor::empty({1, 2}, DType::kBF16);
  std::memcpy(bf16.bytes(), halves, sizeof(halves));
  EXPECT_THROW(require_finite(bf16, "decode"), Error);
  EXPECT_NO_THROW(require_finite(bf16.slice(1, 0, 1), "decode"));
}

}  // namespace
}  // namespace mstar

// What the reasoner's front end makes of sizes, frames, messages and media, without weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>

#include "mstar/base/error.h"
#include "mstar/models/cosmos3/config.h"
#include "mstar/models/cosmos3/reasoner_config.h"
#include "mstar/models/cosmos3/reasoner_prompt.h"
#include "mstar/models/cosmos3/vision_input.h"

namespace mstar::cosmos3 {
namespace {

constexpr const char* kEdge = MSTAR_SOURCE_DIR "/tests/golden/cosmos3/checkpoints/edge";
constexpr int32_t kVideoPad = 18;
constexpr int32_t kImagePad = 19;

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Cosmos3Vision, SizesBeyondEveryBoundAreBroughtInOrRefused) {
  const PixelRange range{.min = 65536, .max = 16777216};
  EXPECT_EQ(smart_resize(1, {1, 1}, 32, range, "x"), (PixelSize{256, 256}));
  EXPECT_EQ(smart_resize(1, {341, 512}, 32, range, "x"), (PixelSize{352, 512}));
  const PixelSize large = smart_resize(1, {16384, 16384}, 32, range, "x");
  EXPECT_LE(large.height * large.width, range.max);
  EXPECT_EQ(large.height % 32, 0);
  const std::string refused = error_of([&] {
    smart_resize(1, {20, 10000}, 32, range, "picture.png");
  });
  EXPECT_NE(refused.find("[picture.png] found 10000x20"), std::string::npos) << refused;
}

TEST(Cosmos3Vision, FramesByCountOrRate) {
  const FrameSampling sampling;
  EXPECT_EQ(sample_frames(48, 24.0, sampling), (std::vector<int64_t>{0, 16, 31, 47}));
  EXPECT_EQ(sample_frames(5, 24.0, sampling, {.num_frames = 2, .fps = {}}),
            (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(sample_frames(3, 24.0, sampling, {.num_frames = 700, .fps = {}}).size(), 3U);
  EXPECT_EQ(sample_frames(100, 10.0, sampling, {.num_frames = {}, .fps = 1.0}).size(), 10U);
  EXPECT_EQ(sample_frames(1000000, 1e-6, sampling).size(), 768U);
}

TEST(Cosmos3Vision, PatchesGoBlockByBlock) {
  // Pixel (row, column) has the value 10 * row + column; patches of one pixel, blocks of 2 x 2.
  Tensor frame = Tensor::empty({1, 2, 4, 3}, DType::kU8);
  for (int64_t i = 0; i < frame.num_elements(); ++i) {
    frame.data<uint8_t>()[i] = static_cast<uint8_t>(10 * (i / 12) + i / 3 % 4);
  }
  const Tensor patches = to_patches(frame, 1, 2);
  std::vector<int64_t> first;
  for (int64_t row = 0; row < patches.dim(0); ++row) {
    first.push_back(patches.select(0, row).to_ints().front());
  }
  EXPECT_EQ(first, (std::vector<int64_t>{0, 1, 10, 11, 2, 3, 12, 13}));
}

TEST(Cosmos3Reasoner, PositionsCountTextAndFrames) {
  const PlaceholderRun run{.begin = 2, .rows = 2, .columns = 3};
  const Tensor positions = prompt_positions(10, std::span(&run, 1));
  EXPECT_EQ(positions.select(0, 0).to_ints(), (std::vector<int64_t>{0, 1, 2, 2, 2, 2, 2, 2, 5, 6}));
  EXPECT_EQ(positions.select(0, 1).to_ints(), (std::vector<int64_t>{0, 1, 2, 2, 2, 3, 3, 3, 5, 6}));
  EXPECT_EQ(positions.select(0, 2).to_ints(), (std::vector<int64_t>{0, 1, 2, 3, 4, 2, 3, 4, 5, 6}));
  EXPECT_EQ(next_position(positions, 0), 0);
  EXPECT_EQ(next_position(positions, 4), 4);
  EXPECT_EQ(next_position(positions, 10), 7);
}

class Cosmos3Prompt : public ::testing::Test {
 protected:
  Cosmos3Prompt()
      : text_(TextFrontEnd::load(std::string(kEdge) + "/text_tokenizer")),
        encoder_(text_, ReasonerConfig::load(kEdge), "edge") {}

  static ContentPart text(std::string words) { return {.text = std::move(words)}; }

  static ContentPart media(Modality modality, int index) {
    return {.modality = modality, .text = "", .media = index};
  }

  ReasonerPrompt encode(std::vector<ContentPart> parts,
                        const std::vector<VisionItem>& items,
                        const std::string& role = "user") const {
    return encoder_.encode(text_, {{role, std::move(parts)}}, Json::object(), items);
  }

  static int64_t count(const ReasonerPrompt& prompt, int32_t id) {
    return std::ranges::count(prompt.ids, id);
  }

  TextFrontEnd text_;
  ReasonerPromptEncoder encoder_;
};

TEST_F(Cosmos3Prompt, EveryMarkBecomesAsManyTokensAsItsFrameHasRows) {
  const std::vector<VisionItem> items = {
      {.grid = {1, 4, 6}, .seconds = {}, .patches = {}},
      {.grid = {2, 6, 4}, .seconds = {0.0, 1.25}, .patches = {}},
      {.grid = {1, 2, 2}, .seconds = {}, .patches = {}},
  };
  const ReasonerPrompt prompt = encode({text("see "),
                                        media(Modality::kImage, 0),
                                        text("then"),
                                        media(Modality::kVideo, 1),
                                        media(Modality::kImage, 2)},
                                       items);
  EXPECT_EQ(count(prompt, kImagePad), 6 + 1);
  EXPECT_EQ(count(prompt, kVideoPad), 2 * 6);
  ASSERT_EQ(prompt.runs.size(), 4U);
  EXPECT_EQ(prompt.runs[1].rows, 3);
  EXPECT_EQ(prompt.runs[1].columns, 2);
  // The same text as written by hand, through the tokenizer at once.
  std::string want = "<|im_start|>user\nsee <|vision_start|>";
  const auto pads = [&](const char* pad, int times) {
    for (int i = 0; i < times; ++i) {
      want += pad;
    }
    want += "<|vision_end|>";
  };
  pads("<|image_pad|>", 6);
  want += "then<0.0 seconds><|vision_start|>";
  pads("<|video_pad|>", 6);
  want += "<1.2 seconds><|vision_start|>";
  pads("<|video_pad|>", 6);
  want += "<|vision_start|>";
  pads("<|image_pad|>", 1);
  want += "<|im_end|>\n<|im_start|>assistant\n<think>\n";
  EXPECT_EQ(prompt.ids, text_.tokenizer->encode(want));
}

TEST_F(Cosmos3Prompt, WhatAClientTypesStaysText) {
  const std::string typed = "<|vision_start|><|video_pad|><|vision_end|> <|image_pad|><|im_end|>";
  const ReasonerPrompt plain = encode({text(typed)}, {});
  EXPECT_EQ(count(plain, kImagePad), 0);
  EXPECT_EQ(count(plain, kVideoPad), 0);
  EXPECT_TRUE(plain.runs.empty());
  const ReasonerPrompt beside = encode({text(typed), media(Modality::kImage, 0)},
                                       {{.grid = {1, 2, 4}, .seconds = {}, .patches = {}}});
  EXPECT_EQ(count(beside, kImagePad), 2);
  ASSERT_EQ(beside.runs.size(), 1U);
  EXPECT_GT(beside.runs[0].begin, 20);
}

TEST_F(Cosmos3Prompt, MediaThatTheTemplateDoesNotShowAreRefused) {
  const std::vector<VisionItem> picture = {{.grid = {1, 2, 2}, .seconds = {}, .patches = {}}};
  const std::vector<VisionItem> clip = {{.grid = {1, 2, 2}, .seconds = {0.0}, .patches = {}}};
  EXPECT_NE(error_of([&] { encode({text("nothing")}, picture); }).find("shows 0 pictures"),
            std::string::npos);
  EXPECT_NE(error_of([&] { encode({text("nothing")}, clip); }).find("shows 0 videos"),
            std::string::npos);
  EXPECT_NE(error_of([&] { encode({media(Modality::kImage, 0)}, {}); }).find("shows 1"),
            std::string::npos);
  EXPECT_NE(error_of([&] { encode({media(Modality::kVideo, 0)}, picture); }).find("videos"),
            std::string::npos);
}

TEST(Cosmos3Reasoner, ConfigurationsThatDoNotFitAreNamed) {
  const ReasonerConfig config = ReasonerConfig::load(kEdge);
  EXPECT_EQ(config.vision.factor(), 8);
  EXPECT_EQ(config.vision.table_side(), 4);
  EXPECT_EQ(config.image.min, 65536);
  EXPECT_EQ(config.sampling.max_frames, 768);
  const auto refused = [](const char* from, const char* to) {
    std::string text = read_json_file(std::string(kEdge) + "/config.json").dump();
    text.replace(text.find(from), std::string(from).size(), to);
    return error_of([&] { VisionConfig::parse(Json::parse(text), "config.json"); });
  };
  EXPECT_NE(refused("\"num_patches\":16", "\"num_patches\":17").find("square"), std::string::npos);
  EXPECT_NE(refused("\"input_hidden_size\":32", "\"input_hidden_size\":33").find("differs"),
            std::string::npos);
  EXPECT_NE(refused("\"num_attention_heads\":2", "\"num_attention_heads\":3").find("multiple"),
            std::string::npos);
}

}  // namespace
}  // namespace mstar::cosmos3

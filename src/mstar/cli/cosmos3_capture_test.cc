// Captured denoising steps of Cosmos3: replayed where they fit, and equal to eager ones bit for
// bit.
#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/cosmos3_test_server.h"
#include "mstar/models/cosmos3/dit_submodule.h"

namespace mstar {
namespace {

using namespace cosmos3_test;  // NOLINT: the rig

RuntimeOptions options_of(DType dtype, bool captures) {
  RuntimeOptions options{.num_threads = 2};
  options.engine.activation_dtype = dtype;
  options.engine.graph_capture = captures;
  return options;
}

Question picture_of(const std::string& size, int64_t seed, const std::string& prompt = "waves") {
  return {.prompt = prompt,
          .parameters =
              str_cat(R"({"num_inference_steps":4,"size":")", size, R"(","seed":)", seed, "}")};
}

std::string bytes_of(const std::shared_ptr<Answer>& answer) {
  answer->wait();
  EXPECT_FALSE(answer->failed) << answer->message;
  return answer->failed ? "" : answer->chunks[0].data;
}

// Four karras steps at times 995, 973, 798 and 128: the last one lies outside the guidance
// interval, has one branch and runs eagerly.
TEST(Cosmos3Captures, StepsAreReplayedAndEqualEagerOnes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Served captured(checkpoint("nano"), options_of(dtype, true));
    Served eager(checkpoint("nano"), options_of(dtype, false));
    EXPECT_EQ(captured.num_captures(), 0);  // recorded when first asked for
    EXPECT_EQ(bytes_of(captured.ask(picture_of("320x192", 7))),
              bytes_of(eager.ask(picture_of("320x192", 7))));
    EXPECT_EQ(captured.num_captures(), 1);
    EXPECT_EQ(captured.num_replayed(), 3);
    // A text of another length behind the same recording.
    const std::string prompt = "a robot waters the plants on the roof of a house by the sea";
    EXPECT_EQ(bytes_of(captured.ask(picture_of("320x192", 8, prompt))),
              bytes_of(eager.ask(picture_of("320x192", 8, prompt))));
    EXPECT_EQ(captured.num_captures(), 1);
    EXPECT_EQ(captured.num_replayed(), 6);
    EXPECT_EQ(eager.num_replayed(), 0);
  }
}

TEST(Cosmos3Captures, WhatHasNoBucketRunsEagerly) {
  Served served(checkpoint("nano"), options_of(DType::kF32, true));
  for (const char* more :
       {R"("size":"96x64")", R"("size":"320x192","guidance_scale":1.0)", R"("size":"192x320")"}) {
    bytes_of(
        served.ask({.parameters = str_cat(R"({"num_inference_steps":2,"seed":1,)", more, "}")}));
  }
  EXPECT_EQ(served.num_replayed(), 0);
  EXPECT_EQ(served.num_captures(), 0);
  // A cache of another type than the rows would round them on their way.
  RuntimeOptions mixed = options_of(DType::kF32, true);
  Deployment deployment;
  deployment.resources["kv"].set("dtype", "bf16");
  Served rounded(checkpoint("nano"), mixed, Json::object(), deployment);
  bytes_of(rounded.ask(picture_of("320x192", 7)));
  EXPECT_EQ(rounded.num_replayed(), 0);
}

TEST(Cosmos3Captures, MixedShapesInOneBatch) {
  const Json kwargs = Json::parse(
      R"({"capture_resolutions":["192x320","64x96"],"capture_batch_sizes":[1,2]})", "kwargs");
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Served served(checkpoint("nano"), options_of(dtype, true), kwargs);
    std::vector<Question> questions;
    for (int64_t seed = 0; seed < 3; ++seed) {
      questions.push_back(picture_of("320x192", seed));
      questions.push_back(picture_of("96x64", seed));
      questions.push_back(picture_of("48x32", seed));
    }
    std::vector<std::string> alone;
    for (const Question& question : questions) {
      alone.push_back(bytes_of(served.ask(question)));
    }
    EXPECT_EQ(served.num_replayed(), 18);  // six pictures of captured sizes, three steps each
    std::vector<std::shared_ptr<Answer>> together;
    for (const Question& question : questions) {
      together.push_back(served.ask(question));
    }
    for (size_t i = 0; i < questions.size(); ++i) {
      EXPECT_EQ(bytes_of(together[i]), alone[i]) << i;
    }
    // Fresh rows' pages went back with every step.
    served.drain();
    EXPECT_EQ(served.num_used_pages(), 0);
  }
}

TEST(Cosmos3Captures, TwoRowsAreReplayedTogether) {
  const Json kwargs =
      Json::parse(R"({"capture_resolutions":["64x96"],"capture_batch_sizes":[2]})", "kwargs");
  Served served(checkpoint("nano"), options_of(DType::kF32, true), kwargs);
  Served eager(checkpoint("nano"), options_of(DType::kF32, false));
  std::vector<std::string> wanted;
  for (int64_t seed = 0; seed < 2; ++seed) {
    wanted.push_back(bytes_of(eager.ask(picture_of("96x64", seed))));
  }
  // Two requests in flight meet in one step sooner or later; every try may be the one.
  for (int tries = 0; tries < 50 && served.num_replayed() == 0; ++tries) {
    const auto first = served.ask(picture_of("96x64", 0));
    const auto second = served.ask(picture_of("96x64", 1));
    EXPECT_EQ(bytes_of(first), wanted[0]);
    EXPECT_EQ(bytes_of(second), wanted[1]);
  }
  EXPECT_GT(served.num_replayed(), 0);
}

// What a captured step writes to pages is part of the pool, and so of the plan.
TEST(Cosmos3Captures, PagesAreAccountedFor) {
  const auto pool_of = [](const char* kwargs) {
    const auto model = open_model(checkpoint("nano"), Json::parse(kwargs, "kwargs"));
    const std::vector<NodeResourceSpec> resources = model->get_node_resources();
    return std::get<KVSpec>(resources.front().spec).max_num_pages;
  };
  const int64_t without = pool_of(R"({"capture_resolutions":[]})");
  // 1024 x 1024 is the largest default: 1024 tokens and a text's last page, twice.
  EXPECT_EQ(pool_of("{}") - without, 2 * (1024 / 128 + 2));
  EXPECT_EQ(pool_of(R"({"output_modalities":["video"]})"), without);
  for (const char* wrong : {R"({"capture_resolutions":["192x"]})",
                            R"({"capture_resolutions":["100x100"]})",
                            R"({"capture_resolutions":"192x320"})",
                            R"({"capture_batch_sizes":[0]})",
                            R"({"capture_batch_sizes":[]})"}) {
    EXPECT_THROW(pool_of(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace mstar

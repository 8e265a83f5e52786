#include "mstar/resources/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "mstar/base/error.h"
#include "mstar/resources/test_rig.h"

namespace mstar {
namespace {

constexpr int64_t kVocab = 40;

SamplerSpec spec() {
  return {.samplers = {"main", "residual"},
          .vocab_size = kVocab,
          .enable_repetition_penalty = true,
          .enable_count_penalty = true,
          .enable_logit_bias = true};
}

SamplingRequestConfig config(uint64_t seed, const SamplingParams& params) {
  return {.seed = seed, .params = {params}};
}

// Rules by the count of tokens: the n-th is at most 2 n, but never the one before.
class Climbing : public TokenRules {
 public:
  void reset() override { told_.clear(); }

  void fill_mask(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0U);
    for (size_t token = 0; token <= 2 * told_.size(); ++token) {
      if (told_.empty() || told_.back() != static_cast<int32_t>(token)) {
        mask[token / 32] |= 1U << token % 32;
      }
    }
  }

  void accept(int32_t token) override { told_.push_back(token); }

 private:
  std::vector<int32_t> told_;
};

class ClimbingSource : public TokenRulesSource {
 public:
  std::unique_ptr<TokenRules> start() const override { return std::make_unique<Climbing>(); }
};

// A request whose answer climbs.
void add_climbing(testing::Rig& rig,
                  RequestHandle request,
                  uint64_t seed,
                  const SamplingParams& params) {
  auto& sampling = rig.get<Sampling>("sampler");
  sampling.ingest_request(request, config(seed, params));
  sampling.set_rules(request, 0, std::make_shared<ClimbingSource>());
  sampling.set_rules(request, 0, std::make_shared<ClimbingSource>());  // as before
}

SubmoduleStep declare(const std::vector<RequestHandle>& requests, int32_t sampler = 0) {
  SubmoduleStep step;
  for (const RequestHandle request : requests) {
    step.add_segment(request, kMainLabel, 1);
  }
  step.sampler.add(0).sampler = sampler;
  return step;
}

Tensor flat_logits(size_t rows) {
  Tensor logits = Tensor::zeros({static_cast<int64_t>(rows), kVocab}, DType::kF32);
  for (int64_t index = 0; index < logits.num_elements(); ++index) {
    logits.data<float>()[index] = static_cast<float>(index % kVocab % 7) * 0.1F;
  }
  return logits;
}

std::vector<int64_t> draw(testing::Rig& rig,
                          const SubmoduleStep& step,
                          Tensor logits,
                          const StepContext& context = {}) {
  const int32_t sampler = step.sampler.begin()->sampler;
  Tensor tokens = Tensor::empty({logits.dim(0)}, DType::kI32);
  Tensor probs;
  EXPECT_TRUE(rig.run(step, context, [&](const StepContext& c) {
    rig.get<SamplerResource>("sampler").sample(rig.stream(), c, sampler, 0, logits, tokens, probs);
  }));
  return tokens.to_ints();
}

std::vector<int64_t> draw(testing::Rig& rig,
                          const std::vector<RequestHandle>& requests,
                          int32_t sampler = 0) {
  return draw(rig, declare(requests, sampler), flat_logits(requests.size()));
}

TEST(Sampling, ResultsDoNotDependOnTheBatch) {
  testing::Rig rig({{"sampler", spec()}});
  auto& sampling = rig.get<Sampling>("sampler");
  const SamplingParams params{.temperature = 1.0F};
  for (const RequestHandle request : {0, 1, 2, 3}) {
    sampling.ingest_request(request,
                            config(request == 3 ? 1 : 10 + static_cast<uint64_t>(request), params));
  }
  sampling.remove_request(1);
  sampling.ingest_request(1, config(1, params));
  std::vector<int64_t> alone;
  std::vector<int64_t> beside;
  for (int step = 0; step < 12; ++step) {
    alone.push_back(draw(rig, {3})[0]);
    const std::vector<RequestHandle> batch =
        step % 2 == 0 ? std::vector<RequestHandle>{0, 1} : std::vector<RequestHandle>{1, 2, 0};
    beside.push_back(draw(rig, batch)[step % 2 == 0 ? 1 : 0]);
  }
  EXPECT_EQ(alone, beside);
  EXPECT_NE(alone, std::vector<int64_t>(12, alone[0])) << "the step counts";
}

TEST(Sampling, NamedSamplersHaveTheirOwnNumbers) {
  testing::Rig rig({{"sampler", spec()}});
  rig.runner().ingest_request(0, {config(5, {.temperature = 1.0F})});
  std::vector<int64_t> main;
  std::vector<int64_t> residual;
  for (int step = 0; step < 12; ++step) {
    main.push_back(draw(rig, {0}, 0)[0]);
    residual.push_back(draw(rig, {0}, 1)[0]);
  }
  EXPECT_NE(main, residual);
}

TEST(Sampling, PenaltiesSeePromptAndOwnTokens) {
  testing::Rig rig({{"sampler", spec()}});
  rig.runner().ingest_request(0, {config(1, {.temperature = 0.0F, .repetition_penalty = 2.0F})});
  Tensor logits = Tensor::zeros({1, kVocab}, DType::kF32);
  const auto greedy = [&](const SubmoduleStep& step) { return draw(rig, step, logits.copy())[0]; };
  logits.data<float>()[3] = 3.0F;
  logits.data<float>()[35] = 2.5F;
  logits.data<float>()[7] = 2.0F;
  SubmoduleStep first;
  first.add_segment(0, kMainLabel, 1);
  first.sampler.add(0).prefill_tracked_tokens = {
      {0, Tensor::from(std::vector<int64_t>{3, 3, 12}, {3})}};
  EXPECT_EQ(greedy(first), 35) << "3 is in the prompt: 1.5";
  const StepContext context;
  EXPECT_EQ(draw(rig, declare({0}), logits.copy(), context)[0], 7) << "35 was drawn: 1.25";
  rig.runner().discard(declare({0}), context, 0);
  EXPECT_EQ(greedy(declare({0})), 7) << "its mark went with the step";
  EXPECT_EQ(greedy(declare({0})), 3);
  // The next request on the same rows starts without marks.
  rig.runner().remove_request(0);
  rig.runner().ingest_request(0, {config(1, {.temperature = 0.0F, .repetition_penalty = 2.0F})});
  EXPECT_EQ(greedy(declare({0})), 3);
}

TEST(Sampling, CountsAndBias) {
  testing::Rig rig({{"sampler", spec()}});
  rig.runner().ingest_request(0,
                              {config(1,
                                      {.temperature = 0.0F,
                                       .presence_penalty = 0.5F,
                                       .frequency_penalty = 0.25F,
                                       .logit_bias = {{9, 1.4F}, {2, -100.0F}}})});
  Tensor logits = Tensor::zeros({1, kVocab}, DType::kF32);
  logits.data<float>()[2] = 50.0F;
  logits.data<float>()[4] = 2.0F;
  std::vector<int64_t> tokens;
  for (int step = 0; step < 4; ++step) {
    tokens.push_back(draw(rig, declare({0}), logits.copy())[0]);
  }
  // 4: 2.0, then 1.25; 9: 1.4, then 0.65; then 4 at 1.0.
  EXPECT_EQ(tokens, (std::vector<int64_t>{4, 9, 4, 4}));
}

TEST(Sampling, TokenRulesDecideWhatMayCome) {
  testing::Rig rig({{"sampler", spec()}});
  add_climbing(rig, 0, 1, {.temperature = 0.0F});
  rig.runner().ingest_request(1, {config(1, {.temperature = 0.0F})});
  Tensor logits = Tensor::zeros({1, kVocab}, DType::kF32);
  for (int64_t token = 0; token < kVocab; ++token) {
    logits.data<float>()[token] = static_cast<float>(token);
  }
  const auto greedy = [&] { return draw(rig, declare({0}), logits.copy())[0]; };
  EXPECT_EQ(greedy(), 0);
  EXPECT_EQ(greedy(), 2);
  const StepContext context;
  EXPECT_EQ(draw(rig, declare({0}), logits.copy(), context)[0], 4);
  rig.runner().discard(declare({0}), context, 0);
  EXPECT_EQ(greedy(), 4) << "the rules did not hear of the token that was taken back";
  EXPECT_EQ(greedy(), 6);
  rig.get<Sampling>("sampler").reset_request(0, false);
  EXPECT_EQ(greedy(), 0);
  // Beside a row without rules, and drawn by chance.
  Tensor both = Tensor::zeros({2, kVocab}, DType::kF32);
  both.data<float>()[kVocab + 30] = 1.0F;
  EXPECT_EQ(draw(rig, declare({0, 1}), both.copy()), (std::vector<int64_t>{1, 30}));
}

TEST(Sampling, TokenRulesHoldWhateverIsSampled) {
  for (const SamplingParams& shape : {SamplingParams{.temperature = 1.0F},
                                      SamplingParams{.temperature = 1.0F, .top_k = 30},
                                      SamplingParams{.temperature = 5.0F, .top_p = 0.9F},
                                      SamplingParams{.temperature = 2.0F, .min_p = 0.01F}}) {
    testing::Rig rig({{"sampler", spec()}});
    add_climbing(rig, 0, 3, shape);
    int64_t before = -1;
    for (int64_t step = 0; step < 15; ++step) {
      Tensor logits = flat_logits(1);
      logits.data<float>()[39] = 50.0F;  // never allowed
      const int64_t token = draw(rig, declare({0}), logits)[0];
      EXPECT_LE(token, 2 * step);
      EXPECT_NE(token, before);
      before = token;
    }
  }
}

TEST(Sampling, ReplayReadsNewMasks) {
  testing::Rig rig({{"sampler", spec()}});
  auto& sampling = rig.get<Sampling>("sampler");
  sampling.build_capture_buffers({.max_bs = 1});
  sampling.ingest_request(0, config(1, {.temperature = 0.0F}));
  const StepContext leased{.lease = SlotLease{0, {.bs = 1, .num_tokens = 1}}};
  Tensor logits = Tensor::zeros({1, kVocab}, DType::kF32);
  Tensor tokens = Tensor::empty({1}, DType::kI32);
  Tensor probs;
  std::unique_ptr<CapturedGraph> graph;
  ASSERT_TRUE(rig.run(declare({0}), leased, [&](const StepContext& context) {
    rig.stream().begin_capture();
    sampling.sample(rig.stream(), context, 0, 0, logits, tokens, probs);
    graph = rig.stream().end_capture();
  }));
  add_climbing(rig, 1, 1, {.temperature = 0.0F});
  std::vector<int64_t> drawn;
  for (int step = 0; step < 4; ++step) {
    for (int64_t token = 0; token < kVocab; ++token) {
      logits.data<float>()[token] = static_cast<float>(token);
    }
    ASSERT_TRUE(rig.run(declare({1}), leased, [&](const StepContext&) { graph->replay(); }));
    drawn.push_back(tokens.to_ints()[0]);
  }
  EXPECT_EQ(drawn, (std::vector<int64_t>{0, 2, 4, 6}));
}

TEST(Sampling, ReplayReadsNewParametersAndPenalties) {
  testing::Rig rig({{"sampler", spec()}});
  auto& sampling = rig.get<Sampling>("sampler");
  sampling.build_capture_buffers({.max_bs = 1});
  sampling.ingest_request(0, config(1, {.temperature = 0.0F}));
  const StepContext leased{.lease = SlotLease{0, {.bs = 1, .num_tokens = 1}}};
  Tensor logits = Tensor::zeros({1, kVocab}, DType::kF32);
  Tensor tokens = Tensor::empty({1}, DType::kI32);
  Tensor probs;
  std::unique_ptr<CapturedGraph> graph;
  ASSERT_TRUE(rig.run(declare({0}), leased, [&](const StepContext& context) {
    rig.stream().begin_capture();
    sampling.sample(rig.stream(), context, 0, 0, logits, tokens, probs);
    graph = rig.stream().end_capture();
  }));
  sampling.ingest_request(1, config(1, {.temperature = 0.0F, .logit_bias = {{11, 3.0F}}}));
  ASSERT_TRUE(rig.run(declare({1}), leased, [&](const StepContext&) { graph->replay(); }));
  EXPECT_EQ(tokens.to_ints()[0], 11);
}

TEST(Sampling, RefusesWhatItCannotDo) {
  testing::Rig plain({{"sampler", SamplerSpec{.vocab_size = kVocab}}});
  auto& sampling = plain.get<Sampling>("sampler");
  const auto refused = [&](const SamplingParams& params) {
    EXPECT_THROW(sampling.ingest_request(0, config(1, params)), Error);
  };
  refused({.repetition_penalty = 1.2F});
  refused({.presence_penalty = 1.0F});
  refused({.logit_bias = {{1, 1.0F}}});
  refused({.temperature = -1.0F});
  refused({.top_p = 1.5F});
  refused({.top_k = -1});
  refused({.min_p = std::numeric_limits<float>::quiet_NaN()});
  sampling.ingest_request(0, config(1, {}));
  EXPECT_THROW(sampling.set_rules(0, 0, std::make_shared<ClimbingSource>()), Error);
  testing::Rig full({{"sampler", spec()}});
  EXPECT_THROW(full.runner().ingest_request(0, {config(1, {.logit_bias = {{kVocab, 1.0F}}})}),
               Error);
}

}  // namespace
}  // namespace mstar

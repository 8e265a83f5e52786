#include "mstar/resources/positions.h"

#include <gtest/gtest.h>

#include "mstar/resources/test_rig.h"
#include "mstar/tensor/compare.h"

namespace mstar {
namespace {

KVSpec kv_spec() {
  return {.num_layers = 1,
          .num_kv_heads = 1,
          .head_dim = 8,
          .page_size = 4,
          .max_num_pages = 40,
          .dtype = DType::kF32,
          .prefix_cache = true};
}

PositionSpec position_spec() {
  return {.kv = "kv", .rope = {.head_dim = 8}};
}

std::vector<int64_t> ids(testing::Rig& rig,
                         const SubmoduleStep& step,
                         LabelId label,
                         const StepContext& context = {}) {
  std::vector<int64_t> got;
  EXPECT_TRUE(rig.run(step, context, [&](const StepContext& c) {
    got = rig.get<Positions>("pos").pos_ids({&c, label, 0}).to_ints();
  }));
  return got;
}

SubmoduleStep declare(int32_t span, bool commit = true) {
  SubmoduleStep step;
  step.add_segment(0, kMainLabel, span);
  step.kv.add(0).commit = commit;
  step.position.add(1);
  return step;
}

using Ids = std::vector<int64_t>;

TEST(Positions, CountOnAndFollowForksAndDiscards) {
  testing::Rig rig({{"kv", kv_spec()}, {"pos", position_spec()}});
  const LabelId other = rig.labels.intern("other");
  auto& positions = rig.get<Positions>("pos");
  rig.runner().ingest_request(0, {});
  EXPECT_EQ(ids(rig, declare(3), kMainLabel), (Ids{0, 1, 2}));
  EXPECT_EQ(ids(rig, declare(2, false), kMainLabel), (Ids{3, 4}));
  SubmoduleStep forking;
  forking.add_segment(0, kMainLabel, 1);
  forking.kv.add(0).post_forks = {{0, kMainLabel, other}};
  forking.position.add(1);
  EXPECT_EQ(ids(rig, forking, kMainLabel), (Ids{3})) << "scratch steps do not count";
  EXPECT_EQ(positions.position(0, other), 4);
  const SubmoduleStep step = declare(2);
  const StepContext context;
  EXPECT_EQ(ids(rig, step, kMainLabel, context), (Ids{4, 5}));
  rig.runner().discard(step, context, 0);
  EXPECT_EQ(ids(rig, declare(1), kMainLabel), (Ids{4}));
  EXPECT_EQ(rig.runner().publish(0).streams[0], (PublishedStream{kMainLabel, 5, 5}));
}

TEST(Positions, AFirstStepMayHaveNoTokens) {
  testing::Rig rig({{"kv", kv_spec()}, {"pos", position_spec()}});
  rig.runner().ingest_request(0, {});
  EXPECT_EQ(ids(rig, declare(0), kMainLabel), Ids{});
  EXPECT_EQ(ids(rig, declare(2), kMainLabel), (Ids{0, 1}));
}

TEST(Positions, BlockAndExplicitAdvance) {
  PositionSpec spec = position_spec();
  spec.scheme = PositionScheme::kBlock;
  spec.block_step = 2;
  testing::Rig rig({{"kv", kv_spec()}, {"pos", spec}});
  rig.runner().ingest_request(0, {});
  EXPECT_EQ(ids(rig, declare(3), kMainLabel), (Ids{0, 0, 0}));
  SubmoduleStep jumping;
  jumping.add_segment(0, kMainLabel, 2);
  jumping.kv.add(0);
  jumping.position.add(1).advance = {7};
  EXPECT_EQ(ids(rig, jumping, kMainLabel), (Ids{2, 2}));
  EXPECT_EQ(ids(rig, declare(1), kMainLabel), (Ids{9}));
}

TEST(Positions, ThreeAxesGivenFromOutside) {
  PositionSpec spec = position_spec();
  spec.num_axes = 3;
  spec.rope.layout = RopeConfig::Layout::kSectioned;
  spec.rope.section = {2, 1, 1};
  testing::Rig rig({{"kv", kv_spec()}, {"pos", spec}});
  rig.runner().ingest_request(0, {});
  SubmoduleStep step;
  step.add_segment(0, kMainLabel, 2);
  step.kv.add(0);
  PositionStep& own = step.position.add(1);
  own.pos_ids = {{kMainLabel, Tensor::from(std::vector<int64_t>{5, 5, 6, 7, 8, 9}, {3, 2})}};
  own.advance = {4};
  EXPECT_EQ(ids(rig, step, kMainLabel), (Ids{5, 5, 6, 7, 8, 9}));
  EXPECT_EQ(ids(rig, declare(1), kMainLabel), (Ids{4, 4, 4}));
}

TEST(Positions, PaddingBehindALeasedStepIsZero) {
  testing::Rig rig({{"kv", kv_spec()}, {"pos", position_spec()}});
  for (Resource* resource : rig.runner().ordered()) {
    resource->build_capture_buffers({.max_bs = 1, .max_num_tokens = 4, .labels = {kMainLabel}});
  }
  rig.runner().ingest_request(0, {});
  const StepContext leased{.lease = SlotLease{0, {.bs = 1, .num_tokens = 4}}};
  EXPECT_EQ(ids(rig, declare(4), kMainLabel, leased), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(ids(rig, declare(2), kMainLabel, leased), (Ids{4, 5, 0, 0}));
}

TEST(Positions, TablesRotateAsTheOpDoes) {
  testing::Rig rig({{"kv", kv_spec()}, {"pos", position_spec()}});
  rig.runner().ingest_request(0, {});
  ids(rig, declare(3), kMainLabel);
  Tensor q = Tensor::zeros({1, 2, 8}, DType::kF32);
  for (int64_t index = 0; index < 16; ++index) {
    q.data<float>()[index] = static_cast<float>(index) - 7.5F;
  }
  Tensor want = q.copy();
  Tensor k;
  ASSERT_TRUE(rig.run(declare(1), {}, [&](const StepContext& context) {
    rig.get<Positions>("pos").apply_qk(rig.stream(), {&context, kMainLabel, 0}, q, k);
  }));
  const RopeConfig config{.head_dim = 8};
  Tensor cos = Tensor::empty({1, 4}, DType::kF32);
  Tensor sin = Tensor::empty({1, 4}, DType::kF32);
  ops::rope_table(rig.stream(),
                  Tensor::from(std::vector<int32_t>{3}, {1}),
                  rope_inv_freq(config),
                  config,
                  cos,
                  sin);
  ops::apply_rope(rig.stream(), cos, sin, config, false, want);
  EXPECT_TRUE(compare(q, want, {.exact = true}).passed);
}

TEST(Positions, CachedPrefixIsSkipped) {
  testing::Rig rig({{"kv", kv_spec()}, {"pos", position_spec()}});
  const std::vector<RequestResourceConfig> configs{
      KVRequestConfig{.prefix_keys = {{kMainLabel, {1, 2, 3, 4, 5}}}}};
  rig.runner().ingest_request(0, configs);
  EXPECT_EQ(rig.runner().apply_cached_prefix(0, 0, kMainLabel), 0);
  ids(rig, declare(5), kMainLabel);
  rig.runner().remove_request(0);
  rig.runner().ingest_request(0, configs);
  EXPECT_EQ(rig.runner().apply_cached_prefix(0, 0, kMainLabel), 4);
  EXPECT_EQ(ids(rig, declare(1), kMainLabel), (Ids{4}));
}

}  // namespace
}  // namespace mstar

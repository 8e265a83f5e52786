#include "mstar/resources/kv_cache.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/resources/test_rig.h"

namespace mstar {
namespace {

KVSpec small_spec() {
  return {.num_layers = 1,
          .num_kv_heads = 1,
          .head_dim = 2,
          .page_size = 4,
          .max_num_pages = 9,
          .dtype = DType::kF32};
}

SubmoduleStep grow(RequestHandle request, int32_t span, bool commit = true) {
  SubmoduleStep step;
  step.add_segment(request, kMainLabel, span);
  step.kv.add(0).commit = commit;
  return step;
}

TEST(KvCache, ScratchStepsReuseTheSamePages) {
  testing::Rig rig({{"kv", small_spec()}});
  auto& kv = rig.get<KvCache>("kv");
  kv.ingest_request(0, {});
  ASSERT_TRUE(rig.run(grow(0, 6)));
  ASSERT_TRUE(rig.run(grow(0, 9, false)));
  const int64_t num_free = kv.stats().num_free;
  const std::vector<int32_t> pages(kv.find_stream(0, kMainLabel)->pages.ids().begin(),
                                   kv.find_stream(0, kMainLabel)->pages.ids().end());
  for (int repeat = 0; repeat < 3; ++repeat) {
    ASSERT_TRUE(rig.run(grow(0, 9, false)));
    EXPECT_EQ(kv.stats().num_free, num_free);
    EXPECT_TRUE(std::ranges::equal(kv.find_stream(0, kMainLabel)->pages.ids(), pages));
  }
  EXPECT_EQ(kv.find_stream(0, kMainLabel)->stored_len, 6);
  ASSERT_TRUE(rig.run(grow(0, 9)));
  EXPECT_EQ(kv.stats().num_free, num_free) << "the commit grows into the scratch pages";
}

TEST(KvCache, RefusesWhatDoesNotFitAndChangesNothing) {
  testing::Rig rig({{"kv", small_spec()}});
  auto& kv = rig.get<KvCache>("kv");
  kv.ingest_request(0, {});
  kv.ingest_request(1, {});
  ASSERT_TRUE(rig.run(grow(0, 20)));  // 5 of 8 pages
  SubmoduleStep step = grow(0, 4);
  step.add_segment(1, kMainLabel, 16);
  EXPECT_FALSE(rig.run(step));
  EXPECT_EQ(rig.last_refusal.reason, AdmitReason::kAllocationFailed);
  EXPECT_EQ(rig.last_refusal.request, 1);
  EXPECT_EQ(rig.last_refusal.resource, 0);
  EXPECT_EQ(rig.last_refusal.pages_short, 2);
  EXPECT_EQ(kv.stats().num_free, 3);
  kv.check_invariants();
  kv.remove_request(0);
  EXPECT_TRUE(rig.run(grow(1, 16)));
}

TEST(KvCache, PlanIsInPackingOrder) {
  testing::Rig rig({{"kv", small_spec()}});
  const LabelId uncond = rig.labels.intern("uncond");
  const LabelId both = rig.labels.intern("_cfg_batched");
  const LabelId other = rig.labels.intern("other");
  auto& kv = rig.get<KvCache>("kv");
  SubmoduleStep step;
  for (const RequestHandle request : {0, 1}) {
    kv.ingest_request(request, {});
    step.add_segment(request, kMainLabel, 2 + request);
    step.add_segment(request, other, 1);
    step.add_segment(request, uncond, 5);
  }
  step.kv.add(0).combined = {{both, 2, {kMainLabel, uncond}}};
  ASSERT_TRUE(rig.run(step, {}, [&](const StepContext& context) {
    ASSERT_EQ(kv.groups(context).size(), 2U);
    const KvGroupPlan& group = kv.group(context, both);
    EXPECT_EQ(group.num_tokens, 15);
    EXPECT_EQ(group.sequences[0].label, kMainLabel);
    EXPECT_EQ(group.sequences[1].request, 1);
    EXPECT_EQ(group.sequences[2].label, uncond);
    EXPECT_EQ(group.sequences[2].first_row, 5);
    EXPECT_EQ(group.paged_kv_indptr.to_ints(), (std::vector<int64_t>{0, 1, 2, 4, 6}));
    EXPECT_EQ(group.paged_kv_last_page_len.to_ints(), (std::vector<int64_t>{2, 3, 1, 1}));
    EXPECT_EQ(group.token_to_slot.to_ints(),
              (std::vector<int64_t>{0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 0, 1, 2, 3, 0}));
    EXPECT_EQ(kv.group(context, other).num_tokens, 2);
  }));
  EXPECT_EQ(kv.find_stream(1, uncond)->stored_len, 5);
}

TEST(KvCache, LeasedPlansKeepTheirAddressesAndNeutralisePadding) {
  testing::Rig rig({{"kv", small_spec()}});
  auto& kv = rig.get<KvCache>("kv");
  kv.build_capture_buffers({.max_bs = 3, .max_num_tokens = 8, .labels = {kMainLabel}});
  for (const RequestHandle request : {0, 1, 2}) {
    kv.ingest_request(request, {});
  }
  StepContext context{.lease = SlotLease{0, {.bs = 3, .num_tokens = 8}}};
  const int32_t* address = nullptr;
  const auto spans = [](int32_t a, int32_t b) {
    SubmoduleStep step = grow(0, a);
    step.add_segment(1, kMainLabel, b);
    step.add_segment(2, kMainLabel, 0);  // a padding row
    return step;
  };
  ASSERT_TRUE(rig.run(spans(5, 3), context, [&](const StepContext&) {
    address = kv.group(context, kMainLabel).token_to_page.data<int32_t>();
  }));
  ASSERT_TRUE(rig.run(spans(1, 1), context, [&](const StepContext&) {
    const KvGroupPlan& group = kv.group(context, kMainLabel);
    EXPECT_EQ(group.token_to_page.data<int32_t>(), address);
    EXPECT_EQ(group.token_to_page.dim(0), 8);
    EXPECT_EQ(group.num_tokens, 2);
    for (int64_t token = 2; token < 8; ++token) {
      EXPECT_EQ(group.token_to_page.data<int32_t>()[token], -1);
    }
    EXPECT_EQ(group.paged_kv_last_page_len.to_ints(), (std::vector<int64_t>{2, 4, 0}));
    EXPECT_EQ(group.paged_kv_indptr.to_ints(), (std::vector<int64_t>{0, 2, 3, 3}));
  }));
}

TEST(KvCache, PrefixHitsStartBehindTheSharedPages) {
  KVSpec spec = small_spec();
  spec.prefix_cache = true;
  testing::Rig rig({{"kv", spec}});
  auto& kv = rig.get<KvCache>("kv");
  const KVRequestConfig config{.prefix_keys = {{kMainLabel, {1, 2, 3, 4, 5, 6, 7, 8}}}};
  kv.ingest_request(0, config);
  EXPECT_EQ(kv.apply_cached_prefix(0, kMainLabel), 0);
  ASSERT_TRUE(rig.run(grow(0, 8)));
  const std::vector<uint64_t> generated{9, 10, 11, 12};
  kv.extend_prefix_keys(0, kMainLabel, generated);
  ASSERT_TRUE(rig.run(grow(0, 4)));
  kv.remove_request(0);
  EXPECT_EQ(kv.stats().num_listed, 3);
  EXPECT_EQ(kv.stats().num_free, 5);

  kv.ingest_request(1, config);
  EXPECT_EQ(kv.resolve_cached_prefix(1, kMainLabel), 4) << "the last token must be computed";
  kv.ingest_request(
      2,
      KVRequestConfig{.prefix_keys = {{kMainLabel, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}}}});
  EXPECT_EQ(rig.runner().apply_cached_prefix(0, 2, kMainLabel), 12);
  ASSERT_TRUE(rig.run(grow(2, 1)));
  EXPECT_EQ(kv.stats().num_free, 4) << "one page of its own";
  kv.ingest_request(3, {});
  ASSERT_TRUE(rig.run(grow(3, 16)));  // takes the rest
  EXPECT_FALSE(rig.run(grow(3, 1))) << "shared pages are in use";
  kv.remove_request(2);
  ASSERT_TRUE(rig.run(grow(3, 16))) << "the index gives its pages up";
  kv.check_invariants();
}

TEST(KvCache, ForksShareUntilSomebodyWrites) {
  testing::Rig rig({{"kv", small_spec()}});
  const LabelId other = rig.labels.intern("other");
  auto& kv = rig.get<KvCache>("kv");
  kv.ingest_request(0, {});
  SubmoduleStep forking;
  forking.add_segment(0, kMainLabel, 6);
  forking.kv.add(0).post_forks = {{0, kMainLabel, other}};
  ASSERT_TRUE(rig.run(forking));
  EXPECT_EQ(kv.stats().num_free, 6);
  EXPECT_EQ(kv.find_stream(0, other)->stored_len, 6);
  ASSERT_TRUE(rig.run(grow(0, 1)));
  EXPECT_EQ(kv.stats().num_free, 5) << "the page both stood on was copied";
  EXPECT_EQ(kv.stats().num_page_copies, 1);
  SubmoduleStep follow;
  follow.add_segment(0, other, 1);
  follow.kv.add(0);
  ASSERT_TRUE(rig.run(follow));
  EXPECT_EQ(kv.stats().num_page_copies, 1) << "the last holder writes in place";
}

TEST(KvCache, DiscardTakesBackGrowthAndReleasedPages) {
  testing::Rig rig({{"kv", small_spec()}});
  auto& kv = rig.get<KvCache>("kv");
  kv.ingest_request(0, {});
  ASSERT_TRUE(rig.run(grow(0, 11)));
  SubmoduleStep step;
  step.add_segment(0, kMainLabel, 2);
  step.kv.add(0).retentions = {{kMainLabel, {.context_budget = 8}}};
  const StepContext context;
  ASSERT_TRUE(rig.run(step, context, [](const StepContext&) {}));
  EXPECT_EQ(kv.find_stream(0, kMainLabel)->released, 4);
  EXPECT_EQ(kv.find_stream(0, kMainLabel)->resident_len(), 9) << "9 - 8 is less than a page";
  rig.runner().discard(step, context, 0);
  EXPECT_EQ(kv.find_stream(0, kMainLabel)->released, 0);
  EXPECT_EQ(kv.find_stream(0, kMainLabel)->resident_len(), 11);
  kv.check_invariants();
  rig.runner().discard(step, context, 0);
  EXPECT_EQ(kv.find_stream(0, kMainLabel)->stored_len, 11) << "once";
}

TEST(KvCache, PoisonedPagesAreNotFoundAgain) {
  KVSpec spec = small_spec();
  spec.prefix_cache = true;
  testing::Rig rig({{"kv", spec}});
  auto& kv = rig.get<KvCache>("kv");
  const KVRequestConfig config{.prefix_keys = {{kMainLabel, {1, 2, 3, 4, 5}}}};
  kv.ingest_request(0, config);
  const SubmoduleStep step = grow(0, 5);
  const StepContext context;
  ASSERT_TRUE(rig.run(step, context, [](const StepContext&) {}));
  kv.ingest_request(1, config);
  EXPECT_EQ(kv.resolve_cached_prefix(1, kMainLabel), 4);
  rig.runner().discard(step, context, 0, true);
  EXPECT_EQ(kv.resolve_cached_prefix(1, kMainLabel), 0);
}

TEST(KvCache, OffloadIsAllOrNothingAndRefusedDuringAStep) {
  KVSpec spec = small_spec();
  spec.cpu_offload_pages = 2;
  testing::Rig rig({{"kv", spec}});
  auto& kv = rig.get<KvCache>("kv");
  kv.ingest_request(0, {});
  ASSERT_TRUE(rig.run(grow(0, 9)));
  EXPECT_EQ(kv.offload(0), 0) << "3 pages do not fit 2";
  kv.ingest_request(1, {});
  const SubmoduleStep step = grow(1, 5);
  {
    const StepContext context;
    Reservation reservation = rig.runner().reserve(step, context);
    ASSERT_TRUE(reservation);
    EXPECT_EQ(kv.offload(1), 0);
  }
  ASSERT_TRUE(rig.run(step));
  EXPECT_EQ(kv.offload_victim({}), 0) << "longest unused";
  const std::vector<RequestHandle> keep{0};
  EXPECT_EQ(kv.offload_victim(keep), 1);
  EXPECT_EQ(kv.offload(1), 2);
  EXPECT_FALSE(rig.run(step));
  EXPECT_EQ(rig.last_refusal.reason, AdmitReason::kRequestOffloading);
  EXPECT_FALSE(rig.last_refusal.ready);
  EXPECT_TRUE(kv.reload(1));
  EXPECT_TRUE(rig.run(grow(1, 1)));
}

TEST(KvCache, LimitsAreErrorsOfTheRequest) {
  KVSpec spec = small_spec();
  spec.max_seq_len = 10;
  testing::Rig rig({{"kv", spec}});
  auto& kv = rig.get<KvCache>("kv");
  EXPECT_THROW(kv.ingest_request(0, KVRequestConfig{.max_tokens = 11}), Error);
  kv.ingest_request(0, {});
  EXPECT_FALSE(rig.run(grow(0, 11)));
  EXPECT_TRUE(rig.last_refusal.is_terminal());
  EXPECT_NE(rig.last_refusal.message.find("the limit is 10"), std::string::npos);
}

TEST(KvCache, PromisesHoldRequestsBack) {
  testing::Rig rig({{"kv", small_spec()}});
  auto& kv = rig.get<KvCache>("kv");
  kv.ingest_request(0, KVRequestConfig{.max_tokens = 20});  // 5 of 8 pages
  kv.ingest_request(1, KVRequestConfig{.max_tokens = 16});
  kv.ingest_request(2, KVRequestConfig{.max_tokens = 40});
  kv.ingest_request(3, {});
  EXPECT_TRUE(kv.admit_request(0));
  EXPECT_EQ(kv.admit_request(1).reason, AdmitReason::kAdmitWait);
  EXPECT_TRUE(kv.admit_request(2).is_terminal());
  EXPECT_TRUE(kv.admit_request(3)) << "promised nothing";
  kv.remove_request(0);
  EXPECT_TRUE(kv.admit_request(1));
}

TEST(KvCache, PublishesAndResets) {
  testing::Rig rig({{"kv", small_spec()}});
  const LabelId other = rig.labels.intern("other");
  auto& kv = rig.get<KvCache>("kv");
  kv.ingest_request(
      0, KVRequestConfig{.needed_labels = {kMainLabel, other}, .publish_labels = {kMainLabel}});
  ASSERT_TRUE(rig.run(grow(0, 5)));
  const PublishedInfo info = rig.runner().publish(0);
  ASSERT_EQ(info.streams.size(), 1U);
  EXPECT_EQ(info.streams[0], (PublishedStream{kMainLabel, 5, -1}));
  kv.reset_request(0, false);
  EXPECT_EQ(kv.stats().num_free, 6) << "padding rows keep their pages";
  kv.reset_request(0, true);
  EXPECT_EQ(kv.stats().num_free, 8);
}

}  // namespace
}  // namespace mstar

// All kinds of attention against each other and against unbatched runs.

#include "mstar/resources/attention_plan.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/kernels/ops/sampling.h"
#include "mstar/resources/dense_attention.h"
#include "mstar/resources/test_rig.h"
#include "mstar/tensor/compare.h"

namespace mstar {
namespace {

constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kDim = 8;

KVSpec kv_spec() {
  return {.num_layers = 2,
          .num_kv_heads = kKvHeads,
          .head_dim = kDim,
          .page_size = 4,
          .max_num_pages = 40,
          .dtype = DType::kF32};
}

class AttentionTest : public ::testing::Test {
 protected:
  AttentionTest()
      : rig_({{"kv", kv_spec()},
              {"attn", AttentionSpec{.kv = "kv"}},
              {"attn_gen", AttentionSpec{.kind = AttentionKind::kDense, .kv = "kv"}},
              {"ragged", AttentionSpec{.kind = AttentionKind::kRagged}},
              {"context", kv_spec()},
              {"cross", AttentionSpec{.kind = AttentionKind::kCross, .kv = "context"}}}) {}

  Tensor random(int64_t rows, int64_t heads, uint64_t seed) {
    Tensor out = Tensor::empty({rows, heads, kDim}, DType::kF32);
    ops::fill_normal(rig_.stream(), seed, 0, out);
    return out;
  }

  Tensor attend(const std::string& key, const StepContext& context, uint64_t seed, int64_t rows) {
    Tensor out = Tensor::empty({rows, kHeads, kDim}, DType::kF32);
    rig_.get<AttentionResource>(key).attend(rig_.stream(),
                                            {&context, kMainLabel, 1},
                                            random(rows, kHeads, seed),
                                            random(rows, kKvHeads, seed + 1),
                                            random(rows, kKvHeads, seed + 2),
                                            out);
    return out;
  }

  Tensor run(const std::string& key,
             const SubmoduleStep& step,
             uint64_t seed,
             int64_t rows,
             const StepContext& context = {}) {
    Tensor out;
    EXPECT_TRUE(
        rig_.run(step, context, [&](const StepContext& c) { out = attend(key, c, seed, rows); }));
    return out;
  }

  SubmoduleStep declare(const std::string& key, int32_t span, bool commit, bool causal) {
    SubmoduleStep step;
    step.add_segment(0, kMainLabel, span);
    step.kv.add(rig_.id("kv")).commit = commit;
    step.attention.add(rig_.id(key)).causal = causal;
    return step;
  }

  testing::Rig rig_;
};

TEST_F(AttentionTest, DenseEqualsPagedOnScratchSteps) {
  rig_.runner().ingest_request(0, {});
  run("attn", declare("attn", 6, true, true), 1, 6);
  for (const uint64_t seed : {10U, 20U}) {
    const Tensor paged = run("attn", declare("attn", 5, false, false), seed, 5);
    const Tensor dense = run("attn_gen", declare("attn_gen", 5, false, false), seed, 5);
    EXPECT_TRUE(compare(dense, paged, {.atol = 1e-6, .rtol = 1e-5}).passed);
  }
  // The stream grows: the gathered prefix must not be the old one.
  run("attn", declare("attn", 3, true, true), 30, 3);
  const Tensor paged = run("attn", declare("attn", 5, false, false), 40, 5);
  const Tensor dense = run("attn_gen", declare("attn_gen", 5, false, false), 40, 5);
  EXPECT_TRUE(compare(dense, paged, {.atol = 1e-6, .rtol = 1e-5}).passed);
  EXPECT_EQ(rig_.get<DenseAttention>("attn_gen").num_prefixes(), 1);
  rig_.runner().remove_request(0);
  EXPECT_EQ(rig_.get<DenseAttention>("attn_gen").num_prefixes(), 0);
}

TEST_F(AttentionTest, ReplayEqualsEagerWithOtherLengths) {
  auto& stream = rig_.stream();
  for (Resource* resource : rig_.runner().ordered()) {
    resource->build_capture_buffers({.max_bs = 1, .max_num_tokens = 4, .labels = {kMainLabel}});
  }
  rig_.runner().ingest_request(0, {});
  rig_.runner().ingest_request(1, {});
  const StepContext leased{.lease = SlotLease{0, {.bs = 1, .num_tokens = 4}}};
  const Tensor q = Tensor::zeros({4, kHeads, kDim}, DType::kF32);
  const Tensor k = Tensor::zeros({4, kKvHeads, kDim}, DType::kF32);
  Tensor out = Tensor::zeros({4, kHeads, kDim}, DType::kF32);
  std::unique_ptr<CapturedGraph> graph;
  const auto forward = [&](const StepContext& context) {
    rig_.get<AttentionResource>("attn").attend(stream, {&context, kMainLabel, 1}, q, k, k, out);
  };
  ASSERT_TRUE(rig_.run(declare("attn", 4, true, true), leased, [&](const StepContext& context) {
    stream.begin_capture();
    forward(context);
    graph = stream.end_capture();
  }));
  rig_.runner().reset_request(0, false);
  for (const int32_t span : {4, 1, 3, 2, 4}) {
    Tensor real_q = q.slice(0, 0, span);
    Tensor real_k = k.slice(0, 0, span);
    ops::fill_normal(stream, static_cast<uint64_t>(span), 0, real_q);
    ops::fill_normal(stream, static_cast<uint64_t>(span), 1, real_k);
    ASSERT_TRUE(rig_.run(
        declare("attn", span, true, true), leased, [&](const StepContext&) { graph->replay(); }));
    SubmoduleStep eager = declare("attn", span, true, true);
    eager.segments[0].request = 1;
    Tensor want = Tensor::empty({span, kHeads, kDim}, DType::kF32);
    ASSERT_TRUE(rig_.run(eager, {.slot = 1}, [&](const StepContext& context) {
      rig_.get<AttentionResource>("attn").attend(
          stream, {&context, kMainLabel, 1}, real_q, real_k, real_k, want);
    }));
    EXPECT_TRUE(compare(out.slice(0, 0, span), want, {.exact = true}).passed) << span;
  }
}

TEST_F(AttentionTest, BatchEqualsSingles) {
  for (const RequestHandle request : {0, 1, 2}) {
    rig_.runner().ingest_request(request, {});
  }
  SubmoduleStep batch = declare("attn", 3, true, true);
  batch.add_segment(1, kMainLabel, 5);
  const Tensor both = run("attn", batch, 7, 8);
  SubmoduleStep single = declare("attn", 5, true, true);
  single.segments[0].request = 2;
  Tensor alone = Tensor::empty({5, kHeads, kDim}, DType::kF32);
  ASSERT_TRUE(rig_.run(single, {}, [&](const StepContext& context) {
    rig_.get<AttentionResource>("attn").attend(rig_.stream(),
                                               {&context, kMainLabel, 1},
                                               random(8, kHeads, 7).slice(0, 3, 8),
                                               random(8, kKvHeads, 8).slice(0, 3, 8),
                                               random(8, kKvHeads, 9).slice(0, 3, 8),
                                               alone);
  }));
  EXPECT_TRUE(compare(both.slice(0, 3, 8), alone, {.exact = true}).passed);
}

TEST_F(AttentionTest, CrossReadsAContextWrittenOnce) {
  rig_.runner().ingest_request(0, {});
  auto& cross = rig_.get<AttentionResource>("cross");
  const Tensor k = random(9, kKvHeads, 50);
  const Tensor v = random(9, kKvHeads, 51);
  const Tensor q = random(3, kHeads, 52);
  Tensor want = Tensor::empty(q.shape(), DType::kF32);
  const Tensor qo = Tensor::from(std::vector<int32_t>{0, 3}, {2});
  const Tensor kv = Tensor::from(std::vector<int32_t>{0, 9}, {2});
  ops::ragged_attention(rig_.stream(), q, k, v, qo, kv, {.causal = false}, want);
  for (const int32_t context_span : {9, 0, 0}) {
    SubmoduleStep step;
    step.add_segment(0, kMainLabel, 3);  // the decoder's own rows
    step.kv.add(rig_.id("context")).segments = {{0, kMainLabel, context_span}};
    step.attention.add(rig_.id("cross"));
    Tensor out = Tensor::empty(q.shape(), DType::kF32);
    ASSERT_TRUE(rig_.run(step, {}, [&](const StepContext& context) {
      const AttentionContext at{&context, kMainLabel, 0};
      EXPECT_EQ(cross.has_context_growth(at), context_span > 0);
      if (cross.has_context_growth(at)) {
        cross.write_context(rig_.stream(), at, k, v);
      }
      cross.attend(rig_.stream(), at, q, Tensor(), Tensor(), out);
    }));
    EXPECT_TRUE(compare(out, want, {.atol = 1e-6, .rtol = 1e-5}).passed);
  }
  EXPECT_EQ(rig_.get<KvCache>("context").find_stream(0, kMainLabel)->stored_len, 9);
}

TEST_F(AttentionTest, RaggedSegmentsSeeThemselvesOnly) {
  SubmoduleStep step;
  step.add_segment(0, kMainLabel, 3);
  step.add_segment(1, kMainLabel, 2);
  step.attention.add(rig_.id("ragged")).causal = false;
  const Tensor both = run("ragged", step, 60, 5);
  SubmoduleStep single;
  single.add_segment(0, kMainLabel, 3);
  single.attention.add(rig_.id("ragged")).causal = false;
  Tensor alone = Tensor::empty({3, kHeads, kDim}, DType::kF32);
  Tensor last = Tensor::empty({2, kHeads * kDim}, DType::kF32);
  ASSERT_TRUE(rig_.run(single, {}, [&](const StepContext& context) {
    rig_.get<AttentionResource>("ragged").attend(rig_.stream(),
                                                 {&context, kMainLabel, 0},
                                                 random(5, kHeads, 60).slice(0, 0, 3),
                                                 random(5, kKvHeads, 61).slice(0, 0, 3),
                                                 random(5, kKvHeads, 62).slice(0, 0, 3),
                                                 alone);
  }));
  EXPECT_TRUE(compare(both.slice(0, 0, 3), alone, {.exact = true}).passed);
  ASSERT_TRUE(rig_.run(step, {}, [&](const StepContext& context) {
    rig_.get<AttentionResource>("ragged").select_last_hidden(
        rig_.stream(), {&context, kMainLabel, 0}, both.view({5, kHeads * kDim}), last);
  }));
  EXPECT_TRUE(
      compare(last.slice(0, 1, 2), both.view({5, kHeads * kDim}).slice(0, 4, 5), {.exact = true})
          .passed);
}

TEST(BuildResource, NamesWhatIsMissing) {
  EXPECT_THROW(testing::Rig({{"attn", AttentionSpec{.kv = "kv"}}}), Error);
  EXPECT_THROW(testing::Rig({{"attn", AttentionSpec{}}}), Error);
  EXPECT_THROW(testing::Rig({{"kv", KVSpec{}}}), Error);
  ResourceSpec spec = kv_spec();
  EXPECT_THROW(apply_overrides(spec, Json::parse(R"({"max_pages": 3})"), "resources.kv"), Error);
  EXPECT_THROW(apply_overrides(spec, Json::parse(R"({"page_size": 0})"), "resources.kv"), Error);
  apply_overrides(
      spec, Json::parse(R"({"page_size": 16, "admission_order": "backfill"})"), "resources.kv");
  EXPECT_EQ(std::get<KVSpec>(spec).page_size, 16);
  EXPECT_EQ(std::get<KVSpec>(spec).admission.order, AdmissionOrder::kBackfill);
}

}  // namespace
}  // namespace mstar

#include "mstar/kernels/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "mstar/kernels/isa_test_util.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

Tensor random(const Shape& shape, uint32_t seed, DType dtype = DType::kF32, float spread = 1.0F) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-spread, spread);
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (float& value : values) {
    value = uniform(generator);
  }
  return Tensor::from(values, shape).to(dtype);
}

Tensor ints(const std::vector<int32_t>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

// Sequences of q_lens[s] new rows after which kv_lens[s] keys are in pages of a shuffled pool.
// Free slots hold 1e4: a read beyond a sequence shows.
struct Batch {
  Tensor q;
  Tensor qo_indptr;
  PagedKv kv;
  std::vector<int32_t> q_lens;
  std::vector<int32_t> kv_lens;

  Tensor attend(Stream& stream, const AttentionOptions& options) const {
    Tensor out = Tensor::empty(q.shape(), q.dtype());
    ops::paged_attention(stream, q, qo_indptr, kv, options, out);
    return out;
  }
};

struct Heads {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
};

Batch make_batch(const std::vector<int32_t>& q_lens,
                 const std::vector<int32_t>& kv_lens,
                 Heads heads,
                 int32_t page_size,
                 DType dtype) {
  std::vector<int32_t> qo{0};
  std::vector<int32_t> indptr{0};
  std::vector<int32_t> last;
  for (size_t s = 0; s < q_lens.size(); ++s) {
    qo.push_back(qo.back() + q_lens[s]);
    indptr.push_back(indptr.back() + (kv_lens[s] + page_size - 1) / page_size);
    last.push_back(kv_lens[s] == 0 ? 0 : (kv_lens[s] - 1) % page_size + 1);
  }
  const int32_t num_pages = indptr.back() + 3;
  std::vector<int32_t> indices(static_cast<size_t>(indptr.back()));
  for (size_t index = 0; index < indices.size(); ++index) {
    indices[index] = num_pages - 2 - static_cast<int32_t>(index);
  }
  Batch batch;
  batch.q_lens = q_lens;
  batch.kv_lens = kv_lens;
  batch.q = random({qo.back(), heads.num_heads, heads.head_dim}, 1, dtype, 2.0F);
  batch.qo_indptr = ints(qo);
  batch.kv.pages =
      random({num_pages, 2, page_size, heads.num_kv_heads, heads.head_dim}, 2, dtype, 2.0F);
  batch.kv.paged_kv_indptr = ints(indptr);
  batch.kv.paged_kv_indices = ints(indices);
  batch.kv.paged_kv_last_page_len = ints(last);
  for (size_t s = 0; s < last.size(); ++s) {
    for (int32_t slot = last[s]; slot < page_size && last[s] > 0; ++slot) {
      Tensor page = batch.kv.pages.select(0, indices[static_cast<size_t>(indptr[s + 1] - 1)]);
      for (int64_t value = 0; value < 2; ++value) {
        const Tensor row = page.select(0, value).select(0, slot);
        const Tensor garbage =
            Tensor::from(std::vector<float>(static_cast<size_t>(row.num_elements()), 1e4F),
                         row.shape())
                .to(dtype);
        std::copy_n(garbage.bytes(), garbage.size_bytes(), row.bytes());
      }
    }
  }
  return batch;
}

// The same sequence alone.
Batch single(const Batch& all, size_t s) {
  const auto* qo = all.qo_indptr.data<int32_t>();
  const auto* indptr = all.kv.paged_kv_indptr.data<int32_t>();
  Batch one;
  one.q = all.q.slice(0, qo[s], qo[s + 1]);
  one.qo_indptr = ints({0, qo[s + 1] - qo[s]});
  one.kv = all.kv;
  one.kv.paged_kv_indptr = ints({0, indptr[s + 1] - indptr[s]});
  one.kv.paged_kv_indices = all.kv.paged_kv_indices.slice(0, indptr[s], indptr[s + 1]);
  one.kv.paged_kv_last_page_len =
      all.kv.paged_kv_last_page_len.slice(0, static_cast<int64_t>(s), static_cast<int64_t>(s) + 1);
  return one;
}

// Weights sum to one and values are below 2: an f32 product errs by about d epsilon |q| |k|.
Tolerance tolerance_for(DType dtype, int64_t head_dim) {
  const double scores = std::sqrt(static_cast<double>(head_dim)) * 4.0 * 1.2e-7 * 4.0;
  return dtype == DType::kBF16 ? Tolerance{.atol = 0.004, .rtol = 0.008}
                               : Tolerance{.atol = 2.0 * scores + 2e-6, .rtol = 1e-6};
}

struct Setting {
  Heads heads;
  int32_t page_size;
  DType dtype;
  AttentionOptions options;
};

std::vector<Setting> settings() {
  return {
      {{4, 2, 16}, 4, DType::kF32, {}},
      {{4, 4, 64}, 16, DType::kF32, {.causal = false}},
      {{6, 1, 72}, 5, DType::kBF16, {}},
      {{5, 5, 20}, 1, DType::kF32, {.window = 37}},
      {{4, 2, 33}, 7, DType::kF32, {.scale = 0.3F, .soft_cap = 2.0F}},
      {{8, 2, 128}, 16, DType::kBF16, {.causal = false, .window = 300}},
      {{1, 1, 320}, 16, DType::kF32, {}},
  };
}

const std::vector<int32_t> kQueryLens = {1, 7, 0, 33, 1, 1, 2, 90, 1};
const std::vector<int32_t> kKeyLens = {1, 7, 5, 150, 700, 0, 1, 90, 130};

TEST(Attention, PagedMatchesTheSlowTwinOnEveryPath) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  for (const Setting& setting : settings()) {
    const Batch batch =
        make_batch(kQueryLens, kKeyLens, setting.heads, setting.page_size, setting.dtype);
    Tensor want;
    {
      const ScopedReference slow;
      want = batch.attend(stream, setting.options);
    }
    for (const Isa isa : available_isas()) {
      const ScopedIsa scope(isa);
      const Tensor got = batch.attend(stream, setting.options);
      const Comparison result =
          compare(got, want, tolerance_for(setting.dtype, setting.heads.head_dim));
      EXPECT_TRUE(result.passed) << to_string(isa) << " head_dim " << setting.heads.head_dim << " "
                                 << result.to_string();
    }
  }
}

TEST(Attention, BatchOfManyEqualsSinglesBitForBit) {
  ThreadPool one_thread(1);
  ThreadPool three_threads(3);
  CpuStream alone(one_thread);
  CpuStream together(three_threads);
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    for (const Setting& setting : settings()) {
      const Batch batch =
          make_batch(kQueryLens, kKeyLens, setting.heads, setting.page_size, setting.dtype);
      const Tensor all = batch.attend(together, setting.options);
      const auto* qo = batch.qo_indptr.data<int32_t>();
      for (size_t s = 0; s < kQueryLens.size(); ++s) {
        const Tensor want = all.slice(0, qo[s], qo[s + 1]);
        const Batch one = single(batch, s);
        EXPECT_TRUE(compare(one.attend(alone, setting.options), want, {.exact = true}).passed);
        EXPECT_TRUE(compare(one.attend(together, setting.options), want, {.exact = true}).passed);
      }
    }
  }
}

TEST(Attention, LongDecodeSplitOverThreadsEqualsOneThread) {
  ThreadPool one_thread(1);
  ThreadPool four_threads(4);
  CpuStream alone(one_thread);
  CpuStream together(four_threads);
  for (const AttentionOptions& options : {AttentionOptions{}, AttentionOptions{.window = 1500}}) {
    const Batch batch = make_batch({1, 1}, {2600, 513}, {4, 1, 32}, 16, DType::kF32);
    const Tensor want = batch.attend(alone, options);
    EXPECT_TRUE(compare(batch.attend(together, options), want, {.exact = true}).passed);
    const ScopedReference slow;
    const Comparison result =
        compare(want, batch.attend(alone, options), tolerance_for(DType::kF32, 32));
    EXPECT_TRUE(result.passed) << result.to_string();
  }
}

TEST(Attention, OneTokenAtATimeIsTheWholePrefill) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  const Batch whole = make_batch({40}, {40}, {4, 2, 24}, 4, DType::kF32);
  const Tensor want = whole.attend(stream, {});
  for (int32_t token = 0; token < 40; ++token) {
    Batch step = single(whole, 0);
    step.q = whole.q.slice(0, token, token + 1);
    step.qo_indptr = ints({0, 1});
    step.kv.paged_kv_indptr = ints({0, token / 4 + 1});
    step.kv.paged_kv_last_page_len = ints({token % 4 + 1});
    const Comparison result = compare(
        step.attend(stream, {}), want.slice(0, token, token + 1), tolerance_for(DType::kF32, 24));
    EXPECT_TRUE(result.passed) << token << " " << result.to_string();
  }
}

TEST(Attention, ReplayReadsNewLengthsAndEqualsEager) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  Batch batch = make_batch({1, 20, 1}, {600, 20, 33}, {4, 2, 32}, 16, DType::kBF16);
  Tensor out = Tensor::empty(batch.q.shape(), batch.q.dtype());
  stream.begin_capture();
  ops::paged_attention(stream, batch.q, batch.qo_indptr, batch.kv, {}, out);
  const auto graph = stream.end_capture();
  batch.kv.paged_kv_last_page_len.data<int32_t>()[0] -= 3;
  batch.qo_indptr.data<int32_t>()[2] -= 5;  // the second sequence has 15 rows now,
  batch.qo_indptr.data<int32_t>()[3] -= 5;  // the last five of q are padding
  graph->replay();
  const Tensor eager = batch.attend(stream, {});
  EXPECT_TRUE(compare(out, eager, {.exact = true}).passed);
  for (const float value : out.slice(0, 17, 22).copy().to_floats()) {
    EXPECT_EQ(value, 0.0F);
  }
}

TEST(Attention, RaggedAndTwoPartEqualPagedBitForBit) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Batch batch = make_batch({50, 1, 9}, {170, 90, 9}, {4, 2, 40}, 8, dtype);
    const Tensor want = batch.attend(stream, {});
    Tensor k = Tensor::empty({269, 2, 40}, dtype);
    Tensor v = Tensor::empty({269, 2, 40}, dtype);
    const std::vector<int32_t> kv_indptr{0, 170, 260, 269};
    for (int64_t s = 0; s < 3; ++s) {
      Tensor keys = k.slice(0, kv_indptr[s], kv_indptr[s + 1]);
      Tensor values = v.slice(0, kv_indptr[s], kv_indptr[s + 1]);
      ops::gather_paged_kv(stream, batch.kv, s, keys, values);
    }
    Tensor out = Tensor::empty(want.shape(), dtype);
    ops::ragged_attention(stream, batch.q, k, v, batch.qo_indptr, ints(kv_indptr), {}, out);
    EXPECT_TRUE(compare(out, want, {.exact = true}).passed);

    Tensor first = Tensor::empty({50, 4, 40}, dtype);
    for (const int64_t cut : {0, 1, 100, 170}) {
      ops::two_part_attention(stream,
                              batch.q.slice(0, 0, 50),
                              k.slice(0, 0, cut),
                              v.slice(0, 0, cut),
                              k.slice(0, cut, 170),
                              v.slice(0, cut, 170),
                              {},
                              first);
      EXPECT_TRUE(compare(first, want.slice(0, 0, 50), {.exact = true}).passed) << cut;
    }
  }
}

TEST(Attention, StridedQueriesAndHugeScores) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    // q, k and v are slices of one fused projection; scores reach 1e5.
    const Tensor qkv = random({30, 3, 2, 24}, 5, DType::kF32, 100.0F);
    const Tensor q = qkv.select(1, 0);
    const Tensor k = qkv.select(1, 1);
    const Tensor v = qkv.select(1, 2);
    const Tensor none = k.slice(0, 0, 0);
    Tensor got = Tensor::empty({30, 2, 24}, DType::kF32);
    Tensor want = Tensor::empty({30, 2, 24}, DType::kF32);
    ops::two_part_attention(stream, q, none, none, k, v, {}, got);
    const ScopedReference slow;
    ops::two_part_attention(stream, q, none, none, k, v, {}, want);
    // A score of 1e5 carries an error of 1e5 epsilon, its weight e^that.
    const Comparison result = compare(got, want, {.atol = 100.0 * 1e5 * 2.4e-7});
    EXPECT_TRUE(result.passed) << result.to_string();
  }
}

TEST(PagedKv, WritesDropAndConvert) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    const Tensor k = random({3, 2, 10}, 6);
    const Tensor v = random({3, 2, 10}, 7);
    Tensor pages = Tensor::zeros({2, 2, 4, 2, 10}, DType::kBF16);
    ops::write_paged_kv(stream, k, v, ints({1, -1, 0}), ints({3, 0, 2}), pages);
    const auto slot = [&](int64_t page, int64_t value, int64_t index) {
      return pages.select(0, page).select(0, value).select(0, index);
    };
    EXPECT_TRUE(compare(slot(1, 0, 3), k.select(0, 0).to(DType::kBF16), {.exact = true}).passed);
    EXPECT_TRUE(compare(slot(1, 1, 3), v.select(0, 0).to(DType::kBF16), {.exact = true}).passed);
    EXPECT_TRUE(compare(slot(0, 1, 2), v.select(0, 2).to(DType::kBF16), {.exact = true}).passed);
    int64_t filled = 0;
    for (const float value : pages.to_floats()) {
      filled += value != 0.0F ? 1 : 0;
    }
    EXPECT_LE(filled, 80);
  }
}

}  // namespace
}  // namespace mstar

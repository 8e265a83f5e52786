#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "mstar/base/error.h"
#include "mstar/collectives/thread_group.h"
#include "mstar/components/parallel/embedding.h"
#include "mstar/components/parallel/linear.h"
#include "mstar/components/parallel/mlp.h"
#include "mstar/components/parallel/moe.h"
#include "mstar/components/parallel/sequence_parallel.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

constexpr Tolerance kClose{1e-5, 1e-5};

Tensor noise(const Shape& shape, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  uint32_t state = seed * 2654435761U + 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) / 16777216.0F - 0.5F;
  }
  return Tensor::from(values, shape);
}

// Loads the same checkpoint values whatever the rank.
void fill(Module& module, ThreadPool& pool) {
  for (const LoadTarget& target : module.load_targets()) {
    uint32_t seed = 17;
    for (const char letter : target.name) {
      seed = seed * 31 + static_cast<uint32_t>(letter);
    }
    for (const ShardSpec& spec : target.parameter->shards()) {
      seed = seed * 31 + static_cast<uint32_t>(spec.id.empty() ? 0 : spec.id[0]) + spec.id.size();
      target.weight_loader(*target.parameter, noise(spec.shape, seed), spec.id);
    }
  }
  module.finalize({pool});
}

// Runs function(stream, pool, group) on `world` ranks.
void on_ranks(int world, const std::function<void(Stream&, ThreadPool&, CommGroup&)>& function) {
  ThreadMesh mesh(world, 1);
  run_ranks(mesh, [&](int, const JointGroups& groups) {
    ThreadPool pool(1);
    CpuStream stream(pool);
    function(stream, pool, *groups.tp);
  });
}

// Builds the module alone and on 2 and 4 ranks; the ranks' results must equal the single one's.
template <typename Make, typename Forward>
void expect_same_on_all_worlds(Make make, Forward forward) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  auto alone = make(single_rank_group());
  fill(*alone, pool);
  const Tensor want = forward(*alone, stream).copy();
  for (const int world : {2, 4}) {
    on_ranks(world, [&](Stream& rank_stream, ThreadPool& rank_pool, CommGroup& comm) {
      auto module = make(comm);
      fill(*module, rank_pool);
      const Tensor got = forward(*module, rank_stream);
      const Comparison result = compare(got, want, kClose);
      EXPECT_TRUE(result.passed) << "world " << world << ": " << result.to_string();
    });
  }
}

TEST(Parallel, GatheredColumnsAndReducedRowsEqualTheWhole) {
  const Tensor x = noise({3, 8}, 1);
  expect_same_on_all_worlds(
      [](CommGroup& comm) {
        return std::make_unique<ColumnParallelLinear>(
            comm, 8, 12, ColumnParallelOptions{.bias = true, .gather_output = true});
      },
      [&](auto& module, Stream& stream) { return module.forward(stream, x); });
  expect_same_on_all_worlds(
      [](CommGroup& comm) {
        return std::make_unique<RowParallelLinear>(
            comm, 8, 6, RowParallelOptions{.bias = true, .input_is_parallel = false});
      },
      [&](auto& module, Stream& stream) {
        return module.forward(stream, x, noise({3, 6}, 2));  // the residual counts once
      });
}

TEST(Parallel, MlpsEqualTheWhole) {
  const Tensor x = noise({3, 8}, 1);
  const ParallelGatedMlpConfig config{.hidden_size = 8, .intermediate_size = 12, .bias = true};
  expect_same_on_all_worlds(
      [&](CommGroup& comm) { return std::make_unique<ParallelGatedMLP>(comm, config); },
      [&](auto& module, Stream& stream) { return module.forward(stream, x, x); });
  expect_same_on_all_worlds(
      [&](CommGroup& comm) { return std::make_unique<ParallelGatedMLPUnfused>(comm, config); },
      [&](auto& module, Stream& stream) { return module.forward(stream, x); });
}

TEST(Parallel, MoeBlocksEqualTheWhole) {
  const Tensor x = noise({5, 8}, 1);
  const MoeConfig config{
      .hidden_size = 8, .num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 8};
  expect_same_on_all_worlds(
      [&](CommGroup& comm) {
        return std::make_unique<ParallelSparseMoeBlock>(config, nullptr, comm);
      },
      [&](auto& module, Stream& stream) { return module.forward(stream, x, x); });
  expect_same_on_all_worlds(
      [&](CommGroup& comm) {
        return std::make_unique<ParallelSparseMoeBlockWithSharedExpert>(
            config,
            std::make_unique<ParallelGatedMLP>(
                comm, ParallelGatedMlpConfig{.hidden_size = 8, .intermediate_size = 4}),
            nullptr,
            comm);
      },
      [&](auto& module, Stream& stream) { return module.forward(stream, x); });
}

TEST(Parallel, EmbeddingsSumExactly) {
  const Tensor ids = Tensor::from(std::vector<int32_t>{0, 7, 3, 100, -1}, {5});
  ThreadPool pool(1);
  CpuStream stream(pool);
  VocabParallelEmbedding alone(single_rank_group(), 8, 4);
  fill(alone, pool);
  const std::vector<float> want = alone.forward(stream, ids, DType::kF32).to_floats();
  on_ranks(4, [&](Stream& rank_stream, ThreadPool& rank_pool, CommGroup& comm) {
    VocabParallelEmbedding table(comm, 8, 4);
    fill(table, rank_pool);
    EXPECT_EQ(table.forward(rank_stream, ids, DType::kF32).to_floats(), want);
  });
}

TEST(Parallel, SkippedBiasIsTheCallers) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  ColumnParallelLinear with(single_rank_group(), 4, 3, {.bias = true});
  ColumnParallelLinear without(single_rank_group(), 4, 3, {.bias = true, .skip_bias_add = true});
  fill(with, pool);
  fill(without, pool);
  const Tensor x = noise({1, 4}, 1);
  std::vector<float> sum = without.forward(stream, x).to_floats();
  const std::vector<float> bias = without.bias().to_floats();
  for (size_t index = 0; index < sum.size(); ++index) {
    sum[index] += bias[index];
  }
  const Tensor got = with.forward(stream, x);
  EXPECT_TRUE(compare(got, Tensor::from(sum, {1, 3}), kClose).passed);
}

TEST(Parallel, RefusesWhatCannotBeSplitOrAddedOnce) {
  EXPECT_THROW(
      RowParallelLinear(single_rank_group(), 4, 4, {.bias = true, .reduce_results = false}), Error);
  EXPECT_NO_THROW(RowParallelLinear(
      single_rank_group(), 4, 4, {.bias = true, .reduce_results = false, .skip_bias_add = true}));
  const auto members = ThreadGroup::create(3);
  CommGroup& three = *members[0];
  EXPECT_THROW(ColumnParallelLinear(three, 4, 4), Error);
  EXPECT_THROW(RowParallelLinear(three, 4, 4), Error);
  EXPECT_THROW(VocabParallelEmbedding(three, 4, 4), Error);
  EXPECT_THROW(QKVParallelLinear(
                   three, {.hidden_size = 4, .head_dim = 2, .num_heads = 6, .num_kv_heads = 2}),
               Error);
}

TEST(Parallel, KvHeadsAreReplicatedByNeighbours) {
  const auto members = ThreadGroup::create(4);
  for (int rank = 0; rank < 4; ++rank) {
    QKVParallelLinear qkv(*members[static_cast<size_t>(rank)],
                          {.hidden_size = 3, .head_dim = 2, .num_heads = 4, .num_kv_heads = 2});
    EXPECT_EQ(qkv.num_kv_replicas(), 2);
    EXPECT_EQ(qkv.local_num_kv_heads(), 1);
    Parameter& weight = *qkv.find_parameter("weight");
    const Tensor k = noise({4, 3}, 9);
    weight.load(noise({8, 3}, 8), "q");
    weight.load(k, "k");
    weight.load(noise({4, 3}, 10), "v");
    const int64_t head = rank / 2;
    EXPECT_EQ(qkv.loaded_weight().slice(0, 2, 4).to_floats(),
              k.slice(0, 2 * head, 2 * head + 2).to_floats());
  }
}

TEST(SequenceParallel, EarlierRanksTakeTheRemainder) {
  EXPECT_EQ(sp_seq_sizes(23, 4), (std::vector<int64_t>{6, 6, 6, 5}));
  EXPECT_EQ(sp_seq_sizes(2, 4), (std::vector<int64_t>{1, 1, 0, 0}));
  int64_t next = 0;
  for (int rank = 0; rank < 5; ++rank) {
    const SequenceRange range = sp_seq_split(17, 5, rank);
    EXPECT_EQ(range.begin, next);
    next += range.size;
  }
  EXPECT_EQ(next, 17);
}

TEST(SequenceParallel, ExchangesComeBackAndBothFormsAgree) {
  for (const int64_t tokens : {3, 4, 11}) {
    const Tensor q = noise({tokens, 8, 2}, 1);
    const Tensor k = noise({tokens, 2, 2}, 2);  // fewer heads than ranks
    on_ranks(4, [&](Stream& stream, ThreadPool&, CommGroup& sp) {
      const auto own = [&](const Tensor& x) { return scatter_sequence(sp, x).copy(); };
      const Tensor heads = sequence_to_heads(stream, sp, own(q), tokens);
      EXPECT_EQ(heads.shape(), (Shape{tokens, 2, 2}));
      EXPECT_EQ(heads.to_floats(), sp_head_slice(sp, q).copy().to_floats());
      EXPECT_EQ(heads_to_sequence(stream, sp, heads).to_floats(), own(q).to_floats());
      EXPECT_EQ(sequence_to_heads(stream, sp, own(k), tokens).to_floats(),
                sp_head_slice(sp, k).copy().to_floats());
      EXPECT_EQ(gather_sequence(stream, sp, own(q), tokens).to_floats(), q.to_floats());

      const UlyssesInputs inputs{own(q), own(k), own(k), tokens};
      const auto attend = [&](const Tensor& hq, const Tensor& hk, const Tensor& hv) {
        EXPECT_EQ(hk.to_floats(), hv.to_floats());
        return hq;
      };
      EXPECT_EQ(ulysses_attention(stream, sp, inputs, attend).to_floats(), own(q).to_floats());
      EXPECT_EQ(ulysses_attention_all_gather(stream, sp, inputs, attend).to_floats(),
                own(q).to_floats());
    });
  }
}

}  // namespace
}  // namespace mstar

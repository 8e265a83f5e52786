// Layers split over ranks, and the sequence exchange: every rank is a thread.
#include <mutex>

#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/cli/golden/resource_rig.h"
#include "mstar/collectives/thread_group.h"
#include "mstar/components/parallel/attention.h"
#include "mstar/components/parallel/embedding.h"
#include "mstar/components/parallel/mlp.h"
#include "mstar/components/parallel/moe.h"
#include "mstar/components/parallel/sequence_parallel.h"
#include "mstar/kernels/ops/attention.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::golden {

namespace {

// One rank at work.
struct Rank {
  RunContext& context;  // its own stream and pool
  CommGroup& comm;
  std::string prefix;  // "tp4.rank1."; "" when alone
};

// Comparisons of all ranks, one at a time.
class SharedResult {
 public:
  explicit SharedResult(CaseResult& result) : result_(result) {}

  void expect(const Rank& rank, const std::string& output, const Tensor& got) {
    const std::lock_guard lock(mutex_);
    result_.expect(rank.prefix + output, got, rank.prefix);
  }

  // A tensor that must be the same on every rank and alone.
  void expect_whole(const Rank& rank, const std::string& output, const Tensor& got) {
    const std::lock_guard lock(mutex_);
    result_.expect(output, got, rank.prefix);
  }

 private:
  std::mutex mutex_;
  CaseResult& result_;
};

using RankFunction = std::function<void(const GoldenCase&, const Rank&, SharedResult&)>;

// Runs the function alone, then on every number of ranks of config.worlds.
void on_all_worlds(const GoldenCase& golden,
                   RunContext& context,
                   CaseResult& result,
                   const RankFunction& function) {
  SharedResult shared(result);
  function(golden, {context, single_rank_group(), ""}, shared);
  if (!golden.config.contains("worlds")) {
    return;
  }
  for (const int64_t world : golden.get_ints("worlds")) {
    ThreadMesh mesh(static_cast<int>(world), 1);
    run_ranks(mesh, [&](int rank, const JointGroups& groups) {
      ThreadPool pool(1);
      CpuStream stream(pool);
      RunContext own{stream, pool, context.model_folder};
      function(golden, {own, *groups.tp, str_cat("tp", world, ".rank", rank, ".")}, shared);
    });
  }
}

Runner on_ranks(RankFunction function) {
  return [function = std::move(function)](
             const GoldenCase& golden, RunContext& context, CaseResult& result) {
    on_all_worlds(golden, context, result, function);
  };
}

bool alone(const Rank& rank) {
  return rank.prefix.empty();
}

void run_column(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  const Tensor x = golden.tensor("x");
  for (const bool gather : {false, true}) {
    ColumnParallelLinear linear(rank.comm,
                                golden.get_int("in"),
                                golden.get_int("out"),
                                {.bias = true, .gather_output = gather});
    load_only(golden, linear);
    if (!alone(rank) && !gather) {
      result.expect(rank, "weight", linear.loaded_weight());
      result.expect(rank, "bias", linear.loaded_bias());
    }
    linear.finalize({rank.context.pool});
    const Tensor out = linear.forward(rank.context.stream, x);
    if (gather) {
      result.expect_whole(rank, "out", out);
    } else {
      result.expect(rank, "out", out);
    }
  }
}

void run_row(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  const Tensor x = golden.tensor("x");
  for (const bool parallel_input : {false, true}) {
    RowParallelLinear linear(rank.comm,
                             golden.get_int("in"),
                             golden.get_int("out"),
                             {.bias = true, .input_is_parallel = parallel_input});
    load_only(golden, linear);
    if (!alone(rank)) {
      result.expect(rank, "weight", linear.loaded_weight());
    }
    linear.finalize({rank.context.pool});
    const Tensor own = parallel_input && !alone(rank) ? golden.tensor(rank.prefix + "x") : x;
    result.expect_whole(rank, "out", linear.forward(rank.context.stream, own));
  }
  if (alone(rank)) {
    return;
  }
  // What a rank has before the sum; the recorded rank 0 has added the bias.
  RowParallelLinear linear(rank.comm,
                           golden.get_int("in"),
                           golden.get_int("out"),
                           {.bias = true, .reduce_results = false, .skip_bias_add = true});
  load_weights(golden, linear, rank.context);
  Tensor partial = linear.forward(rank.context.stream, golden.tensor(rank.prefix + "x"));
  if (rank.comm.rank() == 0) {
    for (int64_t row = 0; row < partial.dim(0); ++row) {
      Tensor target = partial.slice(0, row, row + 1);
      ops::add(rank.context.stream, target, linear.bias().unsqueeze(0), target);
    }
  }
  result.expect(rank, "partial", partial);
}

void run_merged(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  MergedColumnParallelLinear linear(
      rank.comm, golden.get_int("in"), golden.get_ints("output_sizes"));
  NameMapping mapping;
  mapping.stacked = {{"", "^gate", "0"}, {"", "^up", "1"}};
  load_only(golden, linear, mapping);
  if (!alone(rank)) {
    result.expect(rank, "weight", linear.loaded_weight());
  }
  linear.finalize({rank.context.pool});
  result.expect(rank, "out", linear.forward(rank.context.stream, golden.tensor("x")));
}

void run_qkv(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  const QKVParallelLinear::Config config{.hidden_size = golden.get_int("hidden_size"),
                                         .head_dim = golden.get_int("head_dim"),
                                         .num_heads = golden.get_int("num_heads"),
                                         .num_kv_heads = golden.get_int("num_kv_heads"),
                                         .bias = true};
  QKVParallelLinear linear(rank.comm, config);
  NameMapping mapping;
  mapping.stacked = {{"", "^q", "q"}, {"", "^k", "k"}, {"", "^v", "v"}};
  load_only(golden, linear, mapping);
  if (!alone(rank)) {
    result.expect(rank, "weight", linear.loaded_weight());
    result.expect(rank, "bias", linear.loaded_bias());
  }
  linear.finalize({rank.context.pool});
  const Tensor out = linear.forward(rank.context.stream, golden.tensor("x"));
  if (!alone(rank)) {
    result.expect(rank, "out", out);
    return;
  }
  const Qkv qkv = split_qkv(out, config.num_heads, config.num_kv_heads, config.head_dim);
  const auto flat = [](const Tensor& heads) {
    return heads.copy().view({heads.dim(0), heads.dim(1) * heads.dim(2)});
  };
  result.expect(rank, "q_out", flat(qkv.q));
  result.expect(rank, "k_out", flat(qkv.k));
  result.expect(rank, "v_out", flat(qkv.v));
}

void run_embedding(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  const int64_t vocab = golden.get_int("vocab_size");
  const int64_t hidden = golden.get_int("hidden_size");
  VocabParallelEmbedding table(rank.comm, vocab, hidden);
  ColumnParallelLinear local_head(rank.comm, hidden, vocab);
  ColumnParallelLinear head(rank.comm, hidden, vocab, {.gather_output = true});
  NameMapping only_table;
  only_table.skip = {"^lm_head"};
  NameMapping only_head;
  only_head.skip = {"^weight$"};
  load_only(golden, table, only_table);
  if (!alone(rank)) {
    result.expect(rank, "weight", table.loaded_weight());
  }
  table.finalize({rank.context.pool});
  load_weights(golden, local_head, rank.context, only_head, "lm_head");
  load_weights(golden, head, rank.context, only_head, "lm_head");
  Stream& stream = rank.context.stream;
  const Tensor ids = golden.tensor("ids");
  const Tensor rows = table.forward(stream, ids, DType::kF32);
  result.expect_whole(rank, "out", rows);
  result.expect_whole(rank, "logits", head.forward(stream, rows));
  if (!alone(rank)) {
    result.expect(rank, "partial", table.forward_partial(stream, ids, DType::kF32));
    result.expect(rank, "logits", local_head.forward(stream, rows));
  }
}

void run_mlp(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  ParallelGatedMlpConfig config{.hidden_size = golden.get_int("hidden_size"),
                                .intermediate_size = golden.get_int("intermediate_size"),
                                .activation = golden.get_string("activation")};
  NameMapping mapping;
  mapping.stacked = FusedGatedMLP::stacked_rules();
  const Tensor x = golden.tensor("x");
  Stream& stream = rank.context.stream;
  ParallelGatedMLP mlp(rank.comm, config);
  load_only(golden, mlp, mapping);
  if (!alone(rank)) {
    result.expect(rank, "gate_up_proj.weight", mlp.gate_up_proj().loaded_weight());
    result.expect(rank, "down_proj.weight", mlp.down_proj().loaded_weight());
  }
  mlp.finalize({rank.context.pool});
  result.expect_whole(rank, "out", mlp.forward(stream, x));

  ParallelGatedMLPUnfused unfused(rank.comm, config);
  load_weights(golden, unfused, rank.context);
  result.expect_whole(rank, "out", unfused.forward(stream, x));

  if (!alone(rank)) {
    config.reduce_results = false;
    ParallelGatedMLP partial(rank.comm, config);
    load_weights(golden, partial, rank.context, mapping);
    result.expect(rank, "partial", partial.forward(stream, x));
  }
}

void run_attention(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  const Attention::Config config{.hidden_size = golden.get_int("hidden_size"),
                                 .num_heads = golden.get_int("num_heads"),
                                 .num_kv_heads = golden.get_int("num_kv_heads"),
                                 .head_dim = golden.get_int("head_dim"),
                                 .pos_key = ""};
  NameMapping mapping;
  mapping.stacked = ParallelAttention::stacked_rules();
  const Tensor x = golden.tensor("x");
  for (const bool reduce : {true, false}) {
    ParallelAttention layer(rank.comm, config, reduce);
    load_only(golden, layer, mapping);
    if (!alone(rank) && reduce) {
      result.expect(rank, "qkv_proj.weight", layer.qkv_proj().loaded_weight());
      result.expect(rank, "o_proj.weight", layer.o_proj().loaded_weight());
    }
    layer.finalize({rank.context.pool});
    AttentionSpec attention;
    attention.kv = "kv";
    ResourceRig rig({{"kv", small_kv(layer.local_num_kv_heads(), config.head_dim, DType::kF32)},
                     {"attn", attention}},
                    1);
    layer.bind_resources(rig.resources());
    SubmoduleStep step;
    step.add_segment(0, kMainLabel, static_cast<int32_t>(x.dim(0)));
    step.kv.add(rig.id("kv"));
    step.attention.add(rig.id("attn")).causal = golden.get_bool("causal", true);
    rig.run(rank.context.stream, step, [&](const AttentionContext& context) {
      const Tensor out = layer.forward(rank.context.stream, x, context);
      if (reduce) {
        result.expect_whole(rank, "out", out);
      } else if (!alone(rank)) {
        result.expect(rank, "partial", out);
      }
    });
  }
}

MoeConfig moe_config(const GoldenCase& golden) {
  return {.hidden_size = golden.get_int("hidden_size"),
          .num_experts = golden.get_int("num_experts"),
          .num_experts_per_tok = golden.get_int("num_experts_per_tok"),
          .moe_intermediate_size = golden.get_int("moe_intermediate_size"),
          .norm_topk_prob = golden.get_bool("norm_topk_prob", true)};
}

template <typename Block>
void check_moe(const GoldenCase& golden, const Rank& rank, SharedResult& result, Block& block) {
  load_only(golden, block);
  if (!alone(rank)) {
    result.expect(rank, "experts.gate_up_proj", block.experts().loaded_gate_up());
    result.expect(rank, "experts.down_proj", block.experts().loaded_down());
  }
  block.finalize({rank.context.pool});
  const Tensor x = golden.tensor("x");
  result.expect_whole(rank, "out", block.forward(rank.context.stream, x));
  if (!alone(rank)) {
    result.expect(rank, "partial", block.forward_partial(rank.context.stream, x));
  }
}

void run_moe(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  ParallelSparseMoeBlock block(moe_config(golden), nullptr, rank.comm);
  check_moe(golden, rank, result, block);
}

void run_shared_moe(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  const MoeConfig config = moe_config(golden);
  // The shared expert's width stands in the config or is seen from its weight.
  const int64_t width = golden.data->info("shared_expert.gate_proj.weight").shape[0];
  const ParallelGatedMlpConfig shared{.hidden_size = config.hidden_size,
                                      .intermediate_size = width};
  ParallelSparseMoeBlockWithSharedExpert block(
      config, std::make_unique<ParallelGatedMLPUnfused>(rank.comm, shared), nullptr, rank.comm);
  check_moe(golden, rank, result, block);
}

void run_ulysses(const GoldenCase& golden, const Rank& rank, SharedResult& result) {
  Stream& stream = rank.context.stream;
  const Tensor q = golden.tensor("q");
  const int64_t tokens = golden.get_int("tokens");
  const Tensor indptr = Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(tokens)}, {2});
  AttentionOptions options;
  options.causal = golden.get_bool("causal", false);
  const AttendHeads attend = [&](const Tensor& hq, const Tensor& hk, const Tensor& hv) {
    Tensor out = stream.empty(hq.shape(), hq.dtype());
    ops::ragged_attention(stream, hq, hk, hv, indptr, indptr, options, out);
    if (!alone(rank)) {
      result.expect(rank, "q_heads", hq);
      result.expect(rank, "out_heads", out);
    }
    return out;
  };
  const auto own = [&](const char* name) {
    return scatter_sequence(rank.comm, golden.tensor(name)).copy();
  };
  const UlyssesInputs inputs{own("q"), own("k"), own("v"), tokens};
  for (const auto form : {&ulysses_attention, &ulysses_attention_all_gather}) {
    const Tensor rows = form(stream, rank.comm, inputs, attend);
    if (!alone(rank)) {
      result.expect(rank, "out_rows", rows);
    }
    result.expect_whole(rank, "out", gather_sequence(stream, rank.comm, rows, tokens));
  }
}

}  // namespace

void add_parallel_kinds(Registry& registry) {
  registry.add_class("ColumnParallelLinear", on_ranks(run_column));
  registry.add_class("RowParallelLinear", on_ranks(run_row));
  registry.add_class("MergedColumnParallelLinear", on_ranks(run_merged));
  registry.add_class("QKVParallelLinear", on_ranks(run_qkv));
  registry.add_class("VocabParallelEmbedding", on_ranks(run_embedding));
  registry.add_class("ParallelGatedMLP", on_ranks(run_mlp));
  registry.add_class("ParallelAttention", on_ranks(run_attention));
  registry.add_class("ParallelSparseMoeBlock", on_ranks(run_moe));
  registry.add_class("ParallelSparseMoeBlockWithSharedExpert", on_ranks(run_shared_moe));
  registry.add_prefix("ulysses_", on_ranks(run_ulysses));
}

}  // namespace mstar::golden

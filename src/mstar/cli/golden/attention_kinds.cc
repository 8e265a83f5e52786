// Attention layers and decoder layers over the paged cache.
#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/cli/golden/resource_rig.h"
#include "mstar/components/cross_attention.h"
#include "mstar/components/decoder_layer.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar::golden {

namespace {

Attention::Config attention_config(const GoldenCase& golden) {
  Attention::Config config;
  config.hidden_size = golden.get_int("hidden_size");
  config.num_heads = golden.get_int("num_heads");
  config.num_kv_heads = golden.get_int("num_kv_heads");
  config.head_dim = golden.get_int("head_dim");
  config.qkv_bias = golden.get_bool("qkv_bias", false);
  config.o_bias = golden.get_bool("o_bias", false);
  config.qk_norm = golden.get_bool("qk_norm", false);
  config.rms_norm_eps = static_cast<float>(golden.get_double("rms_norm_eps", 1e-6));
  config.rope.rope_theta = static_cast<float>(golden.get_double("rope_theta", 10000.0));
  config.rope.rope_scale = static_cast<float>(golden.get_double("rope_scale", 1.0));
  config.rope.rope_low_freq_factor =
      static_cast<float>(golden.get_double("rope_low_freq_factor", 1.0));
  config.rope.rope_high_freq_factor =
      static_cast<float>(golden.get_double("rope_high_freq_factor", 1.0));
  config.rope.rope_old_context_len =
      static_cast<int64_t>(golden.get_double("rope_old_context_len", 8192.0));
  const Json* width = golden.config.find("input_hidden_size");
  if (width != nullptr && !width->is_null()) {
    config.input_hidden_size = width->get_int();
  }
  const Json* pos_key = golden.config.find("pos_key");
  if (pos_key != nullptr && pos_key->is_null()) {
    config.pos_key.clear();
  }
  return config;
}

ResourceRig::Specs resource_specs(const Attention::Config& config, DType dtype) {
  AttentionSpec attention;
  attention.kv = "kv";
  ResourceRig::Specs specs{{"kv", small_kv(config.num_kv_heads, config.head_dim, dtype)},
                           {"attn", attention}};
  if (!config.pos_key.empty()) {
    PositionSpec positions;
    positions.kv = "kv";
    positions.rope = config.rope.config(config.head_dim);
    specs.emplace_back("rope", positions);
  }
  return specs;
}

// Lengths of the sequences whose rows x packs.
std::vector<int64_t> sequence_lens(const GoldenCase& golden) {
  const std::vector<int64_t> lens = golden.get_ints("seq_lens");
  const int64_t rows = golden.tensor("x").dim(0);
  int64_t total = 0;
  for (const int64_t len : lens) {
    total = len < 0 || len > rows ? -1 : total + len;
    if (total < 0 || total > rows) {
      break;
    }
  }
  if (lens.empty() || total != rows) {
    throw Error(
        ErrorCode::kInvalidArgument,
        str_cat("[", golden.name, "] \"seq_lens\" do not add up to the ", rows, " rows of x"));
  }
  return lens;
}

// Rows [begin, end) of every sequence, packed; `lens` are the sequences' whole lengths.
struct Chunk {
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
};

// The whole sequences at once, in two halves, and token by token.
std::vector<std::vector<Chunk>> all_splits(const std::vector<int64_t>& lens) {
  const auto split = [&](int64_t parts) {
    std::vector<Chunk> chunks;
    for (int64_t part = 0; part < parts; ++part) {
      Chunk chunk;
      for (const int64_t len : lens) {
        chunk.begin.push_back(len * part / parts);
        chunk.end.push_back(len * (part + 1) / parts);
      }
      chunks.push_back(std::move(chunk));
    }
    return chunks;
  };
  return {split(1), split(2), split(*std::ranges::max_element(lens))};
}

// Runs a layer over packed sequences in every split and compares rows `out` and, when recorded,
// the cache's rows.
class LayerRun {
 public:
  using Forward = std::function<Tensor(const Tensor& x, const AttentionContext& context)>;

  LayerRun(const GoldenCase& golden,
           RunContext& context,
           CaseResult& result,
           const Attention::Config& config)
      : golden_(golden), context_(context), result_(result), config_(config) {
    lens_ = sequence_lens(golden);
  }

  template <typename Layer>
  void run(Layer& layer, const Forward& forward, const std::string& variant) {
    const std::vector<std::vector<Chunk>> splits = all_splits(lens_);
    for (size_t index = 0; index < splits.size(); ++index) {
      ResourceRig rig(resource_specs(config_, golden_.tensor("x").dtype()),
                      static_cast<int>(lens_.size()));
      layer.bind_resources(rig.resources());
      run_split(rig,
                splits[index],
                forward,
                variant + (index == 0   ? ""
                           : index == 1 ? " in halves"
                                        : " token by token"));
    }
  }

 private:
  // Packed row range of one chunk of a sequence.
  int64_t row_of(size_t sequence, int64_t token) const {
    int64_t row = token;
    for (size_t before = 0; before < sequence; ++before) {
      row += lens_[before];
    }
    return row;
  }

  Tensor take(const Tensor& all, const Chunk& chunk) const {
    int64_t total = 0;
    for (size_t sequence = 0; sequence < lens_.size(); ++sequence) {
      total += chunk.end[sequence] - chunk.begin[sequence];
    }
    Shape shape = all.shape();
    shape[0] = total;
    Tensor out = Tensor::empty(shape, all.dtype());
    int64_t at = 0;
    for (size_t sequence = 0; sequence < lens_.size(); ++sequence) {
      const Tensor rows = all.slice(
          0, row_of(sequence, chunk.begin[sequence]), row_of(sequence, chunk.end[sequence]));
      if (rows.dim(0) > 0) {
        std::copy_n(rows.bytes(), rows.size_bytes(), out.slice(0, at, at + rows.dim(0)).bytes());
      }
      at += rows.dim(0);
    }
    return out;
  }

  void put(const Tensor& packed, const Chunk& chunk, Tensor& all) const {
    int64_t at = 0;
    for (size_t sequence = 0; sequence < lens_.size(); ++sequence) {
      const int64_t count = chunk.end[sequence] - chunk.begin[sequence];
      const Tensor rows = packed.slice(0, at, at + count);
      if (count > 0) {
        std::copy_n(rows.bytes(),
                    rows.size_bytes(),
                    all.slice(0,
                              row_of(sequence, chunk.begin[sequence]),
                              row_of(sequence, chunk.end[sequence]))
                        .bytes());
      }
      at += count;
    }
  }

  SubmoduleStep declare(ResourceRig& rig, const Chunk& chunk) const {
    SubmoduleStep step;
    for (size_t sequence = 0; sequence < lens_.size(); ++sequence) {
      const int64_t span = chunk.end[sequence] - chunk.begin[sequence];
      step.add_segment(
          static_cast<RequestHandle>(sequence), kMainLabel, static_cast<int32_t>(span));
    }
    step.kv.add(rig.id("kv"));
    step.attention.add(rig.id("attn")).causal = golden_.get_bool("causal", true);
    if (rig.resources().contains("rope")) {
      step.position.add(rig.id("rope"))
          .pos_ids.emplace_back(kMainLabel,
                                take(golden_.tensor("positions").to(DType::kI32), chunk));
    }
    return step;
  }

  void run_split(ResourceRig& rig,
                 const std::vector<Chunk>& chunks,
                 const Forward& forward,
                 const std::string& variant) {
    const Tensor x = golden_.tensor("x");
    Tensor out = Tensor::empty(x.shape(), x.dtype());
    for (size_t index = 0; index < chunks.size(); ++index) {
      const SubmoduleStep step = declare(rig, chunks[index]);
      rig.run(context_.stream, step, [&](const AttentionContext& attention) {
        put(forward(take(x, chunks[index]), attention), chunks[index], out);
        if (index + 1 == chunks.size() && golden_.has("k_rows")) {
          compare_cache(rig, attention, variant);
        }
      });
    }
    result_.expect("out", out, variant);
    result_.expect_if_there("out_f32", out, variant);
  }

  void compare_cache(ResourceRig& rig,
                     const AttentionContext& attention,
                     const std::string& variant) {
    const Shape shape = golden_.tensor("k_rows").shape();
    Tensor k = Tensor::empty(shape, golden_.tensor("x").dtype());
    Tensor v = Tensor::empty(shape, k.dtype());
    for (size_t sequence = 0; sequence < lens_.size(); ++sequence) {
      const int64_t begin = row_of(sequence, 0);
      Tensor k_part = k.slice(0, begin, begin + lens_[sequence]);
      Tensor v_part = v.slice(0, begin, begin + lens_[sequence]);
      ops::gather_paged_kv(context_.stream,
                           rig.kv("kv").paged_kv(attention),
                           static_cast<int64_t>(sequence),
                           k_part,
                           v_part);
    }
    result_.expect("k_rows", k, variant);
    result_.expect("v_rows", v, variant);
  }

  const GoldenCase& golden_;
  RunContext& context_;
  CaseResult& result_;
  const Attention::Config& config_;
  std::vector<int64_t> lens_;
};

void run_attention(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Attention::Config config = attention_config(golden);
  for (const bool consolidated : {false, true}) {
    if (consolidated && config.qkv_bias) {
      continue;
    }
    Attention layer(config);
    load_only(golden, layer);
    if (consolidated) {
      layer.consolidate_qkv_weight();
    }
    layer.finalize({context.pool});
    LayerRun run(golden, context, result, config);
    run.run(
        layer,
        [&](const Tensor& x, const AttentionContext& attention) {
          return layer.forward(context.stream, x, attention);
        },
        consolidated ? "consolidated" : "plain");
  }
}

void run_decoder_layer(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Attention::Config config = attention_config(golden);
  const bool gemma = golden.get_bool("gemma_mode", false);
  const auto norm = [&] {
    return std::make_unique<RMSNorm>(config.hidden_size, config.rms_norm_eps, gemma);
  };
  DecoderLayer layer(
      std::make_unique<Attention>(config),
      std::make_unique<GatedMLP>(
          config.hidden_size, golden.get_int("intermediate_size"), golden.get_string("activation")),
      norm(),
      norm());
  load_weights(golden, layer, context);
  LayerRun run(golden, context, result, config);
  run.run(
      layer,
      [&](const Tensor& x, const AttentionContext& attention) {
        return layer.forward(context.stream, x, attention);
      },
      "DecoderLayer");
}

void run_gated_decoder_layer(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Attention::Config config = attention_config(golden);
  const auto norm = [&] {
    return std::make_unique<AdaRMSNorm>(config.hidden_size,
                                        golden.get_int("cond_dim"),
                                        static_cast<float>(golden.get_double("eps")));
  };
  GatedDecoderLayer layer(
      std::make_unique<Attention>(config),
      std::make_unique<GatedMLP>(
          config.hidden_size, golden.get_int("intermediate_size"), golden.get_string("activation")),
      norm(),
      norm());
  load_weights(golden, layer, context);
  // Sequences of different lengths: every token brings its own condition row.
  const std::vector<int64_t> lens = sequence_lens(golden);
  ResourceRig rig(resource_specs(config, golden.tensor("x").dtype()),
                  static_cast<int>(lens.size()));
  layer.bind_resources(rig.resources());
  SubmoduleStep step;
  for (size_t sequence = 0; sequence < lens.size(); ++sequence) {
    step.add_segment(
        static_cast<RequestHandle>(sequence), kMainLabel, static_cast<int32_t>(lens[sequence]));
  }
  step.kv.add(rig.id("kv"));
  step.attention.add(rig.id("attn")).causal = golden.get_bool("causal", true);
  step.position.add(rig.id("rope"))
      .pos_ids.emplace_back(kMainLabel, golden.tensor("positions").to(DType::kI32));
  rig.run(context.stream, step, [&](const AttentionContext& attention) {
    result.expect(
        "out",
        layer.forward(context.stream, golden.tensor("x"), golden.tensor("cond_rows"), attention));
  });
}

void run_cross_attention(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const CrossAttention::Config config{.hidden_size = golden.get_int("hidden_size"),
                                      .num_heads = golden.get_int("num_heads"),
                                      .head_dim = golden.get_int("head_dim"),
                                      .q_bias = golden.get_bool("q_bias", true),
                                      .k_bias = golden.get_bool("k_bias", false),
                                      .v_bias = golden.get_bool("v_bias", true),
                                      .o_bias = golden.get_bool("o_bias", true)};
  CrossAttention layer(config);
  load_weights(golden, layer, context);
  const Tensor states = golden.tensor("context");
  const auto [k, v] = layer.compute_kv(context.stream, states);
  result.expect("k", k);
  result.expect("v", v);

  const std::vector<int64_t> q_lens = golden.get_ints("q_lens");
  const std::vector<int64_t> context_lens = golden.get_ints("context_lens");
  AttentionSpec cross;
  cross.kind = AttentionKind::kCross;
  cross.kv = layer.context_kv_key();
  const DType dtype = golden.tensor("x").dtype();
  ResourceRig rig({{layer.context_kv_key(), small_kv(config.num_heads, config.head_dim, dtype)},
                   {layer.cross_key(), cross}},
                  static_cast<int>(q_lens.size()));
  layer.bind_resources(rig.resources());
  for (const bool first : {true, false}) {  // the context is written once and read ever after
    SubmoduleStep step;
    KVStep& kv = step.kv.add(rig.id(layer.context_kv_key()));
    AttentionStep& attention = step.attention.add(rig.id(layer.cross_key()));
    attention.causal = false;
    for (size_t sequence = 0; sequence < q_lens.size(); ++sequence) {
      const auto request = static_cast<RequestHandle>(sequence);
      kv.segments.push_back(
          {request, kMainLabel, first ? static_cast<int32_t>(context_lens[sequence]) : 0});
      attention.segments.push_back({request, kMainLabel, static_cast<int32_t>(q_lens[sequence])});
    }
    rig.run(context.stream, step, [&](const AttentionContext& at) {
      if (first) {
        layer.write_context(context.stream, states, at);
      }
      layer.bind_step(*at.step, at.label);
      layer.set_layer_idx(at.layer);
      result.expect("out",
                    layer.forward(context.stream, golden.tensor("x")),
                    first ? "writing the context" : "reading the context");
    });
  }
}

}  // namespace

void add_attention_kinds(Registry& registry) {
  registry.add_class("Attention", run_attention);
  registry.add_class("DecoderLayer", run_decoder_layer);
  registry.add_class("GatedDecoderLayer", run_gated_decoder_layer);
  registry.add_class("CrossAttention", run_cross_attention);
}

}  // namespace mstar::golden

// Cosmos3: layers, velocities of every mode, cached against fused, guidance.
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/models/cosmos3/guidance.h"
#include "mstar/models/cosmos3/transformer.h"

namespace mstar::golden {

namespace {

using namespace cosmos3;  // NOLINT: the family under test

constexpr int64_t kTemporalFactor = 4;

std::string weights_folder(const GoldenCase& golden) {
  return str_cat(golden.folder, "/", golden.get_string("weights"));
}

struct LoadedTransformer {
  explicit LoadedTransformer(const std::string& folder, RunContext& context)
      : model(TransformerConfig::parse(read_json_file(folder + "/config.json"), folder)) {
    model.load(*open_checkpoint(folder), {context.pool});
  }

  Transformer model;
};

// What a layer case gives beside a whole config.
TransformerConfig layer_config(const GoldenCase& golden) {
  TransformerConfig config;
  config.hidden_size = golden.get_int("hidden_size");
  config.head_dim = golden.get_int("head_dim");
  config.num_attention_heads = golden.get_int("num_attention_heads");
  config.num_key_value_heads = golden.get_int("num_key_value_heads");
  config.intermediate_size = golden.get_int("intermediate_size");
  config.hidden_act = parse_activation(golden.get_string("hidden_act"));
  config.gated_mlp = config.hidden_act == Activation::kSilu;
  config.norm_rounding = config.gated_mlp ? RmsNormRounding::kBeforeWeight : RmsNormRounding::kOnce;
  config.rms_norm_eps = static_cast<float>(golden.get_double("rms_norm_eps"));
  config.qk_norm_for_text = golden.get_bool("qk_norm_for_text", false);
  config.use_und_k_norm_for_gen = golden.get_bool("use_und_k_norm_for_gen", false);
  config.rope.head_dim = config.head_dim;
  config.rope.theta = static_cast<float>(golden.get_double("rope_theta"));
  config.rope.layout = RopeConfig::Layout::kInterleaved;
  const std::vector<int64_t> axes = golden.get_ints("rope_axes_dim");
  for (size_t axis = 0; axis < 3; ++axis) {
    config.rope.section[axis] = static_cast<int32_t>(axes[axis]);
  }
  return config;
}

RotaryTable rotary_of(RunContext& context,
                      const TransformerConfig& config,
                      const Tensor& positions) {
  const Shape shape{positions.dim(1), config.head_dim / 2};
  RotaryTable table{Tensor::empty(shape, DType::kF32), Tensor::empty(shape, DType::kF32)};
  ops::rope_table(
      context.stream, positions, rope_inv_freq(config.rope), config.rope, table.cos, table.sin);
  return table;
}

// Also notes the keys that text rows read.
class WatchedAttention : public DirectAttention {
 public:
  using DirectAttention::DirectAttention;

  void attend_und(Stream& stream,
                  int32_t layer,
                  const Tensor& q,
                  const Tensor& k,
                  const Tensor& k_for_gen,
                  const Tensor& v,
                  Tensor& out) override {
    k_for_und = k;
    DirectAttention::attend_und(stream, layer, q, k, k_for_gen, v, out);
  }

  Tensor k_for_und;
};

void run_layer(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const TransformerConfig config = layer_config(golden);
  DecoderLayer layer(config, 0);
  NameMapping mapping;
  mapping.rename = {{"^weight.layers.0", ""}};
  load_weights(golden, layer, context, mapping);
  WatchedAttention attention(1);
  const RotaryTable und = rotary_of(context, config, golden.tensor("in.und_positions"));
  const RotaryTable gen = rotary_of(context, config, golden.tensor("in.gen_positions"));
  result.expect("out.und",
                layer.forward_und(context.stream, golden.tensor("in.und"), und, attention, false));
  result.expect("out.gen",
                layer.forward_gen(context.stream, golden.tensor("in.gen"), gen, attention));
  result.expect("out.k_for_gen", attention.kept_k(0));
  result.expect("out.k_for_und", attention.k_for_und);
}

GenLayout layout_of(const GoldenCase& golden, const Tensor& latent) {
  GenLayout layout;
  layout.frames = latent.dim(2);
  layout.latent_height = latent.dim(3);
  layout.latent_width = latent.dim(4);
  layout.fps = golden.get_double("fps", 24.0);
  layout.clean_frames.assign(static_cast<size_t>(layout.frames), true);
  if (!golden.has("in.noisy_frames")) {
    layout.clean_frames.assign(static_cast<size_t>(layout.frames), false);
  } else {
    for (const int64_t frame : golden.tensor("in.noisy_frames").to_ints()) {
      layout.clean_frames[static_cast<size_t>(frame)] = false;
    }
  }
  if (golden.has("in.sound")) {
    layout.num_sound = golden.tensor("in.sound").dim(1);
  }
  if (golden.has("in.action")) {
    layout.num_actions = golden.tensor("in.action").dim(0);
    layout.clean_actions = golden.get_bool("action_clean", false);
    layout.action_offset =
        golden.config.contains("action_offset") ? golden.get_int("action_offset") : 1;
    layout.action_fps = layout.fps;
    layout.domain = golden.get_int("domain");
  }
  return layout;
}

Tensor as_state(const Tensor& latent) {
  return latent.to(DType::kF32).select(0, 0).copy();
}

// Text once, then one pass of the generation tower.
GenState velocity_of(RunContext& context,
                     const Transformer& model,
                     const Tensor& ids,
                     const GenLayout& layout,
                     const GenState& state,
                     float timestep,
                     DType dtype,
                     DirectAttention& attention) {
  Stream& stream = context.stream;
  const int64_t num_text = ids.dim(0);
  model.prefill(stream,
                model.embed_text(stream, ids, dtype),
                model.rotary(stream, text_positions(num_text)),
                attention,
                false);
  const Tensor positions = gen_positions(model.config(), kTemporalFactor, layout, num_text);
  const Tensor rows = model.embed_gen(stream, layout, state, timestep, dtype);
  return model.read_velocity(
      stream, layout, model.denoise(stream, rows, model.rotary(stream, positions), attention));
}

void run_velocity(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const LoadedTransformer loaded(weights_folder(golden), context);
  const Tensor latent = golden.tensor("in.latent");
  const GenLayout layout = layout_of(golden, latent);
  GenState state{as_state(latent), {}, {}};
  if (layout.num_sound > 0) {
    state.sound = golden.tensor("in.sound").to(DType::kF32);
  }
  if (layout.num_actions > 0) {
    state.actions = golden.tensor("in.action").to(DType::kF32);
  }
  const int64_t num_text = golden.tensor("in.input_ids").dim(0);
  const Tensor positions = gen_positions(loaded.model.config(), kTemporalFactor, layout, num_text);
  const Tensor recorded = golden.tensor("in.position_ids");
  if (!compare(positions, recorded.slice(1, num_text, recorded.dim(1)).copy(), {.exact = true})
           .passed) {
    result.fail("positions differ");
  }
  const DType dtype = golden.name.ends_with("-bf16") ? DType::kBF16 : DType::kF32;
  DirectAttention attention(loaded.model.config().num_hidden_layers);
  const GenState velocity = velocity_of(context,
                                        loaded.model,
                                        golden.tensor("in.input_ids"),
                                        layout,
                                        state,
                                        golden.tensor("in.timestep").to_floats().front(),
                                        dtype,
                                        attention);
  result.expect("out.vision", velocity.vision.unsqueeze(0));
  if (golden.has("out.sound")) {
    result.expect("out.sound", velocity.sound);
  }
  if (golden.has("out.action")) {
    result.expect("out.action", velocity.actions);
  }
  if (golden.has("out.vision_fp32")) {
    const Tensor want = golden.tensor("out.vision_fp32");
    result.expect_if_there("out.vision_fp32", velocity.vision.unsqueeze(0));
    if (cosine_similarity(velocity.vision.unsqueeze(0), want) < 0.999) {
      result.fail("the direction differs from f32");
    }
  }
}

void run_cached(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const LoadedTransformer loaded(weights_folder(golden), context);
  const Tensor latent = golden.tensor("in.latent");
  const GenLayout layout = layout_of(golden, latent);
  DirectAttention attention(loaded.model.config().num_hidden_layers);
  const GenState velocity = velocity_of(context,
                                        loaded.model,
                                        golden.tensor("in.input_ids"),
                                        layout,
                                        {as_state(latent), {}, {}},
                                        golden.tensor("in.timestep").to_floats().front(),
                                        DType::kF32,
                                        attention);
  result.expect("out.vision", velocity.vision.unsqueeze(0));
  result.expect("out.vision_fused", velocity.vision.unsqueeze(0));
  for (int32_t layer = 0; layer < loaded.model.config().num_hidden_layers; ++layer) {
    const auto check = [&](const char* what, const Tensor& got) {
      const Tensor want = golden.tensor(str_cat("mid.cache.", layer, ".", what));
      if (const Comparison found = compare(got, want, {.atol = 2e-5}); !found.passed) {
        result.fail(str_cat("cache ", layer, " ", what, ": ", found.to_string()));
      }
    };
    check("k", attention.kept_k(layer));
    check("v", attention.kept_v(layer));
  }
}

void run_guidance(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const LoadedTransformer loaded(weights_folder(golden), context);
  const Tensor latent = golden.tensor("in.latent");
  const GenLayout layout = layout_of(golden, latent);
  const Json& bounds = golden.config.at("interval");
  const Guidance guidance{.scale = static_cast<float>(golden.get_double("guidance_scale")),
                          .interval = {bounds[0].get_double(), bounds[1].get_double()}};
  for (const float timestep : {1000.0F, 995.0F, 400.0F, 399.0F, 128.0F}) {
    const auto branch = [&](const char* ids) {
      DirectAttention attention(loaded.model.config().num_hidden_layers);
      return velocity_of(context,
                         loaded.model,
                         golden.tensor(ids),
                         layout,
                         {as_state(latent), {}, {}},
                         timestep,
                         DType::kF32,
                         attention);
    };
    GenState velocity = branch("in.cond_ids");
    if (guidance.active_at(timestep)) {
      apply_guidance(context.stream, guidance.scale, branch("in.uncond_ids"), velocity);
    }
    result.expect(str_cat("out.", static_cast<int>(timestep), ".velocity"),
                  velocity.vision.unsqueeze(0));
  }
}

}  // namespace

void add_cosmos3_transformer_kinds(Registry& registry) {
  registry.add_prefix("layer-nano", run_layer);
  registry.add_prefix("layer-edge", run_layer);
  registry.add_prefix("velocity-", run_velocity);
  registry.add_prefix("cached-", run_cached);
  registry.add_prefix("guidance-interval", run_guidance);
}

}  // namespace mstar::golden

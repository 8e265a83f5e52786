// Cosmos3 at published dimensions and random weights: a denoising step over both guidance branches
// with few layers, and the video autoencoder at full width. bench/models/cosmos3_torch.py times the
// same in PyTorch.
#include <memory>

#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/cosmos3/packing.h"
#include "mstar/models/cosmos3/transformer.h"
#include "mstar/models/cosmos3/vae.h"

#include "bench/models/families.h"

namespace mstar::bench {

namespace {

using namespace cosmos3;  // NOLINT: everything here is about it

constexpr int64_t kNumText = 128;  // prompt tokens of either branch

struct Flavour {
  const char* name;
  int64_t num_layers;
  const char* config;  // transformer/config.json, with a small vocabulary
};

constexpr const char* kCommon =
    R"("_class_name":"Cosmos3OmniTransformer","attention_bias":false,"rope_axes_dim":[24,20,20],)"
    R"("action_gen":false,"base_fps":24,"enable_fps_modulation":true,"head_dim":128,)"
    R"("latent_channel":48,"latent_patch_size":2,"num_key_value_heads":8,"patch_latent_dim":192,)"
    R"("rope_scaling":{"mrope_interleaved":true,"mrope_section":[24,20,20],"rope_type":"default"},)"
    R"("sound_gen":false,"sound_latent_fps":25.0,"timestep_scale":0.001,)"
    R"("unified_3d_mrope_reset_spatial_ids":true,)"
    R"("unified_3d_mrope_temporal_modality_margin":15000,"vocab_size":1024,)";

constexpr Flavour kEdge = {
    "edge",
    2,
    R"("hidden_act":"relu2","hidden_size":2048,"intermediate_size":9216,"num_attention_heads":16,)"
    R"("qk_norm_for_text":false,"rms_norm_eps":1e-05,"rope_theta":100000000.0,)"
    R"("use_und_k_norm_for_gen":true,"backbone_type":"cosmos3_edge_nemotron_dense")"};

constexpr Flavour kNano = {
    "nano",
    1,
    R"("hidden_act":"silu","hidden_size":4096,"intermediate_size":12288,"num_attention_heads":32,)"
    R"("qk_norm_for_text":true,"rms_norm_eps":1e-06,"rope_theta":5000000.0,)"
    R"("use_und_k_norm_for_gen":false)"};

TransformerConfig config_of(const Flavour& flavour) {
  const std::string json =
      str_cat("{", kCommon, "\"num_hidden_layers\":", flavour.num_layers, ",", flavour.config, "}");
  return TransformerConfig::parse(Json::parse(json, "bench"), "bench");
}

const char* name_of(DType dtype) {
  return dtype == DType::kBF16 ? "bf16" : "f32";
}

Peak peak_of(DType dtype) {
  return dtype == DType::kBF16 ? Peak::kBF16 : Peak::kF32;
}

// Random weights in every parameter; activations are of the same type.
void fill(Module& module, DType dtype, ThreadPool& pool) {
  uint32_t seed = 1;
  for (const LoadTarget& target : module.load_targets()) {
    for (const ShardSpec& shard : target.parameter->shards()) {
      const float spread = shard.shape.size() > 1 ? 0.02F : 1.0F;
      target.parameter->load(random_tensor(shard.shape, dtype, seed++, spread), shard.id);
    }
  }
  FinalizeOptions options{pool};
  options.weight_format = dtype == DType::kBF16 ? WeightFormat::kBF16 : WeightFormat::kKeep;
  module.finalize(options);
}

// Rows of the conditional branch, then as many of the other one; each sees its own prompt.
class TwoBranches : public TowerAttention {
 public:
  explicit TwoBranches(int64_t num_layers) : cond_(num_layers), uncond_(num_layers) {}

  void attend_und(Stream& stream,
                  int32_t layer,
                  const Tensor& q,
                  const Tensor& k,
                  const Tensor& k_for_gen,
                  const Tensor& v,
                  Tensor& out) override {
    cond_.attend_und(stream, layer, q, k, k_for_gen, v, out);
    uncond_.attend_und(stream, layer, q, k, k_for_gen, v, out);
  }

  void attend_gen(Stream& stream,
                  int32_t layer,
                  const Tensor& q,
                  const Tensor& k,
                  const Tensor& v,
                  Tensor& out) override {
    const int64_t half = q.dim(0) / 2;
    DirectAttention* branches[] = {&cond_, &uncond_};
    for (int64_t branch = 0; branch < 2; ++branch) {
      const int64_t begin = branch * half;
      const int64_t end = begin + half;
      Tensor part = out.slice(0, begin, end);
      branches[branch]->attend_gen(stream,
                                   layer,
                                   q.slice(0, begin, end),
                                   k.slice(0, begin, end),
                                   v.slice(0, begin, end),
                                   part);
    }
  }

 private:
  DirectAttention cond_;
  DirectAttention uncond_;
};

// Multiply-adds count twice: the matrices' 2 P for each row and layer, and attention's 4 q for each
// pair of a row and what it sees.
double step_flops(const TransformerConfig& config, int64_t num_rows) {
  const auto hidden = static_cast<double>(config.hidden_size);
  const auto query = static_cast<double>(config.num_attention_heads * config.head_dim);
  const auto key = static_cast<double>(config.num_key_value_heads * config.head_dim);
  const double mlp = (config.gated_mlp ? 3.0 : 2.0) * static_cast<double>(config.intermediate_size);
  const double per_row = 2.0 * hidden * (2.0 * query + 2.0 * key + mlp);
  const auto rows = static_cast<double>(num_rows);
  const double attention = 4.0 * query * (rows + static_cast<double>(kNumText));
  return 2.0 * static_cast<double>(config.num_hidden_layers) * rows * (per_row + attention);
}

struct Step {
  std::unique_ptr<Transformer> transformer;
  std::unique_ptr<TwoBranches> attention;
  RotaryTable rotary;
  Tensor rows;
};

// `side`: of the square picture, in tokens.
Case step_case(const Flavour& flavour, int64_t side, DType dtype) {
  const TransformerConfig config = config_of(flavour);
  Case result;
  result.name =
      str_cat("cosmos3/step/", name_of(dtype), "/", flavour.name, "/n", side * side, "x2");
  result.peak = peak_of(dtype);
  result.flops = step_flops(config, side * side);
  result.prepare = [config, side, dtype](CpuStream& stream) {
    auto step = std::make_shared<Step>();
    step->transformer = std::make_unique<Transformer>(config);
    fill(*step->transformer, dtype, stream.pool());
    step->attention = std::make_unique<TwoBranches>(config.num_hidden_layers);
    step->transformer->prefill(stream,
                               random_tensor({kNumText, config.hidden_size}, dtype, 7),
                               step->transformer->rotary(stream, text_positions(kNumText)),
                               *step->attention,
                               false);
    GenLayout layout;
    layout.frames = 1;
    layout.latent_height = layout.latent_width = side * config.latent_patch_size;
    layout.fps = 24.0;
    layout.clean_frames = {false};
    constexpr int64_t kTemporalFactor = 4;
    const Tensor one = gen_positions(config, kTemporalFactor, layout, kNumText);
    const int64_t num_rows = one.dim(1);
    Tensor both = Tensor::empty({3, 2 * num_rows}, DType::kF32);
    for (int64_t axis = 0; axis < 3; ++axis) {
      for (int64_t i = 0; i < 2 * num_rows; ++i) {
        both.data<float>()[axis * 2 * num_rows + i] =
            one.data<float>()[axis * num_rows + i % num_rows];
      }
    }
    step->rotary = step->transformer->rotary(stream, both);
    step->rows = random_tensor({2 * num_rows, config.hidden_size}, dtype, 8);
    stream.synchronize();
    Case::Runs runs;
    runs.ours = [step, &stream] {
      step->transformer->denoise(stream, step->rows, step->rotary, *step->attention);
      stream.synchronize();
    };
    return runs;
  };
  return result;
}

VaeConfig vae_config() {
  const std::vector<std::string> zeros(48, "0.0");
  const std::vector<std::string> ones(48, "1.0");
  const std::string json = str_cat(
      R"({"_class_name":"AutoencoderKLWan","base_dim":160,"decoder_base_dim":256,"z_dim":48,"dim_mult":[1,2,4,4],"attn_scales":[],)",
      R"("num_res_blocks":2,"temperal_downsample":[false,true,true],"is_residual":true,)",
      R"("in_channels":12,"out_channels":12,"patch_size":2,"scale_factor_spatial":16,)",
      R"("scale_factor_temporal":4,"dropout":0.0,"latents_mean":[)",
      str_join(zeros, ","),
      R"(],"latents_std":[)",
      str_join(ones, ","),
      "]}");
  return VaeConfig::parse(Json::parse(json, "bench"), "bench");
}

// Two latent frames of 4 x 6: a picture of 96 x 64 and the four frames behind it. Convolutions
// alone are counted, as the published model has them: operations of a latent pixel in the first
// and in every later frame.
constexpr int64_t kLatentHeight = 4;
constexpr int64_t kLatentWidth = 6;
constexpr double kLatentPixels = kLatentHeight * kLatentWidth;
constexpr double kDecodeFirst = 5.83e9;
constexpr double kDecodeLater = 18.84e9;
constexpr double kEncodeFirst = 1.19e9;
constexpr double kEncodeLater = 3.57e9;

Case decode_case(DType dtype) {
  Case result;
  result.name = str_cat("cosmos3/vae/", name_of(dtype), "/decode/96x64x5");
  result.peak = peak_of(dtype);
  result.flops = kLatentPixels * (kDecodeFirst + kDecodeLater);
  result.prepare = [dtype](CpuStream& stream) {
    auto vae = std::make_shared<VaeDecoder>(vae_config(), dtype);
    fill(*vae, dtype, stream.pool());
    const Tensor latents = random_tensor({48, 2, kLatentHeight, kLatentWidth}, DType::kF32, 9);
    Case::Runs runs;
    runs.ours = [vae, latents, &stream] {
      VaeCache cache;
      vae->decode(stream, latents, cache);
      stream.synchronize();
    };
    return runs;
  };
  return result;
}

Case encode_case(DType dtype) {
  Case result;
  result.name = str_cat("cosmos3/vae/", name_of(dtype), "/encode/96x64x5");
  result.peak = peak_of(dtype);
  result.flops = kLatentPixels * (kEncodeFirst + kEncodeLater);
  result.prepare = [dtype](CpuStream& stream) {
    auto vae = std::make_shared<VaeEncoder>(vae_config(), dtype);
    fill(*vae, dtype, stream.pool());
    const Tensor pixels =
        random_tensor({5, kLatentHeight * 16, kLatentWidth * 16, 3}, DType::kF32, 10);
    Case::Runs runs;
    runs.ours = [vae, pixels, &stream] {
      vae->encode(stream, pixels);
      stream.synchronize();
    };
    return runs;
  };
  return result;
}

}  // namespace

void add_cosmos3_cases(Cases& cases) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    cases.push_back(step_case(kEdge, 20, dtype));
    cases.push_back(step_case(kEdge, 32, dtype));
    cases.push_back(step_case(kEdge, 44, dtype));
    cases.push_back(step_case(kNano, 20, dtype));
    cases.push_back(step_case(kNano, 32, dtype));
    cases.push_back(decode_case(dtype));
    cases.push_back(encode_case(dtype));
  }
}

}  // namespace mstar::bench

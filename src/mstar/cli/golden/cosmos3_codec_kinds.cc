// Cosmos3: the video VAE with its caches, the sound decoder.
#include <algorithm>

#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/models/cosmos3/sound.h"
#include "mstar/models/cosmos3/vae.h"
#include "mstar/models/cosmos3/vae_ops.h"

namespace mstar::golden {

namespace {

using namespace cosmos3;  // NOLINT: the family under test

std::string weights_folder(const GoldenCase& golden) {
  return str_cat(golden.folder, "/", golden.get_string("weights"));
}

// Channels first with a batch of one, as recorded, and channels last, as computed.
Tensor to_last(const Tensor& first) {
  const int order[] = {1, 2, 3, 0};
  return first.to(DType::kF32).copy().select(0, 0).permute(order).copy();
}

Tensor to_first(const Tensor& last) {
  const int order[] = {3, 0, 1, 2};
  return last.permute(order).copy().unsqueeze(0);
}

template <typename Part>
struct Loaded {
  Loaded(const GoldenCase& golden, RunContext& context, DType dtype = DType::kF32)
      : config(
            VaeConfig::parse(read_json_file(weights_folder(golden) + "/config.json"), golden.name)),
        part(config, dtype) {
    FinalizeOptions options{context.pool};
    if (dtype == DType::kBF16) {
      options.weight_format = WeightFormat::kBF16;
    }
    part.load(*open_checkpoint(weights_folder(golden)), options);
  }

  VaeConfig config;
  Part part;
};

void run_encode(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Loaded<VaeEncoder> loaded(golden, context);
  const Tensor latents = loaded.part.encode(context.stream, to_last(golden.tensor("in.pixels")));
  result.expect("out.latent", latents.unsqueeze(0));
  // The mean before normalizing, back from the latents.
  Tensor mean = latents.copy();
  const int64_t plane = mean.num_elements() / mean.dim(0);
  for (int64_t channel = 0; channel < mean.dim(0); ++channel) {
    const auto at = static_cast<size_t>(channel);
    float* values = mean.data<float>() + channel * plane;
    std::transform(values, values + plane, values, [&](float value) {
      return value * loaded.config.latents_std[at] + loaded.config.latents_mean[at];
    });
  }
  result.expect("out.mean", mean.unsqueeze(0));
}

void run_decode(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Loaded<VaeDecoder> loaded(golden, context);
  VaeCache cache;
  const Tensor latent = golden.tensor("in.latent").copy().select(0, 0).copy();
  result.expect("out.pixels_unclamped",
                to_first(loaded.part.decode(context.stream, latent, cache)));
}

// The recorded latents are already denormalized and rounded to bf16.
void run_decode_bf16(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Loaded<VaeDecoder> loaded(golden, context, DType::kBF16);
  const Tensor z = golden.tensor("mid.z").to(DType::kF32).copy().select(0, 0).copy();
  Tensor latent = z.copy();
  const int64_t plane = z.num_elements() / z.dim(0);
  for (int64_t channel = 0; channel < z.dim(0); ++channel) {
    const auto at = static_cast<size_t>(channel);
    float* values = latent.data<float>() + channel * plane;
    std::transform(values, values + plane, values, [&](float value) {
      return (value - loaded.config.latents_mean[at]) / loaded.config.latents_std[at];
    });
  }
  VaeCache cache;
  const Tensor pixels = to_first(loaded.part.decode(context.stream, latent, cache));
  result.expect("out.pixels_unclamped", pixels);
  result.expect("out.pixels_fp32", pixels);
  if (cosine_similarity(pixels, golden.tensor("out.pixels_fp32")) < 0.999) {
    result.fail("the direction differs from f32");
  }
}

void run_stream(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Loaded<VaeDecoder> loaded(golden, context);
  const auto latent = [&](const char* name) {
    return golden.tensor(name).copy().select(0, 0).copy();
  };
  VaeCache cache;
  const Tensor first = loaded.part.decode(context.stream, latent("in.latent_first"), cache);
  const Tensor second = loaded.part.decode(context.stream, latent("in.latent_second"), cache);
  Shape shape = first.shape();
  shape[0] += second.dim(0);
  Tensor both = Tensor::empty(shape, DType::kF32);
  std::copy_n(first.data<float>(), first.num_elements(), both.data<float>());
  std::copy_n(
      second.data<float>(), second.num_elements(), both.data<float>() + first.num_elements());
  result.expect("out.pixels_unclamped", to_first(both));
  VaeCache fresh;
  result.expect("out.second_without_caches",
                to_first(loaded.part.decode(context.stream, latent("in.latent_second"), fresh)));
}

// The recorded caches hold one frame where ours holds a zero frame before it.
void expect_caches(const GoldenCase& golden,
                   const std::string& prefix,
                   const CacheLayout& layout,
                   VaeCache& cache,
                   CaseResult& result) {
  for (size_t index = 0; index < layout.names.size(); ++index) {
    const std::string name = str_cat("out.", prefix, ".", layout.names[index]);
    if (!golden.has(name)) {
      continue;
    }
    const Tensor& held = cache.history(static_cast<int>(index));
    if (!held.defined()) {
      result.fail(name + " is empty");
      continue;
    }
    const int64_t frames = std::min(golden.tensor(name).dim(2), held.dim(0));
    result.expect(name, to_first(held.slice(0, held.dim(0) - frames, held.dim(0)).copy()));
  }
}

void run_decode_caches(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Loaded<VaeDecoder> loaded(golden, context);
  const Tensor latent = golden.tensor("in.latent").copy().select(0, 0).copy();
  const Tensor prepared = loaded.part.prepare(context.stream, latent);
  VaeCache cache;
  for (int64_t chunk = 0; chunk < prepared.dim(0); ++chunk) {
    loaded.part.decode_chunk(context.stream, prepared.slice(0, chunk, chunk + 1), cache);
    expect_caches(golden, str_cat("chunk", chunk), loaded.part.cache_layout(), cache, result);
  }
}

void run_encode_caches(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Loaded<VaeEncoder> loaded(golden, context);
  const Tensor pixels = to_last(golden.tensor("in.pixels"));
  const int64_t patch = loaded.config.patch_size;
  VaeCache cache;
  for (int64_t chunk = 0; chunk < 3; ++chunk) {
    const int64_t begin = chunk == 0 ? 0 : 4 * chunk - 3;
    const Tensor part = pixels.slice(0, begin, chunk == 0 ? 1 : begin + 4);
    Tensor cells = Tensor::empty(
        {part.dim(0), part.dim(1) / patch, part.dim(2) / patch, part.dim(3) * patch * patch},
        DType::kF32);
    patchify_pixels(context.stream, part, patch, cells);
    loaded.part.encode_chunk(context.stream, cells, cache);
    expect_caches(golden, str_cat("chunk", chunk), loaded.part.cache_layout(), cache, result);
  }
}

// The recorded activations lie between the ends that are compared here.
void run_encode_blocks(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Loaded<VaeEncoder> loaded(golden, context);
  const Tensor cells = to_last(golden.tensor("in.patchified"));
  VaeCache cache;
  loaded.part.encode_chunk(context.stream, cells.slice(0, 0, 1), cache);
  const Tensor out = loaded.part.encode_chunk(context.stream, cells.slice(0, 1, 5), cache);
  const Tensor want = golden.tensor("mid.chunk1.conv_out");
  const Comparison found = compare(to_first(out), want, {.atol = 1e-4});
  if (!found.passed) {
    result.fail(str_cat("chunk1.conv_out: ", found.to_string()));
  }
}

void run_decode_blocks(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Loaded<VaeDecoder> loaded(golden, context);
  const Tensor latent = golden.tensor("in.latent").copy().select(0, 0).copy();
  const Tensor prepared = loaded.part.prepare(context.stream, latent);
  VaeCache cache;
  for (int64_t chunk = 0; chunk < 2; ++chunk) {
    const Tensor out =
        loaded.part.decode_chunk(context.stream, prepared.slice(0, chunk, chunk + 1), cache);
    const Tensor want = golden.tensor(str_cat("mid.chunk", chunk, ".conv_out"));
    const Comparison found = compare(to_first(out), want, {.atol = 5e-5});
    if (!found.passed) {
      result.fail(str_cat("chunk", chunk, ".conv_out: ", found.to_string()));
    }
  }
}

void run_sound(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  SoundDecoder decoder(
      SoundConfig::parse(read_json_file(weights_folder(golden) + "/config.json"), golden.name));
  decoder.load(*open_checkpoint(weights_folder(golden)), {context.pool});
  Tensor wave = decoder.decode(context.stream, golden.tensor("in.latent").copy().select(0, 0));
  result.expect("out.unclamped", wave.unsqueeze(0));
  if (!golden.has("out.pcm16")) {
    return;
  }
  result.expect("out.pcm16", to_pcm16(wave).transpose(0, 1).copy().unsqueeze(0));
  std::transform(wave.data<float>(),
                 wave.data<float>() + wave.num_elements(),
                 wave.data<float>(),
                 [](float value) { return std::clamp(value, -1.0F, 1.0F); });
  result.expect("out.waveform", wave.unsqueeze(0));
}

}  // namespace

void add_cosmos3_codec_kinds(Registry& registry) {
  registry.add_prefix("vae-encode-f", run_encode);
  registry.add_prefix("vae-decode-t", run_decode);
  registry.add_prefix("vae-decode-t2-bf16", run_decode_bf16);
  registry.add_prefix("vae-stream", run_stream);
  registry.add_prefix("vae-decode-caches", run_decode_caches);
  registry.add_prefix("vae-encode-caches", run_encode_caches);
  registry.add_prefix("vae-encode-blocks", run_encode_blocks);
  registry.add_prefix("vae-decode-blocks", run_decode_blocks);
  registry.add_prefix("avae-decode", run_sound);
}

}  // namespace mstar::golden

#include "mstar/models/cosmos3/codec_submodules.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/cosmos3/pipeline.h"
#include "mstar/models/cosmos3/vae_ops.h"

namespace mstar::cosmos3 {

namespace {

// The tensors a node asked for, unchanged.
std::unique_ptr<NodeInputs> pass_on(const NamedTensors& inputs) {
  auto prepared = std::make_unique<NodeInputs>();
  prepared->tensor_inputs = inputs;
  return prepared;
}

std::function<bool()> cancelled(const CurrentForwardPassInfo& info) {
  return [&info] { return info.is_cancelled(); };
}

}  // namespace

Tensor place_anchor(const Tensor& encoded, const GenLayout& layout) {
  Tensor anchor = Tensor::zeros(
      {encoded.dim(0), layout.frames, layout.latent_height, layout.latent_width}, DType::kF32);
  const int64_t plane = layout.latent_height * layout.latent_width;
  MSTAR_CHECK(encoded.dim(2) * encoded.dim(3) == plane && encoded.dim(1) <= layout.frames,
              encoded.to_string());
  for (int64_t channel = 0; channel < encoded.dim(0); ++channel) {
    for (int64_t frame = 0; frame < encoded.dim(1); ++frame) {
      if (layout.clean_frames[static_cast<size_t>(frame)]) {
        std::copy_n(encoded.data<float>() + (channel * encoded.dim(1) + frame) * plane,
                    plane,
                    anchor.data<float>() + (channel * layout.frames + frame) * plane);
      }
    }
  }
  return anchor;
}

Tensor choose_frames(const Tensor& frames, int64_t count, bool keep_last) {
  const int64_t have = frames.dim(0);
  const int64_t first = keep_last ? std::max<int64_t>(have - count, 0) : 0;
  Shape shape = frames.shape();
  shape[0] = count;
  Tensor out = Tensor::empty(shape, DType::kU8);
  const int64_t size = frames.num_elements() / have;
  for (int64_t frame = 0; frame < count; ++frame) {
    const int64_t from = std::min(first + frame, have - 1);
    std::copy_n(frames.data<uint8_t>() + from * size, size, out.data<uint8_t>() + frame * size);
  }
  return out;
}

std::unique_ptr<NodeInputs> Cosmos3VAEEncoderSubmodule::prepare_inputs(
    std::string_view,
    const CurrentForwardPassInfo&,
    const NamedTensors& inputs,
    const PrepareContext&) {
  return pass_on(inputs);
}

NamedTensors Cosmos3VAEEncoderSubmodule::forward(std::string_view graph_walk,
                                                 const ModelInputsFromEngine& engine_inputs,
                                                 ForwardArgs& args) {
  const CurrentForwardPassInfo& info = engine_inputs.single_request_info();
  const GenRequest& request = gen_request(info);
  Stream& stream = *engine_inputs.stream;
  const char* name = graph_walk == "prefill_cond_video" ? "video_inputs" : "image_inputs";
  NamedTensors outputs;
  if (request.num_condition_frames == 0) {
    outputs.set("cond_latents", TensorList{});
    return outputs;
  }
  const Tensor chosen =
      choose_frames(args.tensors.tensor(name), request.num_condition_frames, request.keep_last);
  const Tensor pixels = condition_pixels(stream, chosen, request.height, request.width, resize_);
  const Tensor encoded = vae_->encode(stream, pixels, cancelled(info));
  expect_finite(stream, encoded, str_cat("vae_encoder, ", graph_walk));
  outputs.set("cond_latents", place_anchor(encoded, request.plan.layout));
  return outputs;
}

std::unique_ptr<NodeInputs> Cosmos3VAEDecoderSubmodule::prepare_inputs(
    std::string_view,
    const CurrentForwardPassInfo&,
    const NamedTensors& inputs,
    const PrepareContext&) {
  return pass_on(inputs);
}

NamedTensors Cosmos3VAEDecoderSubmodule::forward(std::string_view graph_walk,
                                                 const ModelInputsFromEngine& engine_inputs,
                                                 ForwardArgs& args) {
  const CurrentForwardPassInfo& info = engine_inputs.single_request_info();
  Stream& stream = *engine_inputs.stream;
  VaeCache cache;
  const Tensor pixels =
      vae_->decode(stream, args.tensors.tensor("latents"), cache, cancelled(info));
  expect_finite(stream, pixels, str_cat("vae_decoder, ", graph_walk));
  Tensor bytes = Tensor::empty(pixels.shape(), DType::kU8);
  to_bytes(stream, pixels, bytes);
  NamedTensors outputs;
  outputs.set(graph_walk == "image_gen" ? "image_output" : "video_output", bytes);
  return outputs;
}

std::unique_ptr<NodeInputs> Cosmos3AudioDecoderSubmodule::prepare_inputs(
    std::string_view,
    const CurrentForwardPassInfo&,
    const NamedTensors& inputs,
    const PrepareContext&) {
  return pass_on(inputs);
}

NamedTensors Cosmos3AudioDecoderSubmodule::forward(std::string_view graph_walk,
                                                   const ModelInputsFromEngine& engine_inputs,
                                                   ForwardArgs& args) {
  const GenRequest& request = gen_request(engine_inputs.single_request_info());
  Stream& stream = *engine_inputs.stream;
  const Tensor wave = sound_tokenizer_->decode(stream, args.tensors.tensor("sound_latents"));
  expect_finite(stream, wave, str_cat("audio_decoder, ", graph_walk));
  const int64_t samples = request.sound.num_samples;
  const int64_t have = std::min(samples, wave.dim(1));
  Tensor fitted = Tensor::zeros({wave.dim(0), samples}, DType::kF32);
  for (int64_t channel = 0; channel < wave.dim(0); ++channel) {
    std::copy_n(
        wave.data<float>() + channel * wave.dim(1), have, fitted.data<float>() + channel * samples);
  }
  NamedTensors outputs;
  outputs.set("audio_output", to_pcm16(fitted));
  return outputs;
}

}  // namespace mstar::cosmos3

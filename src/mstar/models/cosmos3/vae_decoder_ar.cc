#include "mstar/models/cosmos3/vae_decoder_ar.h"

#include <algorithm>

#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/models/cosmos3/pipeline.h"
#include "mstar/models/cosmos3/vae_ops.h"

namespace mstar::cosmos3 {

namespace {

constexpr std::string_view kProgress = "decoded";  // PerRequestState

// Latent frames a session keeps: more than any sensible overlap, so that a continuation may choose.
constexpr int64_t kKeptUnits = 16;

// [a | b] along the frames, the last `count` of them.
Tensor last_of(const Tensor& a, const Tensor& b, int64_t count) {
  const int64_t have = (a.defined() ? a.dim(1) : 0) + b.dim(1);
  const int64_t kept = std::min(have, count);
  const int64_t from_b = std::min(kept, b.dim(1));
  const int64_t from_a = kept - from_b;
  Tensor out = Tensor::empty({b.dim(0), kept, b.dim(2), b.dim(3)}, DType::kF32);
  const int64_t plane = b.dim(2) * b.dim(3);
  for (int64_t channel = 0; channel < b.dim(0); ++channel) {
    float* to = out.data<float>() + channel * kept * plane;
    if (from_a > 0) {
      const float* from = a.data<float>() + (channel * a.dim(1) + a.dim(1) - from_a) * plane;
      to = std::copy_n(from, from_a * plane, to);
    }
    const float* from = b.data<float>() + (channel * b.dim(1) + b.dim(1) - from_b) * plane;
    std::copy_n(from, from_b * plane, to);
  }
  return out;
}

}  // namespace

std::unique_ptr<NodeInputs> Cosmos3VAEDecoderARSubmodule::prepare_inputs(
    std::string_view,
    const CurrentForwardPassInfo&,
    const NamedTensors& inputs,
    const PrepareContext&) {
  auto prepared = std::make_unique<NodeInputs>();
  prepared->tensor_inputs = inputs;
  return prepared;
}

Cosmos3VAEDecoderARSubmodule::Progress& Cosmos3VAEDecoderARSubmodule::progress(
    RequestHandle request,
    const WindowPlan& windows) {
  PerRequestState& state = request_state(request);
  auto* known = state.kwargs.find<std::shared_ptr<Progress>>(kProgress);
  if (known == nullptr) {
    auto fresh = std::make_shared<Progress>();
    if (windows.continued != nullptr) {
      fresh->cache = windows.continued->decoder;  // shares tensors that nobody writes to
      fresh->tail = windows.continued->latents;
    }
    state.add(kProgress, std::move(fresh));
    known = state.kwargs.find<std::shared_ptr<Progress>>(kProgress);
  }
  return **known;
}

NamedTensors Cosmos3VAEDecoderARSubmodule::forward(std::string_view graph_walk,
                                                   const ModelInputsFromEngine& engine_inputs,
                                                   ForwardArgs& args) {
  const CurrentForwardPassInfo& info = engine_inputs.single_request_info();
  const WindowPlan& windows = *gen_request(info).windows;
  Stream& stream = *engine_inputs.stream;
  Progress& at = progress(engine_inputs.request_ids.front(), windows);
  const Tensor latents = args.tensors.tensor_or_none(kWindowLatents);
  const int64_t num_units =
      latents.defined() ? std::min(latents.dim(1), windows.num_new_units - at.num_units) : 0;
  NamedTensors outputs;
  if (num_units <= 0) {
    return outputs;
  }
  Tensor wanted =
      stream.empty({latents.dim(0), num_units, latents.dim(2), latents.dim(3)}, DType::kF32);
  ops::copy(stream, latents.slice(1, 0, num_units), wanted);
  const Tensor pixels =
      vae_->decode(stream, wanted, at.cache, [&info] { return info.is_cancelled(); });
  expect_finite(stream, pixels, str_cat(info.partition_name, ", ", graph_walk));
  Tensor bytes = Tensor::empty(pixels.shape(), DType::kU8);
  to_bytes(stream, pixels, bytes);
  stream.synchronize();
  at.num_units += num_units;
  at.num_frames += pixels.dim(0);
  if (!windows.session_id.empty()) {
    at.tail = last_of(at.tail, wanted, kKeptUnits);
    if (at.num_units == windows.num_new_units) {
      store(windows, at);
    }
  }
  outputs.set("video_output", bytes);
  return outputs;
}

void Cosmos3VAEDecoderARSubmodule::store(const WindowPlan& windows, Progress& at) const {
  auto session = std::make_shared<WindowSession>();
  session->latents = at.tail;
  session->decoder = at.cache.copy();
  session->num_units = at.num_units;
  session->num_frames = at.num_frames;
  if (windows.continued != nullptr) {
    session->num_units += windows.continued->num_units;
    session->num_frames += windows.continued->num_frames;
  }
  sessions_->store(windows.session_id, std::move(session));
}

}  // namespace mstar::cosmos3

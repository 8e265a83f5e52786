// Captured denoising steps of the "dit" node: pictures of a few sizes, both guidance branches, up
// to the velocities. What the rows read lies in static tensors, their keys and values in pages
// behind the text's; guidance and the solver follow in postprocess.
#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/models/cosmos3/dit_parts.h"

namespace mstar::cosmos3 {

namespace {

constexpr std::string_view kWalk = "image_gen";

GenLayout layout_of(const DitCaptures::Size& size) {
  GenLayout layout;
  layout.frames = 1;
  layout.latent_height = size.latent_height;
  layout.latent_width = size.latent_width;
  layout.clean_frames = {false};
  return layout;
}

DitCaptures::Size size_of(const CaptureKey& key) {
  return {key[0], key[1]};
}

CaptureKey key_of(const DitCaptures::Size& size) {
  return {size.latent_height, size.latent_width};
}

// A step is the same for all such requests but for latents, time and text.
std::optional<CaptureKey> key_of(const GenRequest& request) {
  const GenLayout& layout = request.plan.layout;
  if (!request.has_guidance() || request.windows || layout.frames != 1 ||
      !layout.all_frames_noisy() || layout.num_sound > 0 || layout.num_actions > 0) {
    return std::nullopt;
  }
  return CaptureKey{layout.latent_height, layout.latent_width};
}

}  // namespace

int64_t DitCaptures::most_tokens(int64_t patch) const {
  int64_t most = 0;
  for (const Size& size : sizes) {
    for (const int rows : batch_sizes) {
      most = std::max(most, rows * layout_of(size).num_tokens(patch));
    }
  }
  return most;
}

int64_t DitCaptures::num_pages(int64_t patch, int64_t page_size) const {
  int64_t most = 0;
  for (const Size& size : sizes) {
    for (const int rows : batch_sizes) {
      // The first tokens may share the page on which the text ends.
      const int64_t pages = layout_of(size).num_tokens(patch) / page_size + 2;
      most = std::max(most, 2 * rows * pages);
    }
  }
  return most;
}

std::optional<CaptureKey> Cosmos3DiTSubmodule::capture_key(
    std::string_view graph_walk,
    std::span<const CurrentForwardPassInfo* const> infos) const {
  // Keys and values of another type than the rows would be rounded on their way through a page.
  if (graph_walk != kWalk || infos.empty() || kv_->spec().dtype != activation_dtype_) {
    return std::nullopt;
  }
  const std::optional<CaptureKey> key = key_of(gen_request(*infos.front()));
  const bool known = key && std::ranges::any_of(captures_.sizes, [&](const auto& size) {
                       return key_of(size) == *key;
                     });
  const bool alike = known && std::ranges::all_of(infos, [&](const auto* info) {
                       return key_of(gen_request(*info)) == key;
                     });
  return alike ? key : std::nullopt;
}

bool Cosmos3DiTSubmodule::can_use_graph_capture(const ExecutingBatch& batch,
                                                std::span<NodeInputs* const> inputs) {
  const auto num_rows = static_cast<int>(inputs.size());
  if (!capture_key(batch.graph_walk, batch.per_request_info) ||
      std::ranges::find(captures_.batch_sizes, num_rows) == captures_.batch_sizes.end() ||
      !std::ranges::all_of(inputs, [](const auto* one) { return step_info(*one).cfg_active; })) {
    return false;
  }
  const int64_t pages = inputs.front()->input_seq_len / kv_->spec().page_size + 2;
  return kv_->stats().num_free >= 2 * num_rows * pages;
}

std::vector<CaptureConfig> Cosmos3DiTSubmodule::get_capture_configs(Device, int) {
  std::vector<CaptureConfig> configs;
  for (const DitCaptures::Size& size : captures_.sizes) {
    CaptureConfig config;
    config.capture_graph_walk = std::string(kWalk);
    config.capture_key = key_of(size);
    config.capture_batch_sizes = captures_.batch_sizes;
    config.seq_len = layout_of(size).num_tokens(transformer_->config().latent_patch_size);
    config.caps_eager_batch_size = false;
    config.tokens_multiplier = 2;
    config.lazy = true;
    config.make_node_input = [](int64_t seq_len) {
      auto inputs = std::make_unique<NodeInputs>();
      inputs->input_seq_len = seq_len;
      inputs->resource_step_info = GenStepInfo{.cfg = true, .cfg_active = true};
      return inputs;
    };
    configs.push_back(std::move(config));
  }
  return configs;
}

void Cosmos3DiTSubmodule::add_captured_inputs(const ModelInputsFromEngine& engine_inputs,
                                              std::span<NodeInputs* const> inputs,
                                              ForwardArgs& args) {
  const TransformerConfig& config = transformer_->config();
  const GenLayout layout = layout_of(size_of(engine_inputs.context->lease->bucket.key));
  const auto num_rows = static_cast<int64_t>(inputs.size());
  const int64_t num_tokens = layout.num_tokens(config.latent_patch_size);
  Tensor latents = Tensor::zeros(
      {num_rows, config.latent_channel, 1, layout.latent_height, layout.latent_width}, DType::kF32);
  Tensor features =
      Tensor::zeros({num_rows, transformer_->time_features(0.0F).dim(1)}, DType::kF32);
  Tensor positions = Tensor::zeros({3, 2 * num_rows * num_tokens}, DType::kF32);
  // Rows that pad, and all rows while recording, stay zero.
  const int64_t num_real = engine_inputs.captured ? 0 : engine_inputs.context->num_real;
  for (int64_t row = 0; row < num_real; ++row) {
    const auto at = static_cast<size_t>(row);
    const Denoiser& denoiser = *request_state(engine_inputs.request_ids[at])
                                    .kwargs.at<std::shared_ptr<Denoiser>>(kDenoiser);
    const Tensor& own = denoiser.state().vision;
    std::copy_n(
        own.data<float>(), own.num_elements(), latents.data<float>() + row * own.num_elements());
    const Tensor time = transformer_->time_features(denoiser.timestep());
    std::copy_n(
        time.data<float>(), time.num_elements(), features.data<float>() + row * time.dim(1));
    const GenRequest& request = gen_request(*engine_inputs.per_request_info[at]);
    for (int64_t branch = 0; branch < 2; ++branch) {
      const auto& ids = branch == 0 ? request.cond_ids : request.uncond_ids;
      const Tensor places = gen_positions(
          config, temporal_factor_, request.plan.layout, static_cast<int64_t>(ids.size()));
      for (int64_t axis = 0; axis < 3; ++axis) {
        std::copy_n(
            places.data<float>() + axis * num_tokens,
            num_tokens,
            positions.data<float>() + (axis * 2 * num_rows + branch * num_rows + row) * num_tokens);
      }
    }
  }
  args.tensors.set("latents", latents);
  args.tensors.set("features", features);
  args.tensors.set("positions", positions);
  args.tensors.set("noisy", noisy_rows(layout, config.latent_patch_size));
}

// What is recorded. Rows: all conditional branches, then all unconditional ones.
BatchedModelOutput Cosmos3DiTSubmodule::velocities(const ModelInputsFromEngine& engine_inputs,
                                                   ForwardArgs& args) {
  Stream& stream = *engine_inputs.stream;
  const GenLayout layout = layout_of(size_of(engine_inputs.context->lease->bucket.key));
  const Tensor& latents = args.tensors.tensor("latents");
  const Tensor& features = args.tensors.tensor("features");
  const int64_t num_rows = latents.dim(0);
  const int64_t num_tokens = layout.num_tokens(transformer_->config().latent_patch_size);
  Tensor rows = stream.empty({2 * num_rows * num_tokens, transformer_->config().hidden_size},
                             activation_dtype_);
  for (int64_t row = 0; row < num_rows; ++row) {
    const Tensor own = transformer_->embed_gen(stream,
                                               layout,
                                               {latents.select(0, row), {}, {}},
                                               features.slice(0, row, row + 1),
                                               args.tensors.tensor("noisy"),
                                               activation_dtype_);
    for (const int64_t place : {row, num_rows + row}) {
      Tensor to = rows.slice(0, place * num_tokens, (place + 1) * num_tokens);
      ops::copy(stream, own, to);
    }
  }
  EngineAttention attention(
      *engine_inputs.context, kBothLabel, num_rows * num_tokens, *kv_, *attention_, *commit_);
  const Tensor out = transformer_->denoise(
      stream, rows, transformer_->rotary(stream, args.tensors.tensor("positions")), attention);
  BatchedModelOutput output;
  for (int64_t row = 0; row < num_rows; ++row) {
    NamedTensors& own = output.per_rid_outputs[engine_inputs.request_ids[static_cast<size_t>(row)]];
    for (const auto& [name, place] :
         {std::pair{kCondVelocity, row}, std::pair{kUncondVelocity, num_rows + row}}) {
      const Tensor part = out.slice(0, place * num_tokens, (place + 1) * num_tokens);
      own.set(name, transformer_->read_velocity(stream, layout, part).vision);
    }
  }
  return output;
}

}  // namespace mstar::cosmos3

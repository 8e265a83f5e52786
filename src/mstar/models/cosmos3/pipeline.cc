#include "mstar/models/cosmos3/pipeline.h"

#include <algorithm>
#include <cmath>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar::cosmos3 {

Schedule make_schedule(const Cosmos3Config& config,
                       int64_t num_steps,
                       double flow_shift,
                       bool karras) {
  const SchedulerConfig& scheduler = config.scheduler;
  if (config.is_distilled()) {
    return distilled_schedule(config.distilled_sigmas, scheduler.num_train_timesteps);
  }
  if (karras) {
    if (!(scheduler.sigma_max > 0.0)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "[request] \"use_karras_sigmas\": this checkpoint gives no range of sigmas");
    }
    return karras_schedule(
        num_steps, scheduler.sigma_min, scheduler.sigma_max, scheduler.num_train_timesteps);
  }
  return config.use_native_flow_schedule
             ? native_schedule(num_steps, flow_shift, scheduler.num_train_timesteps)
             : linear_schedule(num_steps, flow_shift, scheduler.num_train_timesteps);
}

namespace {

[[noreturn]] void not_finite(const std::string& where) {
  throw Error(ErrorCode::kInternal,
              str_cat("[", where, "] a value is not finite: the weights or the input are broken"));
}

}  // namespace

void expect_finite(Stream& stream, const Tensor& x, const std::string& where) {
  if (!x.defined()) {
    return;
  }
  Tensor flag = Tensor::zeros({1}, DType::kU8);
  ops::check_finite(stream, x, flag);
  stream.synchronize();
  if (*flag.data<uint8_t>() != 0) {
    not_finite(where);
  }
}

void expect_all_finite(const Tensor& x, const std::string& where) {
  if (!x.defined()) {
    return;
  }
  const float* values = x.data<float>();
  if (!std::all_of(values, values + x.num_elements(), [](float v) { return std::isfinite(v); })) {
    not_finite(where);
  }
}

GenState guided_velocity(Stream& stream,
                         const Transformer& transformer,
                         const Denoiser& denoiser,
                         const Branch& cond,
                         const Branch* uncond,
                         DType activation_dtype) {
  const GenLayout& layout = denoiser.plan().layout;
  const Tensor rows = transformer.embed_gen(
      stream, layout, denoiser.state(), denoiser.timestep(), activation_dtype);
  const auto velocity_of = [&](const Branch& branch) {
    const RotaryTable rotary = transformer.rotary(stream, branch.positions);
    return transformer.read_velocity(
        stream, layout, transformer.denoise(stream, rows, rotary, *branch.attention));
  };
  GenState velocity = velocity_of(cond);
  if (uncond != nullptr && denoiser.plan().guidance.active_at(denoiser.timestep())) {
    apply_guidance(stream, denoiser.plan().guidance.scale, velocity_of(*uncond), velocity);
  }
  return velocity;
}

Pipeline::Pipeline(const std::string& folder, ThreadPool& pool, DType activation_dtype)
    : config_(Cosmos3Config::load(folder)),
      activation_dtype_(activation_dtype),
      prompt_(PromptEncoder::load(config_.tokenizer_folder())) {
  FinalizeOptions options{pool};
  if (activation_dtype == DType::kBF16) {
    options.weight_format = WeightFormat::kBF16;
  }
  transformer_ = std::make_unique<Transformer>(config_.transformer);
  transformer_->load(*open_checkpoint(config_.transformer_folder()), options);
  const auto vae = open_checkpoint(config_.vae_folder());
  encoder_ = std::make_unique<VaeEncoder>(config_.vae, activation_dtype);
  encoder_->load(*vae, options);
  decoder_ = std::make_unique<VaeDecoder>(config_.vae, activation_dtype);
  decoder_->load(*vae, options);
  if (config_.sound) {
    sound_ = std::make_unique<SoundDecoder>(*config_.sound, activation_dtype);
    sound_->load(*open_checkpoint(config_.sound_folder()), options);
  }
}

GenState Pipeline::run(Stream& stream, const Request& request) const {
  Denoiser denoiser(stream, request.plan, request.start, request.anchor);
  const TransformerConfig& config = config_.transformer;
  const auto prefill = [&](const std::vector<int32_t>& ids, DirectAttention& attention) {
    const auto num_text = static_cast<int64_t>(ids.size());
    const Tensor tokens = Tensor::from(ids, {num_text});
    transformer_->prefill(stream,
                          transformer_->embed_text(stream, tokens, activation_dtype_),
                          transformer_->rotary(stream, text_positions(num_text)),
                          attention,
                          false);
    return Branch{
        gen_positions(config, config_.vae.scale_factor_temporal, request.plan.layout, num_text),
        &attention};
  };
  DirectAttention cond_attention(config.num_hidden_layers);
  DirectAttention uncond_attention(config.num_hidden_layers);
  const Branch cond = prefill(request.cond_ids, cond_attention);
  Branch uncond;
  const bool guided = request.plan.guidance.enabled();
  if (guided) {
    uncond = prefill(request.uncond_ids, uncond_attention);
  }
  while (!denoiser.finished()) {
    const auto step = static_cast<size_t>(denoiser.step_index());
    const GenState velocity = guided_velocity(
        stream, *transformer_, denoiser, cond, guided ? &uncond : nullptr, activation_dtype_);
    expect_finite(stream, velocity.vision, str_cat("dit, step ", step));
    denoiser.advance(
        stream, velocity, step < request.step_noise.size() ? request.step_noise[step] : GenState{});
    if (request.on_step) {
      request.on_step(denoiser);
    }
  }
  return denoiser.state();
}

}  // namespace mstar::cosmos3

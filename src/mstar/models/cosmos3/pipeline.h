// A whole checkpoint run in process, one request at a time, without an engine: prompt, noise,
// denoise loop, decoders. What the recorded end-to-end cases and small tools use; the served
// submodules are made of the same parts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mstar/models/cosmos3/config.h"
#include "mstar/models/cosmos3/denoise.h"
#include "mstar/models/cosmos3/prompt.h"
#include "mstar/models/cosmos3/sound.h"
#include "mstar/models/cosmos3/vae.h"

namespace mstar::cosmos3 {

// The schedule that a checkpoint uses for `num_steps` steps. `karras`: overrides the file.
Schedule make_schedule(const Cosmos3Config& config,
                       int64_t num_steps,
                       double flow_shift,
                       bool karras);

// The velocity of one step, both branches where guidance acts.
struct Branch {
  Tensor positions;  // [3, tokens] f32 of the generation rows
  TowerAttention* attention = nullptr;
};

GenState guided_velocity(Stream& stream,
                         const Transformer& transformer,
                         const Denoiser& denoiser,
                         const Branch& cond,
                         const Branch* uncond,
                         DType activation_dtype = DType::kF32);

// Throws Error(kInternal) naming `where` when x has a value that is not finite; an undefined x has
// none. Waits for the stream.
void expect_finite(Stream& stream, const Tensor& x, const std::string& where);

// The same on host memory that nothing is writing.
void expect_all_finite(const Tensor& x, const std::string& where);

// const after construction, apart from the stream's use: one thread.
class Pipeline {
 public:
  // Loads every part of the folder that it has. With bf16 activations, as the served model does,
  // matrices and filters become bf16 too.
  Pipeline(const std::string& folder, ThreadPool& pool, DType activation_dtype = DType::kF32);

  const Cosmos3Config& config() const { return config_; }

  const PromptEncoder& prompt() const { return prompt_; }

  const VaeEncoder& encoder() const { return *encoder_; }

  const VaeDecoder& decoder() const { return *decoder_; }

  const SoundDecoder* sound() const { return sound_.get(); }

  struct Request {
    std::vector<int32_t> cond_ids;
    std::vector<int32_t> uncond_ids;  // read when the plan's guidance is on
    GenPlan plan;
    GenState start;                    // noise, and given actions
    Tensor anchor;                     // clean latents, see Denoiser
    std::vector<GenState> step_noise;  // distilled plans: one a step
    std::function<void(const Denoiser& denoiser)> on_step;
  };

  GenState run(Stream& stream, const Request& request) const;

 private:
  Cosmos3Config config_;
  DType activation_dtype_;
  PromptEncoder prompt_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<VaeEncoder> encoder_;
  std::unique_ptr<VaeDecoder> decoder_;
  std::unique_ptr<SoundDecoder> sound_;  // null: no sound_tokenizer
};

}  // namespace mstar::cosmos3

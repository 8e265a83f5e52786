// One request's windows on their way: which one is being denoised, what it starts with, and the
// pass that hands its keys and values to the next. Between WindowPlan (what) and the "dit" node
// (which computes). Belongs to the thread that runs its steps.
#pragma once

#include <memory>

#include "mstar/models/cosmos3/gen_request.h"

namespace mstar::cosmos3 {

class WindowRun {
 public:
  // `request` has windows; `config` outlives this. `anchor` [channels, frames, h, w]: clean frames
  // of the first window; undefined without conditioning. A session's come from the request.
  WindowRun(Stream& stream,
            const TransformerConfig& config,
            GenRequestPtr request,
            const Tensor& anchor);

  bool finished() const { return window_ == plan().schedule.num_windows(); }

  int64_t window() const { return window_; }

  // Passes so far over all windows.
  int64_t iteration() const { return iteration_; }

  // The window being denoised, or just denoised when is_commit(). Not once finished().
  const std::shared_ptr<Denoiser>& denoiser() const { return denoiser_; }

  // Whether the next pass keeps the window's keys and values instead of denoising.
  bool is_commit() const { return is_commit_; }

  // Tokens of the next pass.
  int64_t num_tokens() const;

  // Their positions behind `num_text` text tokens, [3, num_tokens()] f32.
  Tensor positions(int64_t temporal_factor, int64_t num_text) const;

  // What a commit pass embeds: the frames that no earlier window committed, all clean.
  const GenLayout& commit_layout() const { return commit_layout_; }

  GenState commit_state(Stream& stream) const;

  // After a commit: what the stream behind `num_text` protected tokens keeps. Nothing: everything.
  std::optional<RetentionPolicy> retention(int64_t num_text) const;

  // After a denoising pass. Once it was the window's last one: the latent frames it adds to the
  // video, [channels, frames, h, w] in memory of their own; else undefined.
  Tensor end_denoise(Stream& stream);

  // After a commit pass.
  void end_commit(Stream& stream);

 private:
  const WindowPlan& plan() const { return *request_->windows; }

  void begin_window(Stream& stream, const Tensor& anchor);
  void next_window(Stream& stream);

  const TransformerConfig& config_;
  const GenRequestPtr request_;
  int64_t window_ = 0;
  int64_t iteration_ = 0;
  bool is_commit_ = false;
  std::shared_ptr<Denoiser> denoiser_;
  GenLayout commit_layout_;
};

}  // namespace mstar::cosmos3

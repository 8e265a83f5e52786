#include "mstar/models/cosmos3/window_run.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar::cosmos3 {

namespace {

// Where the noise of windows behind the first starts among a seed's streams. The first window's is
// that of a video without windows.
constexpr uint64_t kNoiseStream = 1 << 16;

// Frames [begin, end) of x [channels, frames, h, w], densely.
Tensor cut_frames(Stream& stream, const Tensor& x, int64_t begin, int64_t end) {
  Tensor out = stream.empty({x.dim(0), end - begin, x.dim(2), x.dim(3)}, DType::kF32);
  ops::copy(stream, x.slice(1, begin, end), out);
  return out;
}

// The last `count` frames of x as the first ones of a clip of `frames`.
Tensor anchor_of(Stream& stream, const Tensor& x, int64_t count, int64_t frames) {
  Tensor anchor = stream.empty({x.dim(0), frames, x.dim(2), x.dim(3)}, DType::kF32);
  ops::fill(stream, 0.0F, anchor);
  Tensor first = anchor.slice(1, 0, count);
  ops::copy(stream, x.slice(1, x.dim(1) - count, x.dim(1)), first);
  return anchor;
}

}  // namespace

WindowRun::WindowRun(Stream& stream,
                     const TransformerConfig& config,
                     GenRequestPtr request,
                     const Tensor& anchor)
    : config_(config), request_(std::move(request)) {
  MSTAR_CHECK(request_->windows.has_value());
  if (plan().continued == nullptr) {
    begin_window(stream, anchor);
  } else {
    begin_window(stream,
                 anchor_of(stream,
                           plan().continued->latents,
                           plan().num_given_units,
                           request_->plan.layout.frames));
  }
}

void WindowRun::begin_window(Stream& stream, const Tensor& anchor) {
  const WindowSchedule::Window window = plan().schedule.window(window_);
  GenPlan own = request_->plan;
  GenLayout& layout = own.layout;
  layout.frames = window.end - window.start;
  if (window_ > 0 || plan().num_given_units > 0) {
    layout.clean_frames.assign(static_cast<size_t>(layout.frames), false);
    std::fill_n(layout.clean_frames.begin(), plan().num_known_units(window_), true);
  }
  if (plan().mode == WindowMode::kKv) {
    layout.start_frame_offset = plan().first_unit() + window.start;
  }
  GenState start;
  if (!plan().noise.empty()) {
    start.vision = plan().noise.at(static_cast<size_t>(window_));
  } else {
    const uint64_t number = window_ == 0 ? 0 : kNoiseStream + static_cast<uint64_t>(window_);
    start.vision = gaussian_noise(
        {config_.latent_channel, layout.frames, layout.latent_height, layout.latent_width},
        request_->seed,
        number);
  }
  denoiser_ = std::make_shared<Denoiser>(stream, std::move(own), start, anchor);
  commit_layout_ = denoiser_->plan().layout;
  commit_layout_.frames = window.end - window.commit_start();
  commit_layout_.clean_frames.assign(static_cast<size_t>(commit_layout_.frames), true);
}

int64_t WindowRun::num_tokens() const {
  return (is_commit_ ? commit_layout_ : denoiser_->plan().layout)
      .num_tokens(config_.latent_patch_size);
}

Tensor WindowRun::positions(int64_t temporal_factor, int64_t num_text) const {
  // Of the whole window, also for a part of it: one frame alone would get others.
  const Tensor all = gen_positions(config_, temporal_factor, denoiser_->plan().layout, num_text);
  const int64_t count = all.dim(1);
  const int64_t kept = num_tokens();
  return kept == count ? all : all.slice(1, count - kept, count).copy();
}

GenState WindowRun::commit_state(Stream& stream) const {
  const Tensor& latents = denoiser_->state().vision;
  GenState state;
  state.vision =
      cut_frames(stream, latents, latents.dim(1) - commit_layout_.frames, latents.dim(1));
  return state;
}

std::optional<RetentionPolicy> WindowRun::retention(int64_t num_text) const {
  return plan().schedule.retention(commit_layout_.tokens_per_frame(config_.latent_patch_size),
                                   num_text);
}

Tensor WindowRun::end_denoise(Stream& stream) {
  MSTAR_CHECK(!is_commit_ && !finished());
  ++iteration_;
  if (!denoiser_->finished()) {
    return {};
  }
  const Tensor& latents = denoiser_->state().vision;
  Tensor fresh = cut_frames(stream, latents, plan().num_known_units(window_), latents.dim(1));
  if (plan().commits(window_)) {
    is_commit_ = true;
  } else {
    next_window(stream);
  }
  return fresh;
}

void WindowRun::end_commit(Stream& stream) {
  MSTAR_CHECK(is_commit_);
  ++iteration_;
  is_commit_ = false;
  next_window(stream);
}

void WindowRun::next_window(Stream& stream) {
  const Tensor latents = denoiser_->state().vision;
  ++window_;
  if (finished()) {
    return;  // the last window's latents stay readable
  }
  const WindowSchedule::Window window = plan().schedule.window(window_);
  begin_window(stream,
               window.cond_units == 0
                   ? Tensor()
                   : anchor_of(stream, latents, window.cond_units, window.end - window.start));
}

}  // namespace mstar::cosmos3

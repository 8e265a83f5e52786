// A video generated window by window: where the windows are, in latent frames, what each sees of
// the ones before it, and the parameters clients ask for it with. Plain data and pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mstar/engine/parameters.h"
#include "mstar/models/cosmos3/config.h"
#include "mstar/models/cosmos3/window_sessions.h"
#include "mstar/resources/window_schedule.h"

namespace mstar::cosmos3 {

struct GenRequest;

inline constexpr std::string_view kWindowWalk = "video_gen_ar";
inline constexpr std::string_view kWindowDecodeWalk = "video_decode_ar";
inline constexpr std::string_view kWindowDecoder = "window_decoder";  // partition
inline constexpr std::string_view kWindowLatents = "window_latents";  // edge between them

// Most windows of one request.
inline constexpr int64_t kMaxWindows = 8192;

// What windows know of each other.
enum class WindowMode : uint8_t {
  kChained,  // the first frames of a window are the last ones of the window before it; positions
             // start again at 0
  kKv,       // a finished window's keys and values join the text's; positions go on
};

// Window sizes in latent frames of a clip of `num_frames` pixel frames. Only a clip longer than a
// window is rounded up to whole windows.
struct WindowUnits {
  int64_t window = 0;   // latent frames of a window
  int64_t overlap = 0;  // of them repeated from the window before
  int64_t total = 0;    // of all windows, overlaps counted once

  // `total_units`: latent frames asked for. `window_frames` and `overlap_frames` count pixel
  // frames. A chained overlap has at least two latent frames: one alone carries no motion.
  static WindowUnits of(int64_t total_units,
                        int64_t window_frames,
                        int64_t overlap_frames,
                        WindowMode mode);
};

struct WindowPlan {
  WindowMode mode = WindowMode::kChained;
  WindowSchedule schedule{1, 1};
  bool stream_video = false;  // frames go to the client as they are decoded
  int64_t num_new_units = 0;  // latent frames the client gets; later ones only fill the last window
  std::string session_id;     // where the end is kept; empty: nowhere
  WindowSessionPtr continued;   // the end of the video that this one goes on with; null: none
  int64_t num_given_units = 0;  // leading latent frames of window 0 that are the session's

  // Recorded noise [channels, frames, h, w] of each window, for comparisons with a reference that
  // draws its own; empty: drawn from the request's seed.
  std::vector<Tensor> noise;

  // Leading latent frames of a window that an earlier one (or the session) made.
  int64_t num_known_units(int64_t window) const {
    return window == 0 ? num_given_units : schedule.window(window).cond_units;
  }

  // Whether the window's keys and values are kept for later ones.
  bool commits(int64_t window) const {
    return mode == WindowMode::kKv && window + 1 < schedule.num_windows();
  }

  // Passes of the transformer over all windows.
  int64_t num_iterations(int64_t num_steps) const;

  // Latent frame in the whole video at which window 0 starts; positions count from it in kv mode.
  int64_t first_unit() const;
};

// Settles `out.windows` and the layout's number of frames when `parameters` ask for windows.
// Throws Error(kInvalidArgument) naming the parameter.
void plan_windows(const Cosmos3Config& config,
                  const Json& parameters,
                  const WindowSessionPtr& session,
                  GenRequest& out);

// Tokens that one cache stream of the request holds at most beside its text, with pages of
// `page_size` tokens.
int64_t max_committed_tokens(const WindowPlan& plan, int64_t tokens_per_unit, int64_t page_size);

void add_window_parameters(std::vector<RequestParameter>& out);

}  // namespace mstar::cosmos3

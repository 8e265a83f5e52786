#include "mstar/models/cosmos3/window_plan.h"

#include <algorithm>
#include <cmath>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/cosmos3/gen_request.h"

namespace mstar::cosmos3 {

namespace {

// Latent frames at the end of a session's video that hold a continuation to it.
constexpr int64_t kMinGivenUnits = 2;
constexpr int64_t kDefaultWindowFrames = 29;
constexpr int64_t kDefaultContextFrames = 61;
constexpr int64_t kDefaultOverlapFrames = 8;  // chained; kv windows see the ones before anyway

[[noreturn]] void refuse(std::string_view name, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[request] \"", name, "\": ", what));
}

int64_t int_or(const Json& parameters, std::string_view name, int64_t fallback) {
  const Json* value = parameters.find(name);
  return value == nullptr ? fallback : value->get_int();
}

bool flag(const Json& parameters, std::string_view name) {
  const Json* value = parameters.find(name);
  return value != nullptr && value->get_bool();
}

void check_possible(const Cosmos3Config& config, const Json& parameters) {
  if (config.is_distilled()) {
    refuse("window_mode", "this distilled checkpoint makes no videos in windows");
  }
  if (parameters.contains("action_mode")) {
    refuse("window_mode", "actions and windows do not go together");
  }
  if (flag(parameters, "generate_sound")) {
    refuse("window_mode", "sound and windows do not go together");
  }
}

// How many of the session's latent frames window 0 starts with.
int64_t given_units(const WindowSession& session, const WindowUnits& units, const GenRequest& out) {
  const GenLayout& layout = out.plan.layout;
  if (session.latents.dim(2) != layout.latent_height ||
      session.latents.dim(3) != layout.latent_width) {
    refuse("resume_session",
           str_cat("the session's video has ",
                   session.latents.dim(2),
                   "x",
                   session.latents.dim(3),
                   " latent rows and columns, this request ",
                   layout.latent_height,
                   "x",
                   layout.latent_width,
                   "; ask for the same size"));
  }
  if (units.window < 2) {
    refuse("window_frames", "a video goes on in windows of 5 frames or more");
  }
  return std::min(
      {std::max(units.overlap, kMinGivenUnits), units.window - 1, session.latents.dim(1)});
}

}  // namespace

WindowUnits WindowUnits::of(int64_t total_units,
                            int64_t window_frames,
                            int64_t overlap_frames,
                            WindowMode mode) {
  WindowUnits units;
  units.window = 1 + (window_frames - 1) / 4;
  // Halves go to the even number, as in the reference.
  units.overlap = std::llrint(static_cast<double>(overlap_frames) / 4.0);
  if (units.overlap > 0 && mode == WindowMode::kChained) {
    units.overlap = std::max<int64_t>(units.overlap, 2);
  }
  units.overlap = std::clamp<int64_t>(units.overlap, 0, units.window - 1);
  units.total = WindowSchedule(total_units, units.window, 0, units.overlap).padded_total();
  return units;
}

int64_t WindowPlan::num_iterations(int64_t num_steps) const {
  const int64_t windows = schedule.num_windows();
  return windows * num_steps + (mode == WindowMode::kKv ? windows - 1 : 0);
}

int64_t WindowPlan::first_unit() const {
  return continued == nullptr ? 0 : continued->num_units - num_given_units;
}

void plan_windows(const Cosmos3Config& config,
                  const Json& parameters,
                  const WindowSessionPtr& session,
                  GenRequest& out) {
  const Json* mode = parameters.find("window_mode");
  if (mode == nullptr) {
    for (const char* name : {"stream_video", "resume_session"}) {
      if (flag(parameters, name)) {
        refuse(name, "needs a window_mode");
      }
    }
    if (parameters.contains("session_id")) {
      refuse("session_id", "needs a window_mode");
    }
    return;
  }
  check_possible(config, parameters);
  WindowPlan plan;
  plan.mode = mode->get_string() == "kv" ? WindowMode::kKv : WindowMode::kChained;
  plan.stream_video = flag(parameters, "stream_video");
  plan.continued = session;
  if (const Json* id = parameters.find("session_id")) {
    plan.session_id = id->get_string();
  }
  const bool chained = plan.mode == WindowMode::kChained;
  const int64_t window_frames = int_or(parameters, "window_frames", kDefaultWindowFrames);
  const int64_t overlap_frames =
      int_or(parameters, "overlap_frames", chained ? kDefaultOverlapFrames : 0);
  const int64_t context_frames = int_or(parameters, "context_frames", kDefaultContextFrames);
  // Behind a session every latent frame is four pixel frames, the first one too.
  plan.num_new_units =
      session == nullptr ? config.vae.latent_frames(out.num_frames)
                         : std::max<int64_t>(1, out.num_frames / config.vae.scale_factor_temporal);
  WindowUnits units = WindowUnits::of(plan.num_new_units, window_frames, overlap_frames, plan.mode);
  if (session != nullptr) {
    plan.num_given_units = given_units(*session, units, out);
    units = WindowUnits::of(
        plan.num_given_units + plan.num_new_units, window_frames, overlap_frames, plan.mode);
  }
  const int64_t context_units = context_frames == 0 ? 0 : 1 + (context_frames - 1) / 4;
  plan.schedule =
      WindowSchedule(units.total, units.window, chained ? 0 : context_units, units.overlap);
  if (plan.schedule.num_windows() > kMaxWindows) {
    refuse("num_frames",
           str_cat(out.num_frames,
                   " frames are ",
                   plan.schedule.num_windows(),
                   " windows, at most ",
                   kMaxWindows,
                   " are made; ask for longer windows or a shorter video"));
  }
  out.plan.layout.frames = plan.schedule.window(0).end;
  out.plan.layout.start_frame_offset = chained ? 0 : plan.first_unit();
  out.windows = std::move(plan);
}

int64_t max_committed_tokens(const WindowPlan& plan, int64_t tokens_per_unit, int64_t page_size) {
  if (plan.mode == WindowMode::kChained || plan.schedule.num_windows() == 1) {
    return 0;
  }
  const int64_t all = plan.schedule.total_units() * tokens_per_unit;
  const auto retention = plan.schedule.retention(tokens_per_unit, 0);
  if (!retention) {
    return all;
  }
  // Before old pages go a whole window more is there; partial pages at both ends stay.
  return std::min(
      all,
      retention->context_budget + plan.schedule.window(0).end * tokens_per_unit + 2 * page_size);
}

void add_window_parameters(std::vector<RequestParameter>& out) {
  using Type = RequestParameter::Type;
  out.push_back({.name = "window_mode",
                 .type = Type::kString,
                 .choices = {"chained", "kv"},
                 .help = "makes a long video in windows: each starts with the last frames of the "
                         "one before (chained), or sees its keys and values (kv)"});
  out.push_back({.name = "window_frames",
                 .type = Type::kInt,
                 .min = 1,
                 .max = 1024,
                 .unit = "frames",
                 .help = "length of a window; 29 unless given"});
  out.push_back({.name = "overlap_frames",
                 .type = Type::kInt,
                 .min = 0,
                 .max = 1024,
                 .unit = "frames",
                 .help = "repeated from the window before; 8 unless given, 0 in kv mode"});
  out.push_back({.name = "context_frames",
                 .type = Type::kInt,
                 .min = 0,
                 .max = 1 << 20,
                 .unit = "frames",
                 .help = "of earlier windows that kv mode keeps, 0 for all; 61 unless given"});
  out.push_back({.name = "stream_video",
                 .type = Type::kBool,
                 .fallback = false,
                 .help = "sends the frames of each window as soon as they are there"});
  out.push_back({.name = "session_id",
                 .type = Type::kString,
                 .help = "keeps the end of the video under this name for a request that goes on",
                 .max_length = 128});
  out.push_back({.name = "resume_session",
                 .type = Type::kBool,
                 .fallback = false,
                 .help = "goes on with the video of session_id"});
}

}  // namespace mstar::cosmos3

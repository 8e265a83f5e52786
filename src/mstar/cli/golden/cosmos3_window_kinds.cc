// Cosmos3: videos in windows, driven through the engine as they are served, and window arithmetic.
#include <filesystem>
#include <memory>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/engine/engine.h"
#include "mstar/models/cosmos3/dit_submodule.h"
#include "mstar/models/cosmos3/model.h"

namespace mstar::golden {

namespace {

using namespace cosmos3;  // NOLINT: the family under test

std::vector<int32_t> ids_of(const Tensor& ids) {
  std::vector<int32_t> out;
  for (const int64_t id : ids.to_ints()) {
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

int64_t num_windows(const GoldenCase& golden) {
  int64_t count = 0;
  while (golden.has(str_cat("in.noise.", count))) {
    ++count;
  }
  return count;
}

Schedule schedule_of(const GoldenCase& golden) {
  const std::string kind = golden.get_string("schedule");
  const int64_t steps = golden.get_int("steps");
  const double shift = golden.get_double("flow_shift", 1.0);
  if (kind == "karras") {
    return karras_schedule(
        steps, golden.get_double("sigma_min", 0.147), golden.get_double("sigma_max", 200.0), 1000);
  }
  if (kind == "linear") {
    return linear_schedule(steps, shift, 1000);
  }
  if (kind == "native") {
    return native_schedule(steps, shift, 1000);
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      str_cat("[", golden.name, "] schedule \"", kind, "\": expected karras, linear or native"));
}

// The case as a request that was planned already.
std::shared_ptr<GenRequest> request_of(const GoldenCase& golden) {
  auto request = std::make_shared<GenRequest>();
  request->walk = kWindowWalk;
  request->cond_ids = ids_of(golden.tensor("in.cond_ids"));
  request->fps = golden.get_double("fps");
  request->plan.guidance.scale = static_cast<float>(golden.get_double("guidance_scale"));
  if (request->has_guidance()) {
    request->uncond_ids = ids_of(golden.tensor("in.uncond_ids"));
  }
  request->plan.schedule = schedule_of(golden);
  WindowPlan windows;
  windows.mode = golden.get_string("mode") == "kv" ? WindowMode::kKv : WindowMode::kChained;
  const int64_t units = golden.get_int("window_units");
  const int64_t overlap = golden.get_int("overlap_units");
  const int64_t count = num_windows(golden);
  windows.num_new_units = units + (count - 1) * (units - overlap);
  windows.schedule =
      WindowSchedule(windows.num_new_units, units, golden.get_int("context_units"), overlap);
  for (int64_t window = 0; window < count; ++window) {
    windows.noise.push_back(golden.tensor(str_cat("in.noise.", window)).copy().select(0, 0).copy());
  }
  GenLayout& layout = request->plan.layout;
  layout.frames = units;
  layout.latent_height = windows.noise.front().dim(2);
  layout.latent_width = windows.noise.front().dim(3);
  layout.fps = request->fps;
  layout.clean_frames.assign(static_cast<size_t>(units), false);
  request->windows = std::move(windows);
  return request;
}

// The "dit" node of a checkpoint with one request open.
class WindowRig {
 public:
  WindowRig(const GoldenCase& golden, RunContext& context)
      : request_(request_of(golden)),
        model_(Cosmos3Model::open(checkpoint_of(golden), Json::object())) {
    EngineOptions options;
    options.graph_capture = false;
    options.resource_overrides["kv"] =
        Json::object({{"page_size", golden.get_int("page_tokens")}, {"max_num_pages", 4096}});
    engine_ = std::make_unique<Engine>(
        *model_, std::vector<std::string>{"dit"}, context.stream, context.pool, options);
    KVRequestConfig kv;
    if (request_->has_guidance()) {
      kv.needed_labels = {kCondLabel, kUncondLabel};
    }
    handle_ = *engine_->try_ingest_request({{"kv", kv}});
    info_.handle = handle_;
    info_.partition_name = "main";
    info_.values.set(kGenRequest, GenRequestPtr(request_));
  }

  ~WindowRig() { engine_->remove_request(handle_); }

  const GenRequest& request() const { return *request_; }

  // One step of the walk. Throws what made it fail.
  BatchRow step(std::string_view walk) {
    info_.graph_walk = walk;
    StepBatch batch;
    batch.node = "dit";
    batch.graph_walk = walk;
    BatchRow& row = batch.rows.emplace_back();
    row.request = handle_;
    row.info = &info_;
    engine_->execute(batch);
    if (row.status != RowStatus::kDone) {
      throw Error(ErrorCode::kInternal, str_cat("[", walk, "] ", row.error_message));
    }
    return std::move(row);
  }

  // Committed tokens that a label's stream holds.
  int64_t num_committed(LabelId label) const {
    const auto& kv = dynamic_cast<KvCache&>(*engine_->find_resource("kv"));
    const auto& ids = label == kCondLabel ? request_->cond_ids : request_->uncond_ids;
    return kv.find_stream(handle_, label)->resident_len() - static_cast<int64_t>(ids.size());
  }

 private:
  static std::string checkpoint_of(const GoldenCase& golden) {
    return std::filesystem::path(str_cat(golden.folder, "/", golden.get_string("weights")))
        .parent_path()
        .string();
  }

  std::shared_ptr<GenRequest> request_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Engine> engine_;
  CurrentForwardPassInfo info_;
  RequestHandle handle_ = -1;
};

// Frames of all windows one after the other, [1, channels, frames, h, w].
Tensor join_windows(const std::vector<Tensor>& parts) {
  Shape shape = parts.front().shape();
  shape[1] = 0;
  for (const Tensor& part : parts) {
    shape[1] += part.dim(1);
  }
  Tensor out = Tensor::empty(shape, DType::kF32);
  const int64_t plane = shape[2] * shape[3];
  int64_t first = 0;
  for (const Tensor& part : parts) {
    for (int64_t channel = 0; channel < shape[0]; ++channel) {
      std::copy_n(part.data<float>() + channel * part.dim(1) * plane,
                  part.dim(1) * plane,
                  out.data<float>() + (channel * shape[1] + first) * plane);
    }
    first += part.dim(1);
  }
  return out.unsqueeze(0);
}

void check_retained(const GoldenCase& golden,
                    const WindowRig& rig,
                    int64_t window,
                    CaseResult& result) {
  for (const auto& [name, label] :
       {std::pair{"cond", kCondLabel}, std::pair{"uncond", kUncondLabel}}) {
    const std::string tensor = str_cat("mid.retained.", window, ".", name);
    if (!golden.has(tensor)) {
      continue;
    }
    const int64_t want = golden.tensor(tensor).dim(0);
    const int64_t got = rig.num_committed(label);
    if (got != want) {
      result.fail(str_cat(
          "window ", window, ", ", name, ": ", got, " committed tokens are held, expected ", want));
    }
  }
}

void run_windowed(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  WindowRig rig(golden, context);
  rig.step("prefill");
  std::vector<Tensor> fresh;
  int64_t in_window = 0;
  check_retained(golden, rig, 0, result);
  for (int64_t pass = 0; pass < rig.request().num_iterations(); ++pass) {
    const BatchRow row = rig.step(kWindowWalk);
    const bool is_last = pass + 1 == rig.request().num_iterations();
    if (is_last == row.stopped_loops.empty()) {
      result.fail(str_cat("pass ", pass, is_last ? ": the loop goes on" : ": the loop ends early"));
    }
    const auto window = static_cast<int64_t>(fresh.size());
    if (in_window == rig.request().plan.schedule.num_steps()) {  // the pass kept a window
      in_window = 0;
      check_retained(golden, rig, window, result);
      continue;
    }
    ++in_window;
    const Tensor latents = row.outputs.tensor_or_none(kWindowLatents);
    if (latents.defined()) {
      result.expect(str_cat("out.window.", window), row.outputs.tensor("latents").unsqueeze(0));
      fresh.push_back(latents.copy());
      in_window = rig.request().windows->commits(window) ? in_window : 0;
    }
  }
  result.expect("out.latents", join_windows(fresh));
}

void run_window_counts(const GoldenCase& golden, RunContext&, CaseResult& result) {
  const Tensor rows = golden.tensor("out.rows");
  std::vector<int64_t> values = rows.to_ints();
  const auto width = static_cast<size_t>(rows.dim(1));
  VaeConfig vae;
  vae.scale_factor_temporal = 4;
  for (size_t row = 0; row < values.size(); row += width) {
    int64_t* at = values.data() + row;
    const WindowMode mode = at[3] != 0 ? WindowMode::kChained : WindowMode::kKv;
    const WindowUnits units = WindowUnits::of(vae.latent_frames(at[0]), at[1], at[2], mode);
    at[4] = units.window;
    at[5] = units.overlap;
    at[6] = WindowSchedule(units.total, units.window, 0, units.overlap).num_windows();
    at[7] = units.total;
  }
  Tensor got = Tensor::empty(rows.shape(), DType::kI64);
  std::copy(values.begin(), values.end(), got.data<int64_t>());
  result.expect("out.rows", got);
}

}  // namespace

void add_cosmos3_window_kinds(Registry& registry) {
  registry.add_prefix("windowed-", run_windowed);
  registry.add_prefix("window-counts", run_window_counts);
}

}  // namespace mstar::golden

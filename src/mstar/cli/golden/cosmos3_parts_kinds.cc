// Cosmos3: positions, time features, norms, schedules, solvers, clip lengths.
#include <cmath>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/components/norm.h"
#include "mstar/models/cosmos3/packing.h"
#include "mstar/models/cosmos3/scheduler.h"
#include "mstar/models/cosmos3/transformer.h"

namespace mstar::golden {

namespace {

using namespace cosmos3;  // NOLINT: the family under test

Tensor vector_of(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

void run_time_embedding(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  std::vector<float> scaled;
  for (const float time : golden.tensor("in.timestep").to_floats()) {
    scaled.push_back(time * 0.001F);
  }
  const Tensor features = TimeEmbedder::features(scaled);
  TimeEmbedder embedder(golden.tensor("out.embedding").dim(1));
  NameMapping mapping;
  mapping.rename = {{"^weight.time_embedder", ""}};
  load_weights(golden, embedder, context, mapping);
  result.expect("out.embedding", embedder.forward(context.stream, features));
}

Tensor positions_of(const Json& row, int64_t margin) {
  if (row.at("kind").get_string() == "text") {
    return text_positions(row.at("count").get_int());
  }
  const std::string kind = row.at("kind").get_string();
  const Json& shape = row.at("grid");
  MediaGrid grid{
      .frames = shape[0].get_int(), .rows = shape[1].get_int(), .columns = shape[2].get_int()};
  grid.offset = static_cast<double>(row.at("text_tokens").get_int() + margin);
  grid.fps = row.at("fps").get_double();
  grid.factor = kind == "vision" ? 4.0 : 1.0;
  grid.base_factor = kind == "sound" ? 1.0 : 4.0;
  grid.base_fps = 24.0;
  grid.start_frame_offset = row.at("start_frame_offset").get_int();
  return media_positions(grid);
}

void run_positions(const GoldenCase& golden, RunContext&, CaseResult& result) {
  const int64_t margin = golden.get_int("text_margin");
  for (const auto& [name, row] : golden.config.at("rows").get_object()) {
    result.expect(str_cat("out.", name), positions_of(row, margin));
  }
}

// The recorded tables repeat the half that is computed.
Tensor doubled(const Tensor& half) {
  Tensor out = Tensor::empty({half.dim(0), 2 * half.dim(1)}, half.dtype());
  for (int64_t row = 0; row < half.dim(0); ++row) {
    for (int64_t i = 0; i < half.dim(1); ++i) {
      const float value = half.data<float>()[row * half.dim(1) + i];
      out.data<float>()[row * 2 * half.dim(1) + i] = value;
      out.data<float>()[row * 2 * half.dim(1) + half.dim(1) + i] = value;
    }
  }
  return out;
}

void run_cos_sin(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Tensor positions = golden.tensor("in.positions");
  for (const auto& [name, config] : golden.config.get_object()) {
    if (!config.is_object()) {
      continue;
    }
    RopeConfig rope;
    rope.head_dim = config.at("head_dim").get_int();
    rope.theta = static_cast<float>(config.at("theta").get_double());
    rope.layout = RopeConfig::Layout::kInterleaved;
    for (size_t axis = 0; axis < 3; ++axis) {
      rope.section[axis] = static_cast<int32_t>(config.at("rope_axes_dim")[axis].get_int());
    }
    const Shape shape{positions.dim(1), rope.head_dim / 2};
    Tensor cos = Tensor::empty(shape, DType::kF32);
    Tensor sin = Tensor::empty(shape, DType::kF32);
    ops::rope_table(context.stream, positions, rope_inv_freq(rope), rope, cos, sin);
    result.expect(str_cat("out.", name, ".cos"), doubled(cos));
    result.expect(str_cat("out.", name, ".sin"), doubled(sin));
    result.expect(str_cat("out.", name, ".cos_bf16"), doubled(cos).to(DType::kBF16));
    result.expect(str_cat("out.", name, ".sin_bf16"), doubled(sin).to(DType::kBF16));
  }
}

void run_rms_norms(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Tensor x = golden.tensor("in.x");
  const auto compute = [&](RmsNormRounding rounding, const char* eps, DType dtype) {
    RMSNorm norm(x.dim(1), static_cast<float>(golden.get_double(eps)), false, rounding);
    NameMapping mapping;
    mapping.rename = {{"^weight.norm", "weight"}};
    load_weights(golden, norm, context, mapping);
    return norm.forward(context.stream, x.to(dtype));
  };
  const auto qwen = RmsNormRounding::kBeforeWeight;
  const auto nemotron = RmsNormRounding::kOnce;
  result.expect("out.qwen", compute(qwen, "qwen_eps", DType::kF32));
  result.expect("out.nemotron", compute(nemotron, "nemotron_eps", DType::kF32));
  result.expect("out.qwen_bf16", compute(qwen, "qwen_eps", DType::kBF16));
  result.expect("out.nemotron_bf16", compute(nemotron, "nemotron_eps", DType::kBF16));
}

Schedule schedule_of(const std::string& kind, int64_t steps, double shift) {
  if (kind == "karras") {
    return karras_schedule(steps, 0.147, 200.0, 1000);
  }
  return kind == "linear" ? linear_schedule(steps, shift, 1000)
                          : native_schedule(steps, shift, 1000);
}

void run_sigma_tables(const GoldenCase& golden, RunContext&, CaseResult& result) {
  for (const auto& [name, role] : golden.roles) {
    if (!name.ends_with(".sigmas")) {
      continue;
    }
    // out.karras_1_20.sigmas
    const std::string key = name.substr(4, name.size() - 4 - 7);
    const size_t first = key.find('_');
    const size_t second = key.find('_', first + 1);
    const Schedule schedule = schedule_of(key.substr(0, first),
                                          std::stoll(key.substr(second + 1)),
                                          std::stod(key.substr(first + 1, second - first - 1)));
    result.expect(name, vector_of(schedule.sigmas));
    result.expect(str_cat("out.", key, ".timesteps"),
                  vector_of(schedule.timesteps).to(DType::kI64));
  }
}

void run_unipc(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Schedule schedule = schedule_of(
      golden.get_string("schedule"), golden.get_int("steps"), golden.get_double("shift"));
  result.expect("out.sigmas", vector_of(schedule.sigmas));
  result.expect("out.timesteps", vector_of(schedule.timesteps).to(DType::kI64));
  const Tensor velocities = golden.tensor("in.velocities");  // f32, or all of the case in bf16
  Tensor x = golden.tensor("in.x").copy();
  Tensor samples = Tensor::empty({schedule.num_steps() + 1, x.dim(0), x.dim(1)}, DType::kF32);
  const auto keep = [&](int64_t index) {
    const Tensor wide = x.to(DType::kF32);
    std::copy_n(wide.data<float>(), wide.num_elements(), samples.select(0, index).data<float>());
  };
  keep(0);
  UniPC solver(schedule);
  while (!solver.finished()) {
    solver.step(context.stream, velocities.select(0, solver.step_index()).copy(), x);
    keep(solver.step_index());
  }
  result.expect("out.samples", samples);
}

void run_distilled(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  std::vector<double> sigmas;
  for (const Json& sigma : golden.config.at("distilled_sigmas").get_array()) {
    sigmas.push_back(sigma.get_double());
  }
  const Schedule schedule = distilled_schedule(sigmas, 1000);
  result.expect("out.sigmas", vector_of(schedule.sigmas));
  result.expect("out.timesteps", vector_of(schedule.timesteps));
  Tensor x = golden.tensor("in.x").copy();
  Tensor samples = Tensor::empty({schedule.num_steps() + 1, x.dim(0), x.dim(1)}, DType::kF32);
  for (int64_t step = 0; step <= schedule.num_steps(); ++step) {
    std::copy_n(x.data<float>(), x.num_elements(), samples.select(0, step).data<float>());
    if (step < schedule.num_steps()) {
      stochastic_euler_step(context.stream,
                            schedule,
                            step,
                            golden.tensor("in.velocities").select(0, step).copy(),
                            golden.tensor("in.noise").select(0, step).copy(),
                            x);
    }
  }
  result.expect("out.samples", samples);
}

void run_sound_lengths(const GoldenCase& golden, RunContext&, CaseResult& result) {
  std::vector<int64_t> values;
  for (const Json& item : golden.config.at("cases").get_array()) {
    std::optional<double> seconds;
    if (!item[2].is_null()) {
      seconds = item[2].get_double();
    }
    const SoundLength length =
        sound_length(item[0].get_int(), item[1].get_double(), seconds, 48000, 1920);
    values.push_back(length.num_samples);
    values.push_back(length.num_latents);
  }
  result.expect("out.samples_and_frames",
                Tensor::from(values, {static_cast<int64_t>(values.size()) / 2, 2}));
}

}  // namespace

void add_cosmos3_parts_kinds(Registry& registry) {
  registry.add_prefix("time-embedding", run_time_embedding);
  registry.add_prefix("positions", run_positions);
  registry.add_prefix("cos-sin", run_cos_sin);
  registry.add_prefix("rms-norm", run_rms_norms);
  registry.add_prefix("sigma-tables", run_sigma_tables);
  registry.add_prefix("unipc-", run_unipc);
  registry.add_prefix("distilled-trajectory", run_distilled);
  registry.add_prefix("sound-lengths", run_sound_lengths);
}

}  // namespace mstar::golden

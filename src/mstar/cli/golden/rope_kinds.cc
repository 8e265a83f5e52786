// Rotary positions: one axis and three.
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/kernels/ops/rope.h"

namespace mstar::golden {

namespace {

RopeConfig::Scaling scaling_of(const GoldenCase& golden) {
  const std::string name =
      golden.config.contains("scaling") ? golden.get_string("scaling") : std::string("default");
  if (name == "default") {
    return RopeConfig::Scaling::kNone;
  }
  if (name == "linear") {
    return RopeConfig::Scaling::kLinear;
  }
  if (name == "llama3") {
    return RopeConfig::Scaling::kLlama31;
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      str_cat("[", golden.name, "] scaling \"", name, "\", expected default, linear or llama3"));
}

RopeConfig config_of(const GoldenCase& golden) {
  RopeConfig config;
  config.head_dim = golden.get_int("head_dim");
  config.theta = static_cast<float>(golden.get_double("rope_theta"));
  config.scale = static_cast<float>(golden.get_double("rope_scale", 1.0));
  config.scaling = scaling_of(golden);
  config.low_freq_factor = static_cast<float>(golden.get_double("rope_low_freq_factor", 1.0));
  config.high_freq_factor = static_cast<float>(golden.get_double("rope_high_freq_factor", 1.0));
  config.old_context_len = static_cast<int64_t>(golden.get_double("rope_old_context_len", 8192.0));
  config.interleave = golden.get_bool("interleave", false);
  if (golden.config.contains("rotary_dim")) {
    config.rotary_dim = golden.get_int("rotary_dim");
  }
  if (golden.config.contains("mrope_section")) {
    const std::vector<int64_t> section = golden.get_ints("mrope_section");
    for (size_t axis = 0; axis < config.section.size(); ++axis) {
      config.section[axis] = static_cast<int32_t>(section.at(axis));
    }
    config.layout = golden.get_string("mrope_layout") == "sectioned"
                        ? RopeConfig::Layout::kSectioned
                        : RopeConfig::Layout::kInterleaved;
  }
  return config;
}

// Sizes that the ops take for granted: a case that has others is a wrong case.
void check_sizes(const GoldenCase& golden, const RopeConfig& config) {
  const int64_t rotary_dim = config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
  bool fits = config.head_dim > 0 && config.rotary_dim >= 0 && rotary_dim % 2 == 0 &&
              rotary_dim <= config.head_dim;
  const Tensor positions = golden.tensor("positions");
  for (const char* name : {"q", "k"}) {
    const Tensor x = golden.tensor(name);
    fits = fits && x.num_dims() == 3 && x.dim(2) == config.head_dim && positions.num_dims() > 0 &&
           x.dim(0) == positions.dim(-1);
  }
  if (!fits) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[",
                        golden.name,
                        "] head_dim ",
                        config.head_dim,
                        " with rotary_dim ",
                        config.rotary_dim,
                        ", expected those of q and k, and a position for each of their rows"));
  }
}

void run_rope(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const RopeConfig config = config_of(golden);
  check_sizes(golden, config);
  const Tensor inv_freq = rope_inv_freq(config);
  const Tensor positions = golden.tensor("positions");
  const Shape shape{positions.dim(-1), inv_freq.dim(0)};
  Tensor cos = context.stream.empty(shape, DType::kF32);
  Tensor sin = context.stream.empty(shape, DType::kF32);
  ops::rope_table(context.stream, positions, inv_freq, config, cos, sin);
  for (const char* name : {"q", "k"}) {
    Tensor x = golden.tensor(name).copy();
    ops::apply_rope(context.stream, cos, sin, config, false, x);
    result.expect(str_cat(name, "_out"), x);
  }
}

}  // namespace

void add_rope_kinds(Registry& registry) {
  registry.add_prefix("rope_", run_rope);
  registry.add_prefix("mrope_", run_rope);
}

}  // namespace mstar::golden

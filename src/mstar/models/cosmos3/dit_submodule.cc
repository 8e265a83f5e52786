#include "mstar/models/cosmos3/dit_submodule.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/models/cosmos3/dit_parts.h"
#include "mstar/models/cosmos3/pipeline.h"
#include "mstar/models/cosmos3/window_run.h"

namespace mstar::cosmos3 {

namespace {

constexpr std::string_view kWindowRun = "window_run";    // PerRequestState, windowed videos
constexpr std::string_view kBranchFlags = "cfg_active";  // ForwardArgs: std::vector<bool>, by row
constexpr std::string_view kNumUncond = "num_uncond";    // NodeInputs: text tokens
constexpr int kMaxBatchSize = 8;

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kLoops = {{
    {"image_gen", "image_gen_loop"},
    {"video_gen", "video_gen_loop"},
    {"video_sound_gen", "video_sound_gen_loop"},
    {"action_gen", "action_gen_loop"},
    {"action_video_gen", "action_video_gen_loop"},
    {kWindowWalk, "video_gen_ar_loop"},
}};

bool is_prefill(std::string_view graph_walk) {
  return graph_walk.starts_with("prefill");
}

// Parts [3, n] side by side.
Tensor join_positions(const std::vector<Tensor>& parts) {
  int64_t total = 0;
  for (const Tensor& part : parts) {
    total += part.dim(1);
  }
  Tensor out = Tensor::empty({3, total}, DType::kF32);
  for (int64_t axis = 0; axis < 3; ++axis) {
    float* to = out.data<float>() + axis * total;
    for (const Tensor& part : parts) {
      to = std::copy_n(part.data<float>() + axis * part.dim(1), part.dim(1), to);
    }
  }
  return out;
}

// Null for requests without windows.
WindowRun* window_run_of(PerRequestState& state) {
  auto* run = state.kwargs.find<std::shared_ptr<WindowRun>>(kWindowRun);
  return run == nullptr ? nullptr : run->get();
}

}  // namespace

std::string_view loop_of(std::string_view graph_walk) {
  for (const auto& [walk, loop] : kLoops) {
    if (walk == graph_walk) {
      return loop;
    }
  }
  return {};
}

Cosmos3DiTSubmodule::Cosmos3DiTSubmodule(std::shared_ptr<const Transformer> transformer,
                                         int64_t temporal_factor,
                                         DType activation_dtype,
                                         DitCaptures captures)
    : transformer_(std::move(transformer)),
      temporal_factor_(temporal_factor),
      activation_dtype_(activation_dtype),
      captures_(std::move(captures)) {}

void Cosmos3DiTSubmodule::bind_node_resources(const NodeResources& resources) {
  kv_id_ = resources.id("kv");
  attention_id_ = resources.id("attn");
  dense_id_ = resources.id("attn_gen");
  commit_id_ = resources.id("attn_commit");
  kv_ = &resources.get<KvCache>("kv");
  attention_ = &resources.get<AttentionResource>("attn");
  dense_ = &resources.get<AttentionResource>("attn_gen");
  commit_ = &resources.get<AttentionResource>("attn_commit");
}

std::unique_ptr<NodeInputs> Cosmos3DiTSubmodule::prepare_inputs(std::string_view graph_walk,
                                                                const CurrentForwardPassInfo& info,
                                                                const NamedTensors& inputs,
                                                                const PrepareContext& context) {
  const GenRequest& request = gen_request(info);
  auto prepared = std::make_unique<NodeInputs>();
  GenStepInfo step{.cfg = request.has_guidance()};
  if (is_prefill(graph_walk)) {
    step.cfg_active = step.cfg;
    step.commit = true;
    prepared->input_seq_len = static_cast<int64_t>(request.cond_ids.size());
    prepared->kwargs.set(kNumUncond, static_cast<int64_t>(request.uncond_ids.size()));
    prepared->resource_step_info = step;
    return prepared;
  }
  PerRequestState& state = request_state(info.handle);
  if (request.windows) {
    return prepare_window(info, inputs, context);
  }
  auto* denoiser = state.kwargs.find<std::shared_ptr<Denoiser>>(kDenoiser);
  if (denoiser == nullptr) {
    GenState start = draw_noise(transformer_->config(), request.plan.layout, request.seed);
    if (request.noise.defined()) {
      start.vision = request.noise;
    }
    if (request.plan.layout.clean_actions) {
      start.actions = request.given_actions;
    }
    state.add(kDenoiser,
              std::make_shared<Denoiser>(
                  context.stream, request.plan, start, inputs.tensor_or_none("cond_latents")));
    denoiser = state.kwargs.find<std::shared_ptr<Denoiser>>(kDenoiser);
  }
  if ((*denoiser)->finished()) {
    return nullptr;  // dispatched beyond the request's own last step
  }
  step.cfg_active = request.plan.guidance.active_at((*denoiser)->timestep());
  prepared->kwargs.set(kStream, &context.stream);
  prepared->input_seq_len =
      request.plan.layout.num_tokens(transformer_->config().latent_patch_size);
  prepared->resource_step_info = step;
  return prepared;
}

std::unique_ptr<NodeInputs> Cosmos3DiTSubmodule::prepare_window(const CurrentForwardPassInfo& info,
                                                                const NamedTensors& inputs,
                                                                const PrepareContext& context) {
  const auto& request = info.values.at<GenRequestPtr>(kGenRequest);
  PerRequestState& state = request_state(info.handle);
  WindowRun* run = window_run_of(state);
  if (run == nullptr) {
    auto made = std::make_shared<WindowRun>(
        context.stream, transformer_->config(), request, inputs.tensor_or_none("cond_latents"));
    run = made.get();
    state.add(kWindowRun, std::move(made));
    state.add(kDenoiser, run->denoiser());
  }
  if (run->finished()) {
    return nullptr;
  }
  GenStepInfo step{.cfg = request->has_guidance()};
  step.commit = run->is_commit();
  step.cfg_active =
      step.commit ? step.cfg : request->plan.guidance.active_at(run->denoiser()->timestep());
  if (step.commit) {
    for (const auto& [label, ids] :
         {std::pair{"main", &request->cond_ids}, std::pair{"uncond", &request->uncond_ids}}) {
      if (const auto policy = run->retention(static_cast<int64_t>(ids->size()))) {
        step.retention[label] = *policy;
      }
    }
  }
  auto prepared = std::make_unique<NodeInputs>();
  prepared->input_seq_len = run->num_tokens();
  prepared->resource_step_info = step;
  return prepared;
}

// Rows are packed one after the other, whatever their number. A step that keeps a window's keys and
// values is its own: what streams keep is said per label, not per request.
bool Cosmos3DiTSubmodule::can_batch(const ExecutingBatch& batch,
                                    std::span<NodeInputs* const> inputs) {
  return is_prefill(batch.graph_walk) ||
         std::ranges::none_of(inputs, [](const NodeInputs* one) { return step_info(*one).commit; });
}

int Cosmos3DiTSubmodule::max_batch_size(std::string_view) const {
  return kMaxBatchSize;
}

bool Cosmos3DiTSubmodule::declare_step(std::string_view graph_walk,
                                       std::span<const RequestHandle> request_ids,
                                       std::span<const NodeInputs* const> inputs,
                                       const SlotLease* lease,
                                       std::span<const SlotLease* const>,
                                       SubmoduleStep& step) {
  const bool prefill = is_prefill(graph_walk);
  bool both = false;
  for (size_t row = 0; row < inputs.size(); ++row) {
    step.add_segment(
        request_ids[row], kCondLabel, static_cast<int32_t>(inputs[row]->input_seq_len));
  }
  for (size_t row = 0; row < inputs.size(); ++row) {
    if (step_info(*inputs[row]).cfg_active) {
      const int64_t* uncond = inputs[row]->kwargs.find<int64_t>(kNumUncond);
      const int64_t span = uncond != nullptr ? *uncond : inputs[row]->input_seq_len;
      step.add_segment(request_ids[row], kUncondLabel, static_cast<int32_t>(span));
      both = true;
    }
  }
  KVStep& kv = step.kv.add(kv_id_);
  const GenStepInfo& first = step_info(*inputs.front());
  kv.commit = prefill || first.commit;
  for (const auto& [label, name] :
       {std::pair{kCondLabel, "main"}, std::pair{kUncondLabel, "uncond"}}) {
    if (const auto policy = first.retention.find(name); policy != first.retention.end()) {
      kv.retentions.push_back({label, policy->second});
    }
  }
  if (both) {
    CombinedLabels packed;
    packed.plan_label = kBothLabel;
    packed.num_sources = 2;
    packed.sources = {kCondLabel, kUncondLabel};
    kv.combined.push_back(packed);
  }
  if (lease != nullptr) {
    // Addresses of a recorded step are fixed: fresh rows stand in pages behind the text's.
    kv.returns_scratch = true;
    step.capture_key = lease->bucket.key;
  } else if (!kv.commit) {
    // The cache is only read: fresh rows never go into pages.
    for (Segment segment : step.segments) {
      segment.span = 0;
      kv.segments.push_back(segment);
    }
  }
  const ResourceId media = kv.commit || lease != nullptr ? commit_id_ : dense_id_;
  step.attention.add(prefill ? attention_id_ : media).causal = prefill;
  return true;
}

ForwardArgs Cosmos3DiTSubmodule::preprocess(std::string_view graph_walk,
                                            const ModelInputsFromEngine& engine_inputs,
                                            std::span<NodeInputs* const> inputs) {
  ForwardArgs args;
  if (engine_inputs.context->leased()) {
    add_captured_inputs(engine_inputs, inputs, args);
    return args;
  }
  std::vector<bool> active;
  for (const NodeInputs* one : inputs) {
    active.push_back(step_info(*one).cfg_active);
  }
  const size_t num_rows = inputs.size();
  std::vector<Tensor> positions;
  std::vector<int32_t> ids;
  int64_t num_cond = 0;
  for (const bool uncond : {false, true}) {
    for (size_t row = 0; row < num_rows; ++row) {
      if (uncond && !active[row]) {
        continue;
      }
      const GenRequest& request = gen_request(*engine_inputs.per_request_info[row]);
      const std::vector<int32_t>& text = uncond ? request.uncond_ids : request.cond_ids;
      const auto num_text = static_cast<int64_t>(text.size());
      if (is_prefill(graph_walk)) {
        ids.insert(ids.end(), text.begin(), text.end());
        positions.push_back(text_positions(num_text));
      } else if (const WindowRun* run =
                     window_run_of(request_state(engine_inputs.request_ids[row]))) {
        positions.push_back(run->positions(temporal_factor_, num_text));
      } else {
        positions.push_back(
            gen_positions(transformer_->config(), temporal_factor_, request.plan.layout, num_text));
      }
      num_cond += uncond ? 0 : positions.back().dim(1);
    }
  }
  args.tensors.set("positions", join_positions(positions));
  if (!ids.empty()) {
    args.tensors.set("input_ids", Tensor::from(ids, {static_cast<int64_t>(ids.size())}));
  }
  args.values.set("num_cond", num_cond);
  args.values.set(kBranchFlags, active);
  return args;
}

void Cosmos3DiTSubmodule::prefill(const ModelInputsFromEngine& engine_inputs, ForwardArgs& args) {
  Stream& stream = *engine_inputs.stream;
  const auto& active = args.values.at<std::vector<bool>>(kBranchFlags);
  const bool both = std::ranges::find(active, true) != active.end();
  EngineAttention attention(*engine_inputs.context,
                            both ? kBothLabel : kCondLabel,
                            args.values.at<int64_t>("num_cond"),
                            *kv_,
                            *attention_,
                            *dense_);
  transformer_->prefill(
      stream,
      transformer_->embed_text(stream, args.tensors.tensor("input_ids"), activation_dtype_),
      transformer_->rotary(stream, args.tensors.tensor("positions")),
      attention,
      false);
}

// One request's clean window through the generation tower, for its keys and values alone.
NamedTensors Cosmos3DiTSubmodule::commit_window(const ModelInputsFromEngine& engine_inputs,
                                                ForwardArgs& args) {
  Stream& stream = *engine_inputs.stream;
  WindowRun& run = *window_run_of(request_state(engine_inputs.request_ids.front()));
  const bool both = args.values.at<std::vector<bool>>(kBranchFlags).front();
  const Tensor own = transformer_->embed_gen(
      stream, run.commit_layout(), run.commit_state(stream), 0.0F, activation_dtype_);
  Tensor rows = own;
  if (both) {
    rows = stream.empty({2 * own.dim(0), own.dim(1)}, own.dtype());
    for (const int64_t begin : {int64_t{0}, own.dim(0)}) {
      Tensor to = rows.slice(0, begin, begin + own.dim(0));
      ops::copy(stream, own, to);
    }
  }
  EngineAttention attention(*engine_inputs.context,
                            both ? kBothLabel : kCondLabel,
                            args.values.at<int64_t>("num_cond"),
                            *kv_,
                            *attention_,
                            *commit_);
  transformer_->denoise(
      stream, rows, transformer_->rotary(stream, args.tensors.tensor("positions")), attention);
  NamedTensors outputs;
  outputs.set("latents", run.denoiser()->state().vision);
  run.end_commit(stream);
  note_window(request_state(engine_inputs.request_ids.front()), outputs);
  return outputs;
}

// The loop's values after a pass, and the denoiser of the next one.
void Cosmos3DiTSubmodule::note_window(PerRequestState& state, NamedTensors& outputs) {
  const WindowRun& run = *window_run_of(state);
  const int32_t indexes[] = {static_cast<int32_t>(run.iteration())};
  outputs.set("time_index", Tensor::from(indexes, {1}));
  state.add(kDenoiser, run.denoiser());
}

std::vector<NamedTensors> Cosmos3DiTSubmodule::denoise(const ModelInputsFromEngine& engine_inputs,
                                                       ForwardArgs& args) {
  Stream& stream = *engine_inputs.stream;
  const size_t num_rows = engine_inputs.request_ids.size();
  const auto& active = args.values.at<std::vector<bool>>(kBranchFlags);
  const bool both = std::ranges::find(active, true) != active.end();
  const Tensor& positions = args.tensors.tensor("positions");
  Tensor rows =
      stream.empty({positions.dim(1), transformer_->config().hidden_size}, activation_dtype_);

  std::vector<Denoiser*> denoisers;
  std::vector<std::pair<int64_t, int64_t>> cond(num_rows);  // rows of each request's branches
  std::vector<std::pair<int64_t, int64_t>> uncond(num_rows);
  int64_t next = 0;
  const auto place = [&](const Tensor& from) {
    const std::pair<int64_t, int64_t> range{next, next + from.dim(0)};
    Tensor to = rows.slice(0, range.first, range.second);
    ops::copy(stream, from, to);
    next = range.second;
    return range;
  };
  for (size_t row = 0; row < num_rows; ++row) {
    PerRequestState& state = request_state(engine_inputs.request_ids[row]);
    denoisers.push_back(state.kwargs.at<std::shared_ptr<Denoiser>>(kDenoiser).get());
    const Denoiser& denoiser = *denoisers.back();
    cond[row] = place(transformer_->embed_gen(
        stream, denoiser.plan().layout, denoiser.state(), denoiser.timestep(), activation_dtype_));
  }
  for (size_t row = 0; row < num_rows; ++row) {
    if (active[row]) {
      uncond[row] = place(rows.slice(0, cond[row].first, cond[row].second));
    }
  }
  EngineAttention attention(*engine_inputs.context,
                            both ? kBothLabel : kCondLabel,
                            args.values.at<int64_t>("num_cond"),
                            *kv_,
                            *attention_,
                            *dense_);
  const Tensor out =
      transformer_->denoise(stream, rows, transformer_->rotary(stream, positions), attention);

  std::vector<NamedTensors> outputs(num_rows);
  for (size_t row = 0; row < num_rows; ++row) {
    Denoiser& denoiser = *denoisers[row];
    const GenPlan& plan = denoiser.plan();
    const auto velocity_of = [&](const std::pair<int64_t, int64_t>& range) {
      return transformer_->read_velocity(
          stream, plan.layout, out.slice(0, range.first, range.second));
    };
    GenState velocity = velocity_of(cond[row]);
    if (active[row]) {
      apply_guidance(stream, plan.guidance.scale, velocity_of(uncond[row]), velocity);
    }
    outputs[row] =
        advance(stream, *engine_inputs.per_request_info[row], denoiser, std::move(velocity));
    PerRequestState& state = request_state(engine_inputs.request_ids[row]);
    if (WindowRun* run = window_run_of(state)) {
      const Tensor fresh = run->end_denoise(stream);
      if (fresh.defined()) {
        outputs[row].set(kWindowLatents, fresh);
      }
      note_window(state, outputs[row]);
    }
  }
  return outputs;
}

// One step of the solver with the guided velocity, and what the loop carries on.
NamedTensors Cosmos3DiTSubmodule::advance(Stream& stream,
                                          const CurrentForwardPassInfo& info,
                                          Denoiser& denoiser,
                                          const GenState& velocity) {
  GenState noise;
  if (denoiser.plan().distilled) {
    // A seed of its own for every step.
    const auto step = static_cast<uint64_t>(denoiser.step_index());
    noise.vision =
        gaussian_noise(denoiser.state().vision.shape(), gen_request(info).seed, 16 + step);
  }
  denoiser.advance(stream, velocity, noise);
  const int32_t indexes[] = {static_cast<int32_t>(denoiser.step_index())};
  NamedTensors outputs;
  outputs.set("latents", denoiser.state().vision);
  outputs.set("time_index", Tensor::from(indexes, {1}));
  if (denoiser.state().sound.defined()) {
    outputs.set("sound_latents", denoiser.state().sound);
  }
  if (denoiser.state().actions.defined()) {
    outputs.set("action_latents", denoiser.state().actions);
  }
  return outputs;
}

NamedTensors Cosmos3DiTSubmodule::forward(std::string_view graph_walk,
                                          const ModelInputsFromEngine& engine_inputs,
                                          ForwardArgs& args) {
  if (is_prefill(graph_walk)) {
    prefill(engine_inputs, args);
    return {};
  }
  const WindowRun* run = window_run_of(request_state(engine_inputs.request_ids.front()));
  if (run != nullptr && run->is_commit()) {
    return commit_window(engine_inputs, args);
  }
  return std::move(denoise(engine_inputs, args).front());
}

BatchedModelOutput Cosmos3DiTSubmodule::forward_batched(std::string_view graph_walk,
                                                        const ModelInputsFromEngine& engine_inputs,
                                                        ForwardArgs& args) {
  BatchedModelOutput output;
  if (is_prefill(graph_walk)) {
    prefill(engine_inputs, args);
    return output;
  }
  if (engine_inputs.captured) {
    return velocities(engine_inputs, args);
  }
  std::vector<NamedTensors> outputs = denoise(engine_inputs, args);
  for (size_t row = 0; row < outputs.size(); ++row) {
    output.per_rid_outputs[engine_inputs.request_ids[row]] = std::move(outputs[row]);
  }
  return output;
}

void Cosmos3DiTSubmodule::postprocess(const CurrentForwardPassInfo& info,
                                      NamedTensors& outputs,
                                      const NodeInputs* inputs) {
  if (outputs.contains(kCondVelocity)) {
    Stream& stream = **inputs->kwargs.find<Stream*>(kStream);
    Denoiser& denoiser =
        *request_state(info.handle).kwargs.at<std::shared_ptr<Denoiser>>(kDenoiser);
    GenState velocity{outputs.tensor(kCondVelocity), {}, {}};
    const GenState uncond{outputs.tensor(kUncondVelocity), {}, {}};
    apply_guidance(stream, denoiser.plan().guidance.scale, uncond, velocity);
    outputs = advance(stream, info, denoiser, velocity);
    stream.synchronize();
  }
  const Tensor index = outputs.tensor_or_none("time_index");
  if (!index.defined()) {
    return;
  }
  for (const char* name : {"latents", "sound_latents", "action_latents"}) {
    expect_all_finite(outputs.tensor_or_none(name),
                      str_cat("dit, ", info.graph_walk, ", step ", *index.data<int32_t>()));
  }
}

void Cosmos3DiTSubmodule::check_stop(const CurrentForwardPassInfo& info,
                                     const NamedTensors& outputs,
                                     const InputMetadata&,
                                     std::vector<std::string_view>& stopped_loops) {
  const Tensor index = outputs.tensor_or_none("time_index");
  if (index.defined() && *index.data<int32_t>() >= gen_request(info).num_iterations()) {
    stopped_loops.push_back(loop_of(info.graph_walk));
  }
}

}  // namespace mstar::cosmos3

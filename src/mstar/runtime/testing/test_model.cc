#include "mstar/runtime/testing/test_model.h"

#include <cmath>
#include <thread>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/resources/attention.h"
#include "mstar/resources/kv_cache.h"

namespace mstar::testing {

namespace {

constexpr LabelId kUncond = 1;
constexpr LabelId kBoth = 2;
constexpr int64_t kHeadDim = 4;

Tensor scalar(float value) {
  return Tensor::from(std::array{value}, {1});
}

float value_of(const Tensor& tensor) {
  return *tensor.data<float>();
}

// Common part: one f32 a request, batched by default.
class TestNode : public NodeSubmodule {
 public:
  explicit TestNode(std::string name) : name_(std::move(name)) {}

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view,
                                             const CurrentForwardPassInfo&,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override {
    auto prepared = std::make_unique<NodeInputs>();
    prepared->tensor_inputs = inputs;
    prepared->input_seq_len = 1;
    if (!context.metadata.stream_chunks.empty()) {
      prepared->kwargs.set("chunk", context.metadata.stream_chunks.front().second);
    }
    return prepared;
  }

  bool can_batch(const ExecutingBatch&, std::span<NodeInputs* const>) override { return true; }

  int max_batch_size(std::string_view) const override { return 8; }

  ForwardArgs preprocess(std::string_view,
                         const ModelInputsFromEngine&,
                         std::span<NodeInputs* const> inputs) override {
    ForwardArgs args;
    args.values.set("rows", std::vector<NodeInputs*>(inputs.begin(), inputs.end()));
    return args;
  }

  NamedTensors forward(std::string_view walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override {
    return forward_batched(walk, engine_inputs, args).pop(engine_inputs.request_ids.front());
  }

  BatchedModelOutput forward_batched(std::string_view,
                                     const ModelInputsFromEngine& engine_inputs,
                                     ForwardArgs& args) override {
    BatchedModelOutput output;
    const auto& rows = args.values.at<std::vector<NodeInputs*>>("rows");
    for (size_t row = 0; row < rows.size(); ++row) {
      const CurrentForwardPassInfo& info = *engine_inputs.per_request_info[row];
      if (const Json* slow = info.step_metadata.find("slow_us")) {
        std::this_thread::sleep_for(std::chrono::microseconds(slow->get_int()));
      }
      output.per_rid_outputs[engine_inputs.request_ids[row]] =
          run(*rows[row], info, engine_inputs, row);
    }
    return output;
  }

  void postprocess(const CurrentForwardPassInfo& info, NamedTensors&, const NodeInputs*) override {
    const Json* fail = info.step_metadata.find("fail");
    if (fail != nullptr && fail->get_string() == name_) {
      throw Error(ErrorCode::kInvalidArgument, str_cat("[", name_, "] asked to fail"));
    }
  }

 protected:
  virtual NamedTensors run(const NodeInputs& inputs,
                           const CurrentForwardPassInfo& info,
                           const ModelInputsFromEngine& engine_inputs,
                           size_t row) = 0;

 private:
  std::string name_;
};

class Arithmetic : public TestNode {
 public:
  using Function = std::function<float(const NodeInputs&)>;

  Arithmetic(std::string name, std::string output, Function function)
      : TestNode(std::move(name)), output_(std::move(output)), function_(std::move(function)) {}

 protected:
  NamedTensors run(const NodeInputs& inputs,
                   const CurrentForwardPassInfo&,
                   const ModelInputsFromEngine&,
                   size_t) override {
    NamedTensors out;
    out.set(output_, scalar(function_(inputs)));
    return out;
  }

 private:
  std::string output_;
  Function function_;
};

// latents <- latents / 2 + joined + time, through two cache labels packed as one plan: attention
// over a single scratch token gives that token's value back.
class FlowNode : public TestNode {
 public:
  FlowNode() : TestNode("flow") {}

  void bind_node_resources(const NodeResources& resources) override {
    kv_ = resources.id("kv");
    attention_id_ = resources.id("attn");
    attention_ = &resources.get<AttentionResource>("attn");
  }

  bool declare_step(std::string_view,
                    std::span<const RequestHandle> request_ids,
                    std::span<const NodeInputs* const>,
                    const SlotLease*,
                    std::span<const SlotLease* const>,
                    SubmoduleStep& step) override {
    for (const LabelId label : {kMainLabel, kUncond}) {
      for (const RequestHandle request : request_ids) {
        step.add_segment(request, label, 1);
      }
    }
    KVStep& kv = step.kv.add(kv_);
    kv.commit = false;
    CombinedLabels both;
    both.plan_label = kBoth;
    both.num_sources = 2;
    both.sources = {kMainLabel, kUncond};
    kv.combined.push_back(both);
    step.attention.add(attention_id_).causal = false;
    return true;
  }

 protected:
  NamedTensors run(const NodeInputs& inputs,
                   const CurrentForwardPassInfo& info,
                   const ModelInputsFromEngine& engine_inputs,
                   size_t row) override {
    const size_t num_rows = engine_inputs.request_ids.size();
    if (row == 0) {  // one attention for the whole step, before its first row
      Stream& stream = *engine_inputs.stream;
      const auto tokens = static_cast<int64_t>(2 * num_rows);
      Tensor q = Tensor::zeros({tokens, 1, kHeadDim}, DType::kF32);
      Tensor v = Tensor::zeros({tokens, 1, kHeadDim}, DType::kF32);
      for (int64_t token = 0; token < tokens; ++token) {
        v.data<float>()[token * kHeadDim] = static_cast<float>(token % 7);
      }
      attended_ = stream.empty({tokens, 1, kHeadDim}, DType::kF32);
      attention_->attend(stream, {engine_inputs.context, kBoth, 0}, q, q, v, attended_);
    }
    for (const size_t token : {row, row + num_rows}) {
      if (attended_.data<float>()[token * kHeadDim] != static_cast<float>(token % 7)) {
        throw Error(ErrorCode::kInternal, "[flow] a scratch token saw another one");
      }
    }
    const Tensor given = inputs.tensor_inputs.tensor_or_none("latents");
    const float latents = given.defined() ? value_of(given) : 1.0F;
    const Tensor index = inputs.tensor_inputs.tensor_or_none("time_index");
    const float time = index.defined() ? value_of(index) : 0.0F;
    float next = latents / 2 + value_of(inputs.tensor_inputs.tensor("joined")) + time;
    if (info.step_metadata.contains("nan")) {
      throw Error(ErrorCode::kInternal, str_cat("[flow] not finite at step ", time));
    }
    NamedTensors out;
    out.set("latents", scalar(next));
    out.set("time_index", scalar(time + 1));
    return out;
  }

 private:
  ResourceId kv_ = -1;
  ResourceId attention_id_ = -1;
  AttentionResource* attention_ = nullptr;
  Tensor attended_;
};

class CounterNode : public TestNode {
 public:
  CounterNode() : TestNode("counter") {}

  void check_stop(const CurrentForwardPassInfo& info,
                  const NamedTensors& outputs,
                  const InputMetadata&,
                  std::vector<std::string_view>& stopped_loops) override {
    const Json* stop_at = info.step_metadata.find("stop_at");
    if (stop_at != nullptr && value_of(outputs.tensor("value")) >= stop_at->get_double()) {
      stopped_loops.push_back("count_loop");
    }
  }

 protected:
  NamedTensors run(const NodeInputs& inputs,
                   const CurrentForwardPassInfo&,
                   const ModelInputsFromEngine&,
                   size_t) override {
    NamedTensors out;
    out.set("value", scalar(value_of(inputs.tensor_inputs.tensor("value")) + 1));
    return out;
  }
};

// Adds up the items of each chunk; the final chunk may be empty.
class SummerNode : public TestNode {
 public:
  SummerNode() : TestNode("summer") {}

 protected:
  NamedTensors run(const NodeInputs& inputs,
                   const CurrentForwardPassInfo&,
                   const ModelInputsFromEngine& engine_inputs,
                   size_t row) override {
    PerRequestState& state = engine_inputs.per_request_states[row];
    float total = state.kwargs.get("total", 0.0F);
    const Tensor items = inputs.tensor_inputs.tensor_or_none("items");
    if (items.defined()) {
      for (const float item : items.to_floats()) {
        total += item;
      }
    }
    state.add("total", total);
    NamedTensors out;
    const auto* chunk = inputs.kwargs.find<StreamChunkInfo>("chunk");
    if (chunk != nullptr && chunk->is_final) {
      out.set("sum", scalar(total));
    }
    return out;
  }
};

class TestOutputStream : public OutputStream {
 public:
  std::vector<OutputChunk> write(Modality,
                                 std::string_view edge,
                                 const TensorList& tensors) override {
    std::vector<OutputChunk> chunks;
    for (const Tensor& tensor : tensors) {
      OutputChunk chunk;
      chunk.modality = Modality::kTensor;
      chunk.data = str_cat(edge, "=", value_of(tensor), ";");
      chunks.push_back(std::move(chunk));
    }
    return chunks;
  }

  std::vector<OutputChunk> finish() override { return {}; }
};

}  // namespace

float expected_flow(float value, int steps) {
  const float joined = 2 * value + value * value;
  float latents = 1.0F;
  for (int step = 0; step < steps; ++step) {
    latents = latents / 2 + joined + static_cast<float>(step);
  }
  return latents * 10;
}

TestModel::TestModel() {
  using Type = RequestParameter::Type;
  description_.name = "test";
  description_.family = "test";
  description_.input_modalities = {Modality::kText};
  description_.output_modalities = {Modality::kTensor};
  description_.parameters = ParameterTable({
      {.name = "mode", .type = Type::kString, .fallback = "flow", .choices = {"flow", "count"}},
      {.name = "value", .type = Type::kFloat, .fallback = 1.0},
      {.name = "steps", .fallback = 4, .min = 1, .max = 1000},
      {.name = "stop_at", .type = Type::kFloat},
      {.name = "fail", .type = Type::kString},
      {.name = "nan", .type = Type::kBool},
      {.name = "slow_us"},
  });
}

graph::ModelGraph TestModel::get_graph_walk_graphs() const {
  using namespace graph;  // NOLINT: the words of a declaration
  return {.walks =
              {
                  walk("encode",
                       {"x"},
                       parallel(node("double").needs({"x"}).makes(edge("doubled").to("join")),
                                node("square").needs({"x"}).makes(edge("squared").to("join"))),
                       node("join").needs({"doubled", "squared"}).makes(edge("joined").kept())),
                  walk("flow",
                       {"latents", "time_index", "joined"},
                       loop("flow_loop",
                            1000,
                            node("flow")
                                .needs({"latents", "time_index", "joined"})
                                .makes(edge("latents").to("flow"))
                                .makes(edge("time_index").to("flow")))
                           .gives("latents", edge("latents").to("decoder")),
                       node("decoder")
                           .needs({"latents"})
                           .makes(edge("result").to_client(Modality::kTensor))),
                  walk("count",
                       {"value"},
                       loop("count_loop",
                            1000,
                            node("counter")
                                .needs({"value"})
                                .makes(edge("value").to("counter"))
                                .makes(edge("value").to_client(Modality::kTensor).counts_as_token())
                                .makes(edge("value").stream_to("sink", "summer", "items")))),
                  walk("consume",
                       {},
                       node("summer").needs_stream("items").makes(
                           edge("sum").to_client(Modality::kTensor))),
              },
          .topology = {.partitions = {{"main", {"encode", "flow", "count"}}, {"sink", {"consume"}}},
                       .connections = {{"main", "sink", "value", ChunkPolicy::fixed(3)}}}};
}

std::vector<NodeResourceSpec> TestModel::get_node_resources() const {
  return {{"kv",
           {"flow"},
           KVSpec{.num_layers = 1,
                  .num_kv_heads = 1,
                  .head_dim = kHeadDim,
                  .page_size = 4,
                  .max_num_pages = 17,
                  .dtype = DType::kF32}},
          {"attn", {"flow"}, AttentionSpec{.kv = "kv"}}};
}

std::unique_ptr<NodeSubmodule> TestModel::get_submodule(std::string_view node, const LoadContext&) {
  const auto input = [](const NodeInputs& inputs, std::string_view name) {
    return value_of(inputs.tensor_inputs.tensor(name));
  };
  if (node == "double") {
    return std::make_unique<Arithmetic>(
        "double", "doubled", [=](const NodeInputs& inputs) { return 2 * input(inputs, "x"); });
  }
  if (node == "square") {
    return std::make_unique<Arithmetic>("square", "squared", [=](const NodeInputs& inputs) {
      return input(inputs, "x") * input(inputs, "x");
    });
  }
  if (node == "join") {
    return std::make_unique<Arithmetic>("join", "joined", [=](const NodeInputs& inputs) {
      return input(inputs, "doubled") + input(inputs, "squared");
    });
  }
  if (node == "decoder") {
    return std::make_unique<Arithmetic>("decoder", "result", [=](const NodeInputs& inputs) {
      return 10 * input(inputs, "latents");
    });
  }
  if (node == "flow") {
    return std::make_unique<FlowNode>();
  }
  if (node == "counter") {
    return std::make_unique<CounterNode>();
  }
  return std::make_unique<SummerNode>();
}

PreparedRequest TestModel::process_prompt(const ModelRequest& request) const {
  PreparedRequest out;
  out.request_id = request.request_id;
  out.step_metadata = description_.parameters.resolve(request.parameters);
  out.inputs.set("x", scalar(static_cast<float>(out.step_metadata.at("value").get_double())));
  out.output_modalities = {Modality::kTensor};
  out.num_prompt_tokens = 1;
  out.resource_configs["kv"] = KVRequestConfig{.needed_labels = {kMainLabel, kUncond}};
  return out;
}

ForwardPassArgs TestModel::get_initial_forward_pass_args(RequestProgress& progress) const {
  ForwardPassArgs args;
  const bool counts = progress.request.step_metadata.at("mode") == Json("count");
  if (progress.partition == "sink") {
    args.request_done = !counts;
    args.graph_walk = "consume";
    return args;
  }
  if (counts) {
    args.graph_walk = "count";
    args.inputs.set("value", progress.persist_signals.at("x"));
    args.loop_limits = {{"count_loop", progress.request.step_metadata.at("steps").get_int()}};
  } else {
    args.graph_walk = "encode";
    args.inputs.set("x", progress.persist_signals.at("x"));
  }
  return args;
}

ForwardPassArgs TestModel::get_partition_forward_pass_args(RequestProgress& progress) const {
  ForwardPassArgs args;
  if (progress.partition == "sink") {
    args.graph_walk = "consume";
  } else if (progress.graph_walk == "encode") {
    args.graph_walk = "flow";
    args.inputs.set("joined", progress.persist_signals.at("joined"));
    args.inputs.set("latents", TensorList());
    args.inputs.set("time_index", TensorList());
    args.unpersist = {"joined", "x"};
    args.loop_limits = {{"flow_loop", progress.request.step_metadata.at("steps").get_int()}};
  } else {
    args.request_done = true;
  }
  return args;
}

std::unique_ptr<OutputStream> TestModel::make_output_stream(const PreparedRequest&) const {
  return std::make_unique<TestOutputStream>();
}

}  // namespace mstar::testing

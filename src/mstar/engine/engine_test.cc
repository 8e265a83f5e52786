// The contract between engine and submodules, driven step by step without a scheduler: what each
// row gets, captured and eager, and whose failure is whose.
#include "mstar/engine/engine.h"

#include <gtest/gtest.h>

#include "mstar/base/str_cat.h"
#include "mstar/engine/piecewise_runner.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

constexpr std::string_view kGuided = "guided";  // NodeInputs::kwargs

struct ScaleParams {
  const float* x;
  float* y;
  int64_t count;
  float factor;
};

// y = factor * x, an op that captures record.
Tensor scaled(Stream& stream, const Tensor& x, float factor) {
  Tensor y = stream.empty(x.shape(), DType::kF32);
  dynamic_cast<CpuStream&>(stream).enqueue(
      "scale",
      1,
      ScaleParams{x.data<float>(), y.data<float>(), x.num_elements(), factor},
      [](const ScaleParams& p, int) {
        for (int64_t index = 0; index < p.count; ++index) {
          p.y[index] = p.factor * p.x[index];
        }
      });
  return y;
}

Tensor one_value(float value) {
  return Tensor::from(std::vector<float>{value}, {1});
}

// x [1] -> out = 2 x (3 x when guided), copy = the same, cut from a packed tensor where captured.
// Negative values veto the step, 99 fails to prepare, values above 10 end the loop "grow".
class ScaleNode : public NodeSubmodule {
 public:
  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext&) override {
    const Tensor& x = inputs.tensor("x");
    const float value = *x.data<float>();
    if (value == 99.0F) {
      throw Error(ErrorCode::kInvalidArgument, "[scale] 99 is not taken");
    }
    if (value < 0.0F) {
      return nullptr;
    }
    PerRequestState& state = request_state(info.handle);
    state.add("steps", state.kwargs.get<int>("steps", 0) + 1);
    state.add("last", x);
    auto prepared = std::make_unique<NodeInputs>();
    prepared->tensor_inputs.set("x", x);
    prepared->kwargs.set(kGuided, info.requires_cfg);
    prepared->input_seq_len = 1;
    return prepared;
  }

  bool can_batch(const ExecutingBatch&, std::span<NodeInputs* const>) override { return batches; }

  int max_batch_size(std::string_view) const override { return 8; }

  std::optional<CaptureKey> capture_key(
      std::string_view,
      std::span<const CurrentForwardPassInfo* const> infos) const override {
    for (const CurrentForwardPassInfo* info : infos) {
      if (info->requires_cfg != infos.front()->requires_cfg) {
        return std::nullopt;
      }
    }
    return CaptureKey(infos.front()->requires_cfg);
  }

  bool split_batches_by_capture_key(std::string_view) const override { return true; }

  bool declare_step(std::string_view,
                    std::span<const RequestHandle>,
                    std::span<const NodeInputs* const> inputs,
                    const SlotLease*,
                    std::span<const SlotLease* const>,
                    SubmoduleStep& step) override {
    step.capture_key = CaptureKey(inputs.front()->kwargs.get<bool>(kGuided, false) != wrong_key);
    return true;
  }

  ForwardArgs preprocess(std::string_view,
                         const ModelInputsFromEngine&,
                         std::span<NodeInputs* const> inputs) override {
    std::vector<float> packed;
    for (const NodeInputs* one : inputs) {
      packed.push_back(*one->tensor_inputs.tensor("x").data<float>());
    }
    ForwardArgs args;
    args.tensors.set("x", Tensor::from(packed, {static_cast<int64_t>(packed.size()), 1}));
    args.values.set("factor", inputs.front()->kwargs.get<bool>(kGuided, false) ? 3.0F : 2.0F);
    return args;
  }

  NamedTensors forward(std::string_view,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override {
    EXPECT_EQ(&engine_inputs.single_request_info(), &engine_inputs.first_request_info());
    const Tensor y =
        scaled(*engine_inputs.stream, args.tensors.tensor("x"), args.values.at<float>("factor"));
    return {{"y", {y}}, {"copy", {y}}};
  }

  BatchedModelOutput forward_batched(std::string_view,
                                     const ModelInputsFromEngine& engine_inputs,
                                     ForwardArgs& args) override {
    const Tensor y =
        scaled(*engine_inputs.stream, args.tensors.tensor("x"), args.values.at<float>("factor"));
    BatchedModelOutput output;
    output.row_outputs.emplace().set("y", y);
    output.check_stop_buffers.emplace().set("y", y);
    if (reverses) {
      output.row_request_ids.emplace(engine_inputs.request_ids.rbegin(),
                                     engine_inputs.request_ids.rend());
    }
    if (engine_inputs.captured) {
      output.packed_outputs.set("__copy__", y);
    } else {
      for (size_t row = 0; row < engine_inputs.request_ids.size(); ++row) {
        const auto at = static_cast<int64_t>(row);
        output.per_rid_outputs[engine_inputs.request_ids[row]].set("copy", y.slice(0, at, at + 1));
        EXPECT_GT(engine_inputs.per_request_states[row].kwargs.get<int>("steps", 0), 0);
      }
    }
    return output;
  }

  std::unordered_map<RequestHandle, NamedTensors> unpack_packed_outputs(
      const NamedTensors& packed,
      std::span<const RequestHandle> request_ids,
      std::span<const int64_t> real_seq_lens,
      std::span<NodeInputs* const>,
      std::span<const CurrentForwardPassInfo* const>) override {
    std::unordered_map<RequestHandle, NamedTensors> out;
    for (size_t row = 0; row < request_ids.size(); ++row) {
      EXPECT_EQ(real_seq_lens[row], 1);
      const auto at = static_cast<int64_t>(row);
      out[request_ids[row]].set("copy", packed.tensor("__copy__").slice(0, at, at + 1).copy());
    }
    return out;
  }

  void filter_batched_output(const CurrentForwardPassInfo& info, NamedTensors& outputs) override {
    if (info.values.get<bool>("quiet", false)) {
      outputs.erase("copy");
    }
  }

  void postprocess(const CurrentForwardPassInfo&,
                   NamedTensors& outputs,
                   const NodeInputs* inputs) override {
    EXPECT_NE(inputs, nullptr);
    outputs.rename("y", "out");
  }

  void check_stop(const CurrentForwardPassInfo&,
                  const NamedTensors& outputs,
                  const InputMetadata&,
                  std::vector<std::string_view>& stopped_loops) override {
    ++num_single_checks;
    if (*outputs.tensor("out").data<float>() > 10.0F) {
      stopped_loops.push_back("grow");
    }
  }

  bool check_stop_batched(std::span<const CurrentForwardPassInfo* const> infos,
                          const HostRows& rows,
                          std::span<const InputMetadata>,
                          std::span<std::vector<std::string_view>> stopped) override {
    EXPECT_EQ(rows.request_ids.size(), infos.size());
    for (size_t row = 0; row < infos.size(); ++row) {
      if (rows.buffers.tensor("y").data<float>()[row] > 10.0F) {
        stopped[row].push_back("grow");
      }
    }
    return true;
  }

  std::vector<CaptureConfig> get_capture_configs(Device, int) override {
    std::vector<CaptureConfig> configs;
    for (const bool guided : {false, true}) {
      CaptureConfig config;
      config.capture_graph_walk = "step";
      config.capture_key = CaptureKey(guided);
      config.capture_batch_sizes = {1, 2, 4};
      config.make_node_input = [guided](int64_t) {
        auto inputs = std::make_unique<NodeInputs>();
        inputs->tensor_inputs.set("x", one_value(0.0F));
        inputs->kwargs.set(kGuided, guided);
        inputs->input_seq_len = 1;
        return inputs;
      };
      configs.push_back(std::move(config));
    }
    return configs;
  }

  bool batches = true;
  bool reverses = false;  // says that the rows stand in the opposite order
  bool wrong_key = false;
  int num_single_checks = 0;
};

// Doubles through a region that is captured by itself; the rest of its forward stays eager.
class RegionNode : public NodeSubmodule {
 public:
  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view,
                                             const CurrentForwardPassInfo&,
                                             const NamedTensors& inputs,
                                             const PrepareContext&) override {
    auto prepared = std::make_unique<NodeInputs>();
    prepared->tensor_inputs.set("x", inputs.tensor("x"));
    prepared->input_seq_len = 1;
    return prepared;
  }

  NamedTensors forward(std::string_view,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override {
    PiecewiseRunner* region = engine_inputs.piecewise_runners.front();
    EXPECT_EQ(region->label(), "double");
    EXPECT_TRUE(region->can_run(1));
    EXPECT_FALSE(region->can_run(3));
    const std::vector<int64_t> lens(engine_inputs.request_ids.size(), 1);
    const NamedTensors out = region->run(
        {{"x", {args.tensors.tensor("x").view({1, 1})}}}, engine_inputs.request_ids, lens);
    ++num_runs;
    return {{"out", {out.tensor("y").view({1})}}};
  }

  std::vector<PiecewiseConfig> get_piecewise_capture_configs(Device, DType, int) override {
    PiecewiseConfig config;
    config.label = "double";
    config.capture_batch_sizes = {1, 2};
    config.make_static_inputs = [](int batch_size, int64_t) {
      return NamedTensors{{"x", {Tensor::zeros({batch_size, 1}, DType::kF32)}}};
    };
    config.capture_fn = [](const PiecewiseCallInputs& call) {
      return NamedTensors{{"y", {scaled(call.stream, call.tensors.tensor("x"), 2.0F)}}};
    };
    return {config};
  }

  int num_runs = 0;
};

class ContractModel : public Model {
 public:
  const ModelDescription& description() const override { return description_; }

  graph::ModelGraph get_graph_walk_graphs() const override {
    using namespace graph;  // NOLINT: the words of a declaration
    return {.walks = {
                walk("step",
                     {"x"},
                     node("scale").needs({"x"}).makes(edge("out").to_client(Modality::kTensor))),
                walk("region",
                     {"x"},
                     node("region").needs({"x"}).makes(edge("out").to_client(Modality::kTensor)))}};
  }

  std::vector<NodeResourceSpec> get_node_resources() const override { return {}; }

  std::unique_ptr<NodeSubmodule> get_submodule(std::string_view node, const LoadContext&) override {
    if (node == "region") {
      auto made = std::make_unique<RegionNode>();
      region = made.get();
      return made;
    }
    auto made = std::make_unique<ScaleNode>();
    scale = made.get();
    return made;
  }

  std::vector<MemoryItem> memory_plan(const std::vector<std::string>&,
                                      const LoadContext&) const override {
    return {};
  }

  PreparedRequest process_prompt(const ModelRequest&) const override { return {}; }

  ForwardPassArgs get_initial_forward_pass_args(RequestProgress&) const override { return {}; }

  ForwardPassArgs get_partition_forward_pass_args(RequestProgress&) const override { return {}; }

  std::unique_ptr<OutputStream> make_output_stream(const PreparedRequest&) const override {
    return nullptr;
  }

  ScaleNode* scale = nullptr;
  RegionNode* region = nullptr;

 private:
  ModelDescription description_;
};

class EngineTest : public ::testing::Test {
 protected:
  void start(bool graph_capture) {
    EngineOptions options;
    options.graph_capture = graph_capture;
    options.require_captures = graph_capture;
    engine_ = std::make_unique<Engine>(model_, std::vector<std::string>(), stream_, pool_, options);
    engine_->warmup();
  }

  // One step over fresh requests with these values.
  StepBatch run(const std::vector<float>& values,
                std::string_view walk = "step",
                std::string_view node = "scale",
                bool guided = false) {
    StepBatch batch;
    batch.node = node;
    batch.graph_walk = walk;
    infos_.clear();
    infos_.resize(values.size());
    for (size_t index = 0; index < values.size(); ++index) {
      const auto handle = engine_->try_ingest_request({});
      handles_.push_back(*handle);
      infos_[index].handle = *handle;
      infos_[index].graph_walk = walk;
      infos_[index].requires_cfg = guided;
      infos_[index].values.set("quiet", values[index] == 7.0F);
      BatchRow row;
      row.request = *handle;
      row.info = &infos_[index];
      row.inputs.set("x", one_value(values[index]));
      batch.rows.push_back(std::move(row));
    }
    engine_->execute(batch);
    return batch;
  }

  void remove_all() {
    for (const RequestHandle handle : handles_) {
      engine_->remove_request(handle);
    }
    handles_.clear();
  }

  static float value_of(const BatchRow& row, std::string_view name = "out") {
    return *row.outputs.tensor(name).data<float>();
  }

  ThreadPool pool_{1};
  CpuStream stream_{pool_};
  ContractModel model_;
  std::unique_ptr<Engine> engine_;
  std::vector<CurrentForwardPassInfo> infos_;
  std::vector<RequestHandle> handles_;
};

TEST_F(EngineTest, RowsGetTheirOwnCapturedAndEager) {
  for (const bool graph_capture : {true, false}) {
    start(graph_capture);
    for (const bool guided : {false, true}) {
      for (const size_t count : {1U, 2U, 3U, 4U}) {
        std::vector<float> values = {1, 7, 3, 4};
        values.resize(count);
        const StepBatch batch = run(values, "step", "scale", guided);
        EXPECT_EQ(batch.num_captured_steps, graph_capture ? 1 : 0);
        EXPECT_EQ(batch.num_eager_steps, graph_capture ? 0 : 1);
        for (size_t row = 0; row < count; ++row) {
          ASSERT_EQ(batch.rows[row].status, RowStatus::kDone) << batch.rows[row].error_message;
          const float want = values[row] * (guided ? 3.0F : 2.0F);
          EXPECT_EQ(value_of(batch.rows[row]), want);
          EXPECT_EQ(batch.rows[row].outputs.contains("copy"), values[row] != 7.0F);
          EXPECT_EQ(batch.rows[row].stopped_loops.size(), want > 10.0F ? 1U : 0U);
          EXPECT_FALSE(batch.rows[row].outputs.contains("y"));
        }
      }
    }
    remove_all();
    EXPECT_EQ(model_.scale->num_request_states(), 0U);
    EXPECT_EQ(engine_->stats().num_open_requests, 0);
  }
}

TEST_F(EngineTest, RowsSayWhoseTheyAre) {
  start(false);
  model_.scale->reverses = true;
  const StepBatch batch = run({1, 2, 3});
  EXPECT_EQ(value_of(batch.rows[0]), 6.0F);
  EXPECT_EQ(value_of(batch.rows[1]), 4.0F);
  EXPECT_EQ(value_of(batch.rows[2]), 2.0F);
}

TEST_F(EngineTest, ABatchLargerThanEveryCaptureIsNotPlanned) {
  start(true);
  EXPECT_EQ(engine_->max_batch_size("scale", "step"), 4);
  start(false);
  EXPECT_EQ(engine_->max_batch_size("scale", "step"), 8);
}

TEST_F(EngineTest, VetoesAndFailuresAreTheRowsOwn) {
  start(true);
  const StepBatch batch = run({1, -1, 99, 4});
  EXPECT_EQ(batch.rows[0].status, RowStatus::kDone);
  EXPECT_EQ(value_of(batch.rows[0]), 2.0F);
  EXPECT_EQ(batch.rows[1].status, RowStatus::kVetoed);
  EXPECT_EQ(batch.rows[2].status, RowStatus::kFailed);
  EXPECT_EQ(batch.rows[2].error_code, ErrorCode::kInvalidArgument);
  EXPECT_NE(batch.rows[2].error_message.find("99 is not taken"), std::string::npos);
  EXPECT_EQ(value_of(batch.rows[3]), 8.0F);
  EXPECT_EQ(engine_->stats().num_failed_rows, 1);
}

TEST_F(EngineTest, WithoutBatchingEachRowRunsAlone) {
  start(false);
  model_.scale->batches = false;
  const StepBatch batch = run({1, 2, 3});
  EXPECT_EQ(batch.num_eager_steps, 3);
  EXPECT_EQ(model_.scale->num_single_checks, 3);
  EXPECT_EQ(value_of(batch.rows[2]), 6.0F);
}

TEST_F(EngineTest, ADeclaredKeyThatIsNotTheLeasesFailsTheStep) {
  start(true);
  model_.scale->wrong_key = true;
  const StepBatch batch = run({1});
  ASSERT_EQ(batch.rows[0].status, RowStatus::kFailed);
  EXPECT_NE(batch.rows[0].error_message.find("declares capture key"), std::string::npos);
  model_.scale->wrong_key = false;
  EXPECT_EQ(run({2}).rows[0].status, RowStatus::kDone);
}

TEST_F(EngineTest, ARegionIsCapturedByItself) {
  start(true);
  for (const float value : {3.0F, 5.0F}) {
    const StepBatch batch = run({value}, "region", "region");
    ASSERT_EQ(batch.rows[0].status, RowStatus::kDone) << batch.rows[0].error_message;
    EXPECT_EQ(value_of(batch.rows[0]), 2 * value);
  }
  EXPECT_EQ(model_.region->num_runs, 2);
}

TEST(NodeInputs, ClonesHaveTensorsOfTheirOwn) {
  ARNodeInputs inputs;
  inputs.tensor_inputs.set("x", one_value(1));
  inputs.input_ids = Tensor::from(std::vector<int32_t>{4, 5}, {2});
  inputs.custom_pos_ids = Tensor::from(std::vector<int32_t>{0, 1}, {2});
  inputs.input_seq_len = 2;
  const auto copy = inputs.clone();
  inputs.tensor_inputs.tensor("x").data<float>()[0] = 2;
  inputs.input_ids.data<int32_t>()[0] = 9;
  const auto& own = dynamic_cast<const ARNodeInputs&>(*copy);
  EXPECT_EQ(*own.tensor_inputs.tensor("x").data<float>(), 1.0F);
  EXPECT_EQ(own.input_ids.data<int32_t>()[0], 4);
  EXPECT_EQ(own.input_seq_len, 2);
}

TEST(ARNodeInputs, CollateJoinsStacksOrLists) {
  ARNodeInputs a;
  a.input_ids = Tensor::from(std::vector<int32_t>{1, 2}, {2});
  a.input_seq_len = 2;
  ARNodeInputs b;
  b.input_ids = Tensor::from(std::vector<int32_t>{3, 4}, {2});
  b.input_seq_len = 2;
  const std::vector<const ARNodeInputs*> both = {&a, &b};
  const CollatedInputs list = ARNodeInputs::collate(both);
  EXPECT_EQ(list.input_ids.size(), 2U);
  EXPECT_EQ(list.total_seq_len, 4);
  EXPECT_FALSE(list.joined_input_ids.defined());
  const CollatedInputs cat = ARNodeInputs::collate(both, StackingMethod::kCat);
  EXPECT_EQ(cat.joined_input_ids.to_ints(), (std::vector<int64_t>{1, 2, 3, 4}));
  const CollatedInputs stack = ARNodeInputs::collate(both, StackingMethod::kStack);
  EXPECT_EQ(stack.joined_input_ids.shape(), (Shape{2, 2}));
  ARNodeInputs without;
  without.input_embeds = Tensor::zeros({1, 3}, DType::kF32);
  const std::vector<const ARNodeInputs*> mixed = {&a, &without};
  EXPECT_THROW(ARNodeInputs::collate(mixed), Error);
}

TEST(NamedTensors, ClearedOnesAreFilledAgain) {
  NamedTensors tensors{{"a", {one_value(1)}}, {"b", {one_value(2)}}};
  const TensorList* memory = tensors.find("a");
  EXPECT_TRUE(tensors.erase("a"));
  EXPECT_FALSE(tensors.erase("a"));
  EXPECT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors.begin()->first, "b");
  tensors.clear();
  EXPECT_TRUE(tensors.empty());
  EXPECT_EQ(tensors.find("b"), nullptr);
  EXPECT_THROW(tensors.at("b"), Error);
  tensors.set("c", one_value(3));
  EXPECT_EQ(tensors.find("c"), memory);
  EXPECT_EQ(tensors.tensor("c").data<float>()[0], 3.0F);
  const NamedTensors copy = tensors;
  const NamedTensors moved = std::move(tensors);
  EXPECT_EQ(copy.size(), 1U);
  EXPECT_EQ(moved.tensor("c").data<float>(), copy.tensor("c").data<float>());
}

TEST(CaptureConfig, SaysWhichBatchesFillABucket) {
  CaptureConfig config;
  EXPECT_TRUE(config.fills(1, 16));
  EXPECT_FALSE(config.fills(17, 16));
  config.least_fill = 0.75;
  EXPECT_TRUE(config.fills(48, 64));
  EXPECT_FALSE(config.fills(47, 64));
}

TEST(BatchedModelOutput, UpdatesPopsAndClones) {
  BatchedModelOutput output =
      BatchedModelOutput::coerce({{1, {{"a", {one_value(1)}}}}, {2, {{"a", {one_value(2)}}}}});
  BatchedModelOutput more = BatchedModelOutput::coerce({{2, {{"b", {one_value(3)}}}}});
  more.check_stop_buffers.emplace().set("stop", Tensor::from(std::vector<float>{1, 2, 3}, {3}));
  more.row_outputs.emplace().set("rows", Tensor::from(std::vector<float>{1, 2, 3}, {3}));
  output.update(std::move(more));
  EXPECT_EQ(output.get(7), nullptr);
  EXPECT_EQ(output.get(2)->size(), 2U);
  const auto stop = output.clone_check_stop_buffers();
  const NamedTensors rows = output.clone_row_outputs(2);
  output.get_check_stop_input()->tensor("stop").data<float>()[0] = 50;
  output.row_outputs->tensor("rows").data<float>()[0] = 50;
  EXPECT_EQ(stop->tensor("stop").data<float>()[0], 1.0F);
  EXPECT_EQ(rows.tensor("rows").to_floats(), (std::vector<float>{1, 2}));
  EXPECT_EQ(output.pop(2).size(), 2U);
  EXPECT_EQ(output.get(2), nullptr);
  EXPECT_TRUE(output.pop(2).empty());
}

TEST(PerRequestState, AKeyLivesInOnePlace) {
  PerRequestState state;
  state.add("k", 5);
  EXPECT_EQ(state.kwargs.at<int>("k"), 5);
  state.add("k", one_value(1));
  EXPECT_FALSE(state.kwargs.contains("k"));
  EXPECT_TRUE(state.tensor("k").defined());
  state.add("k", std::string("text"));
  EXPECT_FALSE(state.tensor("k").defined());
  state.remove("k");
  EXPECT_FALSE(state.kwargs.contains("k"));
}

// The defaults of a node that batches, cuts and captures nothing.
class PlainNode : public ARNodeSubmodule {
 public:
  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view,
                                             const CurrentForwardPassInfo&,
                                             const NamedTensors&,
                                             const PrepareContext&) override {
    return nullptr;
  }

  ForwardArgs preprocess(std::string_view,
                         const ModelInputsFromEngine&,
                         std::span<NodeInputs* const>) override {
    return {};
  }

  NamedTensors forward(std::string_view, const ModelInputsFromEngine&, ForwardArgs&) override {
    return {};
  }
};

TEST(ARNodeSubmodule, CutsTokensAndRefusesWhatItDoesNotKnow) {
  PlainNode node;
  const CurrentForwardPassInfo info;
  ARNodeInputs inputs;
  inputs.input_ids = Tensor::from(std::vector<int32_t>{1, 2, 3, 4}, {4});
  inputs.input_embeds = Tensor::zeros({4, 2}, DType::kF32);
  inputs.custom_pos_ids = Tensor::from(std::vector<int32_t>{0, 1, 2, 3}, {4});
  inputs.input_seq_len = 4;
  const auto cut = node.split_inputs("prefill", info, inputs, 1, 3);
  const auto& chunk = dynamic_cast<const ARNodeInputs&>(*cut);
  EXPECT_EQ(chunk.input_seq_len, 2);
  EXPECT_EQ(chunk.input_ids.to_ints(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(chunk.input_embeds.dim(0), 2);
  EXPECT_EQ(std::get<Tensor>(chunk.custom_pos_ids).to_ints(), (std::vector<int64_t>{1, 2}));
  inputs.kwargs.set("image", 1);
  EXPECT_THROW(node.split_inputs("prefill", info, inputs, 1, 3), Error);

  EXPECT_FALSE(node.supports_chunked_prefill("prefill"));
  EXPECT_FALSE(node.split_batches_by_capture_key("prefill"));
  EXPECT_EQ(node.max_batch_size("prefill"), 1);
  EXPECT_TRUE(node.get_capture_configs({}, 1).empty());
  EXPECT_TRUE(node.get_piecewise_capture_configs({}, DType::kF32, 1).empty());
  EXPECT_FALSE(node.get_activation_dtype().has_value());
}

TEST(InputMetadata, FindsChunksAndLoops) {
  InputMetadata metadata;
  metadata.stream_chunks.emplace_back("audio", StreamChunkInfo{.chunk_index = 2, .is_final = true});
  metadata.dynamic_loop_iter_counts.emplace_back("decode_loop", 5);
  ASSERT_NE(metadata.find_chunk("audio"), nullptr);
  EXPECT_TRUE(metadata.find_chunk("audio")->is_final);
  EXPECT_EQ(metadata.find_chunk("text"), nullptr);
  EXPECT_EQ(metadata.loop_iter("decode_loop"), 5);
  EXPECT_EQ(metadata.loop_iter("other"), 0);
}

}  // namespace
}  // namespace mstar

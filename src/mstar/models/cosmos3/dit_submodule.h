// The "dit" node: text into the cache once a request, then one denoising step a loop iteration,
// several requests of any sizes and both guidance branches in one pass. Executor thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/engine/submodule.h"
#include "mstar/models/cosmos3/denoise.h"
#include "mstar/models/cosmos3/gen_request.h"
#include "mstar/models/cosmos3/transformer.h"
#include "mstar/resources/kv_cache.h"

namespace mstar::cosmos3 {

// Cache labels, in the order of Model::get_labels().
inline constexpr LabelId kCondLabel = kMainLabel;
inline constexpr LabelId kUncondLabel = 1;
inline constexpr LabelId kBothLabel = 2;  // both branches packed into one plan

// What a step's declaration needs of a request and cannot read off the batch. Depends on the
// request and its step index alone.
struct GenStepInfo {
  bool cfg = false;                            // the request has two branches
  bool cfg_active = false;                     // and this step runs both
  std::optional<CaptureKey> capture_key = {};  // nothing: run eagerly
  bool commit = false;                         // the step's keys and values are kept
  std::map<std::string, RetentionPolicy> retention = {};
};

// Which denoising steps are captured: pictures of these sizes, so many at a time.
struct DitCaptures {
  struct Size {
    int64_t latent_height = 0;
    int64_t latent_width = 0;
  };

  std::vector<Size> sizes = {};
  std::vector<int> batch_sizes = {1};

  // Tokens of the largest captured step in one guidance branch of all its rows; 0: nothing is.
  int64_t most_tokens(int64_t patch) const;

  // Cache pages its two branches write fresh rows to while it runs.
  int64_t num_pages(int64_t patch, int64_t page_size) const;
};

class Cosmos3DiTSubmodule : public NodeSubmodule {
 public:
  // `temporal_factor`: pixel frames behind a latent frame. Rows are f32 or bf16; latents,
  // velocities and solvers f32 always.
  Cosmos3DiTSubmodule(std::shared_ptr<const Transformer> transformer,
                      int64_t temporal_factor,
                      DType activation_dtype,
                      DitCaptures captures = {});

  void bind_node_resources(const NodeResources& resources) override;

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override;

  bool can_batch(const ExecutingBatch& batch, std::span<NodeInputs* const> inputs) override;
  int max_batch_size(std::string_view graph_walk) const override;

  // The latent size of a picture made with guidance, whose step can be captured; nothing for
  // everything else, and for batches of several sizes.
  std::optional<CaptureKey> capture_key(
      std::string_view graph_walk,
      std::span<const CurrentForwardPassInfo* const> infos) const override;

  // Not for steps outside the guidance interval, which are half as long, nor while the cache has no
  // room for fresh rows.
  bool can_use_graph_capture(const ExecutingBatch& batch,
                             std::span<NodeInputs* const> inputs) override;

  // One lazy bucket a size and number of rows.
  std::vector<CaptureConfig> get_capture_configs(Device device, int tp_world_size) override;

  bool declare_step(std::string_view graph_walk,
                    std::span<const RequestHandle> request_ids,
                    std::span<const NodeInputs* const> inputs,
                    const SlotLease* lease,
                    std::span<const SlotLease* const> piecewise_leases,
                    SubmoduleStep& step) override;

  ForwardArgs preprocess(std::string_view graph_walk,
                         const ModelInputsFromEngine& engine_inputs,
                         std::span<NodeInputs* const> inputs) override;

  NamedTensors forward(std::string_view graph_walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override;

  BatchedModelOutput forward_batched(std::string_view graph_walk,
                                     const ModelInputsFromEngine& engine_inputs,
                                     ForwardArgs& args) override;

  // Ends the walk's loop with the request's own last step.
  void check_stop(const CurrentForwardPassInfo& info,
                  const NamedTensors& outputs,
                  const InputMetadata& metadata,
                  std::vector<std::string_view>& stopped_loops) override;

  // Ends what a captured step cannot hold: guidance and the solver. Then fails a request whose
  // samples are not finite any more, naming node and step.
  void postprocess(const CurrentForwardPassInfo& info,
                   NamedTensors& outputs,
                   const NodeInputs* inputs) override;

  const Transformer& transformer() const { return *transformer_; }

 private:
  void prefill(const ModelInputsFromEngine& engine_inputs, ForwardArgs& args);
  std::unique_ptr<NodeInputs> prepare_window(const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context);
  NamedTensors commit_window(const ModelInputsFromEngine& engine_inputs, ForwardArgs& args);
  static void note_window(PerRequestState& state, NamedTensors& outputs);
  std::vector<NamedTensors> denoise(const ModelInputsFromEngine& engine_inputs, ForwardArgs& args);
  BatchedModelOutput velocities(const ModelInputsFromEngine& engine_inputs, ForwardArgs& args);
  void add_captured_inputs(const ModelInputsFromEngine& engine_inputs,
                           std::span<NodeInputs* const> inputs,
                           ForwardArgs& args);
  static NamedTensors advance(Stream& stream,
                              const CurrentForwardPassInfo& info,
                              Denoiser& denoiser,
                              const GenState& velocity);

  std::shared_ptr<const Transformer> transformer_;
  int64_t temporal_factor_;
  DType activation_dtype_;
  DitCaptures captures_;
  ResourceId kv_id_ = -1;
  ResourceId attention_id_ = -1;
  ResourceId dense_id_ = -1;
  ResourceId commit_id_ = -1;
  KvCache* kv_ = nullptr;
  AttentionResource* attention_ = nullptr;  // text rows among themselves
  AttentionResource* dense_ = nullptr;      // media rows over [cache | themselves]
  AttentionResource* commit_ = nullptr;     // the same, written to the cache
};

// Name of the loop in a generation walk.
std::string_view loop_of(std::string_view graph_walk);

}  // namespace mstar::cosmos3

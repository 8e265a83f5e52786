// Cosmos3 as a served model: one checkpoint folder, its walks (walks.h), and what clients may ask.
// A checkpoint with a reasoner also answers (reasoner_front_end.h). A request that asks for text
// and for media reasons first; its answer is the prompt of the generation that follows.
#pragma once

#include <memory>
#include <string>

#include "mstar/engine/model.h"
#include "mstar/models/cosmos3/config.h"
#include "mstar/models/cosmos3/gen_request.h"
#include "mstar/models/cosmos3/prompt.h"
#include "mstar/models/cosmos3/reasoner_front_end.h"
#include "mstar/models/cosmos3/request_defaults.h"
#include "mstar/models/cosmos3/serving_options.h"
#include "mstar/models/cosmos3/transformer.h"
#include "mstar/models/cosmos3/vae.h"

namespace mstar::cosmos3 {

// const after open(), thread-safe.
class Cosmos3Model : public Model {
 public:
  // `path` is the checkpoint folder. Reads configuration and tokenizer; weights come with
  // get_submodule(). `model_kwargs`: serving_options.h. Throws Error(kInvalidArgument) naming file
  // and field.
  static std::unique_ptr<Model> open(const std::string& path, const Json& model_kwargs);

  static bool recognizes(const std::string& path) { return Cosmos3Config::recognizes(path); }

  const ModelDescription& description() const override { return description_; }

  graph::ModelGraph get_graph_walk_graphs() const override;
  std::vector<NodeResourceSpec> get_node_resources() const override;

  // bf16 for models of a published size where the processor multiplies bf16 (docs/decisions).
  DType default_activation_dtype() const override;

  std::vector<std::string> get_labels() const override;

  std::unique_ptr<NodeSubmodule> get_submodule(std::string_view node,
                                               const LoadContext& context) override;
  std::vector<MemoryItem> memory_plan(const std::vector<std::string>& nodes,
                                      const LoadContext& context) const override;
  PreparedRequest process_prompt(const ModelRequest& request) const override;
  ForwardPassArgs get_initial_forward_pass_args(RequestProgress& progress) const override;
  ForwardPassArgs get_partition_forward_pass_args(RequestProgress& progress) const override;
  std::unique_ptr<OutputStream> make_output_stream(const PreparedRequest& request) const override;
  std::vector<int32_t> tokenize(std::string_view text, bool add_special_tokens) const override;

 private:
  Cosmos3Model() = default;

  void describe(const Json& model_kwargs);
  std::shared_ptr<const Transformer> share_transformer(const LoadContext& context);
  std::shared_ptr<const VaeDecoder> load_vae_decoder(const LoadContext& context);
  WindowSessionPtr find_session(const Json& parameters) const;
  bool serves(Modality modality) const;
  DitCaptures captures() const;
  int64_t activation_bytes(const std::vector<std::string>& nodes, DType dtype) const;
  void prepare_generation(const ModelRequest& request,
                          Modality output,
                          const Json& parameters,
                          PreparedRequest& out) const;
  ForwardPassArgs start_generation(RequestProgress& progress) const;

  Cosmos3Config config_;
  PromptEncoder prompts_;
  RequestDefaults defaults_;
  std::unique_ptr<ReasonerFrontEnd> reasoner_;  // null: a generator alone
  ServingOptions options_;
  std::shared_ptr<WindowSessions> sessions_;
  // One copy for the nodes that share them; load time only.
  std::weak_ptr<const Transformer> transformer_;
  std::weak_ptr<const VaeDecoder> vae_decoder_;
  ModelDescription description_;
};

}  // namespace mstar::cosmos3

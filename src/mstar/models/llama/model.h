#pragma once

#include <memory>
#include <string>

#include "mstar/checkpoint/checkpoint_reader.h"
#include "mstar/engine/model.h"
#include "mstar/models/common/text_front_end.h"
#include "mstar/models/llama/config.h"
#include "mstar/text/constrain/token_guide.h"

namespace mstar::llama {

// A language model served from a Hugging Face folder or a GGUF file: text in, text out.
//   prefill: LLM(text_inputs) -> new_token to the client, kept for the next walk
//   decode:  decode_loop[ LLM(text_inputs) -> new_token to the client and back ]
class LlamaModel : public Model {
 public:
  // `path` is a folder with config.json, a .gguf file, or a folder with one. Reads configuration
  // and tokenizer; weights come with get_submodule(). `model_kwargs` are the deployment's
  // (max_model_len). Throws Error(kInvalidArgument) naming file and field.
  static std::unique_ptr<Model> open(const std::string& path, const Json& model_kwargs);

  // Whether open() would know this path.
  static bool recognizes(const std::string& path);

  const ModelDescription& description() const override { return description_; }

  graph::ModelGraph get_graph_walk_graphs() const override;
  std::vector<NodeResourceSpec> get_node_resources() const override;
  DType default_activation_dtype() const override;
  std::unique_ptr<NodeSubmodule> get_submodule(std::string_view node,
                                               const LoadContext& context) override;
  void check_weights(const LoadContext& context) override;
  std::vector<MemoryItem> memory_plan(const std::vector<std::string>& nodes,
                                      const LoadContext& context) const override;
  PreparedRequest process_prompt(const ModelRequest& request) const override;
  ForwardPassArgs get_initial_forward_pass_args(RequestProgress& progress) const override;
  ForwardPassArgs get_partition_forward_pass_args(RequestProgress& progress) const override;
  std::unique_ptr<OutputStream> make_output_stream(const PreparedRequest& request) const override;
  std::vector<int32_t> tokenize(std::string_view text, bool add_special_tokens) const override;
  std::string detokenize(const std::vector<int32_t>& ids) const override;
  std::string prompt_text(const std::vector<int32_t>& ids) const override;

 private:
  LlamaModel() = default;

  void describe(const Json& model_kwargs);

  std::string path_;
  std::unique_ptr<CheckpointReader> reader_;
  LlamaConfig config_;
  TextFrontEnd text_;
  std::vector<int32_t> stop_token_ids_;
  std::unique_ptr<TokenGrammars> grammars_;  // thread-safe
  SamplingParams default_sampling_;
  int64_t max_model_len_ = 0;
  ModelDescription description_;
};

}  // namespace mstar::llama

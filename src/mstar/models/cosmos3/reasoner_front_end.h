// What the served model does about conversations: parameters, walks, resources, a client's messages
// and media as tensors, and which walk comes next. The generator's side is gen_request.h.
//   reasoner_prefill         reasoner(text_inputs) -> first token
//   reasoner_prefill_vision  vision_encoder(pixel_values) -> reasoner(text_inputs, vision_embeds)
//   reasoner_decode          loop[ reasoner(text_inputs) -> token to the client and back ]
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/models/cosmos3/config.h"
#include "mstar/models/cosmos3/prompt.h"
#include "mstar/models/cosmos3/reasoner_prompt.h"
#include "mstar/text/constrain/token_guide.h"

namespace mstar::cosmos3 {

// const after construction, thread-safe.
class ReasonerFrontEnd {
 public:
  // Both outlive this. `max_model_len`: tokens of a prompt and its answer together. Throws
  // Error(kInvalidArgument) when the tokenizer does not fit the configuration.
  ReasonerFrontEnd(const Cosmos3Config& config,
                   const PromptEncoder& prompts,
                   int64_t max_model_len,
                   int64_t max_concurrent_requests);

  static std::vector<RequestParameter> parameters();

  void add_walks(graph::ModelGraph& graph) const;

  // The reasoner's own, and its share of the generator's keys and values "kv".
  void add_resources(std::vector<NodeResourceSpec>& resources) const;

  // Renders, tokenizes and prepares media. Fills what the first walk and the output need; leaves
  // what belongs to a generation alone. Throws Error(kInvalidArgument) for what cannot be read.
  void prepare(const ModelRequest& request, const Json& parameters, PreparedRequest& out) const;

  static bool is_conversation(const PreparedRequest& request);

  ForwardPassArgs first_walk(RequestProgress& progress) const;

  // The walk after one of the reasoner's own; request_done when the answer is complete.
  ForwardPassArgs next_walk(RequestProgress& progress) const;

  // The answer as a prompt for a generation: without special tokens, without what was thought
  // before it, cut at the first stop string, without blanks around it.
  std::string answer_of(const RequestProgress& progress) const;

  std::unique_ptr<OutputStream> make_output_stream(const PreparedRequest& request) const;

 private:
  std::vector<VisionItem> read_media(const ModelRequest& request, const Json& parameters) const;

  const Cosmos3Config& config_;
  const TextFrontEnd& text_;
  const std::unique_ptr<TokenGrammars> grammars_;  // thread-safe
  ReasonerPromptEncoder encoder_;
  int64_t max_model_len_;
  int64_t max_concurrent_requests_;
};

}  // namespace mstar::cosmos3

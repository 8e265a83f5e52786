#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/checkpoint/gguf.h"
#include "mstar/engine/model.h"
#include "mstar/text/chat_template.h"
#include "mstar/text/detokenizer.h"
#include "mstar/text/stop_matcher.h"
#include "mstar/text/tokenizer.h"
#include "mstar/text/tokenizer_config.h"

namespace mstar {

// What every model that reads and writes text has: tokenizer, chat template, stop tokens.
// Immutable once loaded, thread-safe.
struct TextFrontEnd {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenizerConfig config;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the checkpoint has none
  bool knows_developer = false;  // the template has the role; else it is given the system's

  // tokenizer.json and its companions in `folder`. Throws Error(kNotFound) without a tokenizer.
  static TextFrontEnd load(const std::string& folder);

  // The vocabulary and template inside a GGUF file.
  static TextFrontEnd from_gguf(const GgufFile& file);

  // Messages rendered by the chat template (`variables`: what else it may read, enable_thinking
  // among them), or joined by line breaks where there is none. Media parts become the text that
  // `media_text` gives for their index; text from the client never becomes a special token.
  std::vector<int32_t> encode_chat(const std::vector<ChatMessage>& messages,
                                   const Json& variables) const;

  // The same as text, with marks of what came from the client. Throws Error(kUnsupported) without a
  // template.
  MarkedText render_chat(const std::vector<ChatMessage>& messages, const Json& variables) const;

  // Plain text with the tokenizer's own begin token, special tokens as text.
  std::vector<int32_t> encode_text(std::string_view text) const;
};

// The sampling parameters of language models, with the OpenAI API's names. `defaults` come from
// the checkpoint's generation_config.json.
std::vector<RequestParameter> language_parameters(const SamplingParams& defaults,
                                                  int64_t default_max_tokens);

// What a resolved parameter object says.
SamplingParams sampling_params(const Json& parameters);
std::vector<std::string> stop_strings(const Json& parameters);

// The request's seed: `seed` when given, else one made from the request's id, so that it can be
// told afterwards (FNV-1a).
uint64_t request_seed(const Json& parameters, std::string_view request_id);

// Tokens to text: decodes, stops at stop strings, says why the text ended. One request.
class TextOutputStream : public OutputStream {
 public:
  struct Config {
    std::vector<int32_t> stop_token_ids;  // end the text and are not shown
    std::vector<std::string> stop_strings;
    int64_t max_tokens = 0;
    bool skip_special_tokens = true;
  };

  // `prompt`: what the text goes on from (Detokenizer::follow); the answers that it does not belong
  // to, such as what was heard, have none.
  TextOutputStream(std::shared_ptr<const Tokenizer> tokenizer,
                   Config config,
                   std::span<const int32_t> prompt = {});

  // `tensors` hold token ids, i32 of any shape; on kLogprobsEdge what is told of the next one.
  std::vector<OutputChunk> write(Modality modality,
                                 std::string_view edge,
                                 const TensorList& tensors) override;

  std::vector<OutputChunk> finish() override;

  bool is_finished() const override { return !finish_reason_.empty(); }

 private:
  void keep_logprobs(const TensorList& tensors);

  Detokenizer detokenizer_;
  StopMatcher stops_;
  Config config_;
  int64_t num_tokens_ = 0;
  std::string finish_reason_;
  std::vector<TokenLogprob> logprobs_;  // of tokens that are on their way
};

}  // namespace mstar

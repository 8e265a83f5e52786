#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"
#include "mstar/engine/model.h"
#include "mstar/media/audio.h"
#include "mstar/models/common/text_front_end.h"
#include "mstar/models/whisper/config.h"

namespace mstar::whisper {

// Speech to text from a Hugging Face folder: sound in, text out, window after window.
//   prefill:          audio_encoder -> decoder(prompt) -> new_token to the client, kept
//   decode:           decode_loop[ decoder(text_inputs) -> new_token to the client and back ]
// Where the client does not say which of several languages it is:
//   detect_language:  audio_encoder -> decoder(start of the prompt) -> language_token, kept
//   prefill_text:     decoder(rest of the prompt) -> new_token to the client, kept; then decode
class WhisperModel : public Model {
 public:
  // `path` is a folder with config.json, a tokenizer and weights. Reads configuration and
  // tokenizer; weights come with get_submodule(). Throws Error(kInvalidArgument) naming file and
  // field.
  static std::unique_ptr<Model> open(const std::string& path, const Json& model_kwargs);

  // Whether open() would know this path.
  static bool recognizes(const std::string& path);

  const ModelDescription& description() const override { return description_; }

  graph::ModelGraph get_graph_walk_graphs() const override;
  std::vector<NodeResourceSpec> get_node_resources() const override;
  std::unique_ptr<NodeSubmodule> get_submodule(std::string_view node,
                                               const LoadContext& context) override;
  void check_weights(const LoadContext& context) override;
  std::vector<MemoryItem> memory_plan(const std::vector<std::string>& nodes,
                                      const LoadContext& context) const override;

  // One file of sound, and optionally text that comes before it. Sound longer than a window is
  // refused here and cut into windows by process_parts, whose answers tell "start" and "end".
  PreparedRequest process_prompt(const ModelRequest& request) const override;
  std::vector<PreparedRequest> process_parts(const ModelRequest& request) const override;
  ForwardPassArgs get_initial_forward_pass_args(RequestProgress& progress) const override;
  ForwardPassArgs get_partition_forward_pass_args(RequestProgress& progress) const override;
  std::unique_ptr<OutputStream> make_output_stream(const PreparedRequest& request) const override;
  std::vector<int32_t> tokenize(std::string_view text, bool add_special_tokens) const override;
  std::string detokenize(const std::vector<int32_t>& ids) const override;

 private:
  // The tokens before the answer: `head`, the language where it must be heard first, `tail`.
  struct Prompt {
    std::vector<int32_t> head;
    std::vector<int32_t> tail;
    bool detects_language = false;

    int64_t num_tokens() const {
      return static_cast<int64_t>(head.size() + tail.size()) + (detects_language ? 1 : 0);
    }
  };

  WhisperModel(const std::string& path, const Json& model_kwargs);

  void describe();
  AudioClip read_sound(const ModelRequest& request, double max_seconds) const;
  PreparedRequest prepare(const ModelRequest& request,
                          std::span<const float> sound,
                          std::vector<int32_t> before) const;
  std::vector<int32_t> text_before(const ModelRequest& request) const;
  Prompt make_prompt(const Json& parameters, std::vector<int32_t> before) const;
  SamplingRequestConfig sampling_config(const Json& parameters, uint64_t seed) const;

  std::string path_;
  std::unique_ptr<CheckpointReader> reader_;
  WhisperConfig config_;
  GenerationConfig generation_;
  std::unique_ptr<LogMel> log_mel_;
  double max_audio_seconds_ = 1800.0;
  TextFrontEnd text_;
  ModelDescription description_;
};

}  // namespace mstar::whisper

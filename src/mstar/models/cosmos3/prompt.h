// Prompt text to token ids: optional sentences about size and length, the checkpoint's chat
// template, and the two tokens that end the text. Immutable once loaded, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mstar/models/common/text_front_end.h"

namespace mstar::cosmos3 {

struct PromptOptions {
  bool use_system_prompt = false;
  bool use_resolution_template = false;
  bool use_duration_template = false;  // videos only
  int64_t num_frames = 1;              // 1: an image
  double fps = 24.0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t max_sequence_length = 4096;  // tokens kept of the rendered prompt
};

class PromptEncoder {
 public:
  // The tokenizer in `folder`. Throws Error when it lacks a begin-of-vision or end token.
  static PromptEncoder load(const std::string& folder);

  // `negative`: the sentences say what not to make.
  std::vector<int32_t> encode(const std::string& text,
                              const PromptOptions& options,
                              bool negative) const;

  const TextFrontEnd& text() const { return text_; }

 private:
  TextFrontEnd text_;
  int32_t eos_id_ = 0;
  int32_t vision_start_id_ = 0;
};

}  // namespace mstar::cosmos3

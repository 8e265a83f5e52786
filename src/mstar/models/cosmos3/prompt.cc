#include "mstar/models/cosmos3/prompt.h"

#include <algorithm>
#include <cstdio>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar::cosmos3 {

namespace {

// A further sentence behind the prompt.
std::string append(std::string base, const std::string& sentence) {
  if (base.empty()) {
    return sentence;
  }
  while (base.ends_with('.')) {
    base.pop_back();
  }
  return str_cat(base, ". ", sentence);
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

int32_t require_token(const TextFrontEnd& text,
                      const std::string& token,
                      const std::string& where) {
  const auto id = text.tokenizer->find_token(token);
  if (token.empty() || !id) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", where, "] the tokenizer has no token \"", token, "\""));
  }
  return *id;
}

}  // namespace

PromptEncoder PromptEncoder::load(const std::string& folder) {
  PromptEncoder encoder;
  encoder.text_ = TextFrontEnd::load(folder);
  encoder.eos_id_ = require_token(encoder.text_, encoder.text_.config.eos_token, folder);
  encoder.vision_start_id_ = require_token(encoder.text_, "<|vision_start|>", folder);
  return encoder;
}

std::vector<int32_t> PromptEncoder::encode(const std::string& text,
                                           const PromptOptions& options,
                                           bool negative) const {
  const bool is_video = options.num_frames > 1;
  const char* maybe_not = negative ? "not " : "";
  std::string prompt = text;
  if (is_video && options.use_duration_template) {
    prompt = append(std::move(prompt),
                    str_cat("The video is ",
                            maybe_not,
                            fixed(static_cast<double>(options.num_frames) / options.fps, 1),
                            " seconds long and is ",
                            maybe_not,
                            "of ",
                            fixed(options.fps, 0),
                            " FPS."));
  }
  if (options.use_resolution_template) {
    prompt = append(std::move(prompt),
                    str_cat("This ",
                            is_video ? "video" : "image",
                            " is ",
                            maybe_not,
                            "of ",
                            options.height,
                            "x",
                            options.width,
                            " resolution."));
  }
  std::vector<ChatMessage> messages;
  if (options.use_system_prompt) {
    // The checkpoints were trained with this spelling.
    const char* system =
        is_video ? "You are a helpful assistant who will generate videos from a give prompt."
                 : "You are a helpful assistant who will generate images from a give prompt.";
    messages.push_back({"system", {{.text = system}}});
  }
  messages.push_back({"user", {{.text = prompt}}});
  std::vector<int32_t> ids = text_.encode_chat(messages, Json::object());
  const auto most = static_cast<size_t>(std::max<int64_t>(options.max_sequence_length, 1));
  if (ids.size() > most) {
    ids.resize(most);
  }
  ids.push_back(eos_id_);
  ids.push_back(vision_start_id_);
  return ids;
}

}  // namespace mstar::cosmos3

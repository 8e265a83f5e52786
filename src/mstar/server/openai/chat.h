#pragma once

#include "mstar/base/json.h"
#include "mstar/engine/model.h"
#include "mstar/server/media_access.h"
#include "mstar/server/openai/request.h"

namespace mstar {

// A chat completion as it is asked for.
struct ChatRequest {
  ModelRequest request;
  AnswerOptions answer;
};

// Reads the body of POST /v1/chat/completions. Keeps roles and turns; `content` is text or parts
// (text, image_url, video_url, input_audio). Throws Error naming the field.
ChatRequest parse_chat_request(const Json& body,
                               const ModelDescription& model,
                               int64_t max_choices,
                               const MediaAccess& media = {});

// {"prompt_tokens", "completion_tokens", "total_tokens"}.
Json usage_json(int64_t num_prompt_tokens, int64_t num_generated_tokens);

}  // namespace mstar

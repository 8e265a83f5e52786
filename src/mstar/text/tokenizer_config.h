#pragma once

// What a checkpoint says beside tokenizer.json: its chat template and the roles of its tokens.
// Plain data.

#include <string>
#include <utility>
#include <vector>

#include "mstar/base/json.h"

namespace mstar {

struct TokenizerConfig {
  // Texts of the tokens with a role, "" where the checkpoint has none.
  std::string bos_token;
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;

  // The chat template, "" when the checkpoint has none, and further ones by name ("tool_use").
  std::string chat_template;
  std::vector<std::pair<std::string, std::string>> named_templates;

  // Variables that templates may use: bos_token and the like, for ChatInput::tokens.
  Json variables = Json::object();

  // Reads tokenizer_config.json, special_tokens_map.json, chat_template.jinja and
  // chat_template.json in `folder`, as far as they are there. Throws Error(kInvalidArgument) when
  // one of them is not what it should be.
  static TokenizerConfig load(const std::string& folder);

  // The template to use when tools are given or not: "tool_use" if there is one, else the default.
  const std::string& template_for(bool with_tools) const;
};

}  // namespace mstar

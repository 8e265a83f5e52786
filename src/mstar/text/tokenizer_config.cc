#include "mstar/text/tokenizer_config.h"

#include <array>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"

namespace mstar {

namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

// A token is its text or an object that describes it.
std::string token_text(const Json& json) {
  if (json.is_string()) {
    return json.get_string();
  }
  const Json* content = json.find("content");
  return content != nullptr && content->is_string() ? content->get_string() : "";
}

void read_tokens(const Json& root, TokenizerConfig& config) {
  static constexpr std::array<std::string_view, 7> kRoles = {
      "bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"};
  for (const std::string_view role : kRoles) {
    const Json* value = root.find(role);
    const std::string text = value == nullptr ? "" : token_text(*value);
    if (text.empty()) {
      continue;
    }
    config.variables.set(role, Json(text));
    std::string* const member = role == "bos_token"   ? &config.bos_token
                                : role == "eos_token" ? &config.eos_token
                                : role == "pad_token" ? &config.pad_token
                                : role == "unk_token" ? &config.unk_token
                                                      : nullptr;
    if (member != nullptr) {
      *member = text;
    }
  }
}

// One template, or a list of templates with names.
void read_template(const Json* json, TokenizerConfig& config) {
  if (json == nullptr || json->is_null()) {
    return;
  }
  if (json->is_string()) {
    config.chat_template = json->get_string();
    return;
  }
  for (const Json& item : json->get_array()) {
    const std::string& name = item.at("name").get_string();
    const std::string& text = item.at("template").get_string();
    if (name == "default") {
      config.chat_template = text;
    } else {
      config.named_templates.emplace_back(name, text);
    }
  }
}

void read_json_file(const std::string& path, bool tokens, TokenizerConfig& config) {
  const auto text = read_text_file_if_there(path, kMaxConfigBytes);
  if (!text) {
    return;
  }
  const Json root = Json::parse(*text, path);
  try {
    if (tokens) {
      read_tokens(root, config);
    }
    read_template(root.find("chat_template"), config);
  } catch (const Error& error) {
    throw Error(error.code(), str_cat("[", path, "] ", error.what()));
  }
}

}  // namespace

TokenizerConfig TokenizerConfig::load(const std::string& folder) {
  TokenizerConfig config;
  read_json_file(folder + "/special_tokens_map.json", true, config);
  read_json_file(folder + "/tokenizer_config.json", true, config);
  read_json_file(folder + "/chat_template.json", false, config);
  if (auto text = read_text_file_if_there(folder + "/chat_template.jinja", kMaxTemplateBytes)) {
    config.chat_template = std::move(*text);
  }
  return config;
}

const std::string& TokenizerConfig::template_for(bool with_tools) const {
  for (const auto& [name, text] : named_templates) {
    if (with_tools && name == "tool_use") {
      return text;
    }
  }
  return chat_template;
}

}  // namespace mstar

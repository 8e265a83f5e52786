#include "mstar/text/post_processor.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr int kMaxDepth = 16;

[[noreturn]] void throw_bad(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[tokenizer.json post_processor] ", what));
}

// ids of a template's token, which its table names.
std::vector<int32_t> template_ids(const Json& table, const std::string& name) {
  const Json* entry = table.find(name);
  if (entry == nullptr) {
    throw_bad(str_cat("the template names \"", name, "\", special_tokens does not"));
  }
  std::vector<int32_t> ids;
  for (const Json& id : entry->at("ids").get_array()) {
    ids.push_back(static_cast<int32_t>(id.get_int()));
  }
  return ids;
}

PostProcessor read_template(const Json& json) {
  PostProcessor out;
  bool behind = false;
  for (const Json& piece : json.at("single").get_array()) {
    if (piece.contains("Sequence")) {
      if (behind) {
        throw_bad("the template for one text holds the text twice");
      }
      behind = true;
      continue;
    }
    auto& side = behind ? out.suffix : out.prefix;
    const auto ids =
        template_ids(json.at("special_tokens"), piece.at("SpecialToken").at("id").get_string());
    side.insert(side.end(), ids.begin(), ids.end());
  }
  return out;
}

// BERT and RoBERTa: ["[SEP]", 102] and ["[CLS]", 101].
PostProcessor read_cls_sep(const Json& json) {
  const auto id = [&](std::string_view key) {
    const auto& pair = json.at(key).get_array();
    if (pair.size() != 2) {
      throw_bad(str_cat("\"", key, "\" has ", pair.size(), " elements, expected text and id"));
    }
    return static_cast<int32_t>(pair[1].get_int());
  };
  return {{id("cls")}, {id("sep")}};
}

PostProcessor read(const Json& json, int depth) {
  if (json.is_null()) {
    return {};
  }
  if (depth > kMaxDepth) {
    throw_bad(str_cat("nested deeper than ", kMaxDepth, " levels"));
  }
  const std::string& type = json.at("type").get_string();
  if (type == "ByteLevel") return {};  // corrects offsets only
  if (type == "TemplateProcessing") return read_template(json);
  if (type == "BertProcessing" || type == "RobertaProcessing") return read_cls_sep(json);
  if (type == "Sequence") {
    PostProcessor out;
    for (const Json& step : json.at("processors").get_array()) {
      const PostProcessor outer = read(step, depth + 1);
      out.prefix.insert(out.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
      out.suffix.insert(out.suffix.end(), outer.suffix.begin(), outer.suffix.end());
    }
    return out;
  }
  throw Error(ErrorCode::kUnsupported,
              str_cat("[tokenizer.json post_processor] type \"",
                      type,
                      "\" is not known here, expected one of ByteLevel TemplateProcessing "
                      "BertProcessing RobertaProcessing Sequence"));
}

}  // namespace

PostProcessor read_post_processor(const Json& json) {
  return read(json, 0);
}

}  // namespace mstar

// Tokenizers and chat templates: everything exactly. Cases are lists in JSON files; the tokenizer
// is --model, or the one of the folder's name among its neighbours (../models/NAME).
#include <filesystem>
#include <functional>
#include <initializer_list>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/text/chat_template.h"
#include "mstar/text/detokenizer.h"
#include "mstar/text/tokenizer.h"
#include "mstar/text/tokenizer_config.h"
#include "mstar/text/utf8.h"

namespace mstar::golden {

namespace {

namespace fs = std::filesystem;

using Ids = std::vector<int32_t>;

constexpr size_t kMaxCaseBytes = size_t{64} << 20;
constexpr int kMostShown = 3;  // failures of one file

std::string tokenizer_folder(const GoldenCase& golden, const RunContext& context) {
  if (!context.model_folder.empty()) {
    return context.model_folder;
  }
  const fs::path folder = fs::weakly_canonical(golden.folder);
  const fs::path models = folder.parent_path() / "models" / folder.filename();
  return fs::is_directory(models) ? models.string() : "";
}

Ids ids_of(const Json& json) {
  Ids ids;
  for (const Json& id : json.get_array()) {
    ids.push_back(static_cast<int32_t>(id.get_int()));
  }
  return ids;
}

std::string show(const Ids& ids) {
  return str_cat("[", str_join(ids, ", "), "]");
}

std::string show(const std::string& text) {
  return Json(text).dump();
}

// The list of one file, with what failed of it.
class Items {
 public:
  Items(const GoldenCase& golden, CaseResult& result) : result_(result) {
    const std::string path = str_cat(golden.folder, "/", golden.get_string("_file"));
    list_ = Json::parse(read_text_file(path, kMaxCaseBytes), path);
  }

  ~Items() {
    if (num_failed_ > kMostShown) {
      result_.fail(str_cat("and ", num_failed_ - kMostShown, " more"));
    }
  }

  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;

  const Json::Array& list() const { return list_.get_array(); }

  void fail(const std::string& message) {
    if (++num_failed_ <= kMostShown) {
      result_.fail(message);
    }
  }

  template <typename Value>
  void expect(std::string_view what, const Value& got, const Value& want, const Json& item) {
    if (got != want) {
      fail(str_cat(what, " gives ", show(got), ", expected ", show(want), " for ", name_of(item)));
    }
  }

 private:
  static std::string name_of(const Json& item) {
    for (const char* key : {"name", "text", "bytes_hex", "ids"}) {
      if (const Json* value = item.find(key)) {
        return value->dump();
      }
    }
    return item.dump();
  }

  CaseResult& result_;
  Json list_;
  int num_failed_ = 0;
};

// Ids under the first of `keys` that the case has: files leave out what is equal.
Ids recorded(const Json& item, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const Json* found = item.find(key)) {
      return ids_of(*found);
    }
  }
  throw Error(ErrorCode::kInvalidArgument, "[golden] a case without ids");
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t at = 0; at + 1 < hex.size(); at += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

using TokenizerRunner = void (*)(const Tokenizer& tokenizer, Items& items);

void check_encode(const Tokenizer& tokenizer, Items& items) {
  for (const Json& item : items.list()) {
    const std::string& text = item.at("text").get_string();
    const Ids ids = recorded(item, {"ids"});
    items.expect("encode", tokenizer.encode(text), ids, item);
    items.expect("encode with template",
                 tokenizer.encode(text, {.add_template = true}),
                 recorded(item, {"ids_with_template", "ids"}),
                 item);
    items.expect("encode, specials as text",
                 tokenizer.encode(text, {.added_tokens = AddedTokens::kSpecialsAsText}),
                 recorded(item, {"ids_special_as_text", "ids"}),
                 item);
    items.expect("encode, all as text",
                 tokenizer.encode(text, {.added_tokens = AddedTokens::kAllAsText}),
                 recorded(item, {"ids_plain", "ids_special_as_text", "ids"}),
                 item);
    const std::string& decoded = item.at("decoded").get_string();
    items.expect("decode", tokenizer.decode(ids), decoded, item);
    const Json* without = item.find("decoded_without_special");
    items.expect("decode without special",
                 tokenizer.decode(ids, true),
                 without == nullptr ? decoded : without->get_string(),
                 item);
  }
}

void check_invalid_utf8(const Tokenizer& tokenizer, Items& items) {
  for (const Json& item : items.list()) {
    const std::string bytes = from_hex(item.at("bytes_hex").get_string());
    items.expect("mending", sanitize_utf8(bytes), item.at("text").get_string(), item);
    items.expect("encode", tokenizer.encode(bytes), ids_of(item.at("ids")), item);
  }
}

void check_decode(const Tokenizer& tokenizer, Items& items) {
  for (const Json& item : items.list()) {
    const Ids ids = ids_of(item.at("ids"));
    items.expect("decode", tokenizer.decode(ids), item.at("decoded").get_string(), item);
    items.expect("decode without special",
                 tokenizer.decode(ids, true),
                 item.at("decoded_without_special").get_string(),
                 item);
  }
}

template <TokenizerRunner kCheck>
void run_tokenizer(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const std::string folder = tokenizer_folder(golden, context);
  if (folder.empty()) {
    result.skip("needs --model with the tokenizer");
    return;
  }
  Items items(golden, result);
  kCheck(*Tokenizer::load(folder), items);
}

void run_stream(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const std::string folder = tokenizer_folder(golden, context);
  if (folder.empty()) {
    result.skip("needs --model with the tokenizer");
    return;
  }
  const auto tokenizer = Tokenizer::load(folder);
  Items items(golden, result);
  for (const Json& item : items.list()) {
    Detokenizer detokenizer(tokenizer, false);
    Json chunks = Json::array();
    for (const int32_t id : ids_of(item.at("ids"))) {
      chunks.push_back(detokenizer.push(id));
    }
    chunks.push_back(detokenizer.finish());
    items.expect("streaming", chunks.dump(), item.at("chunks").dump(), item);
  }
}

// The options of a case as the input of a rendering.
ChatInput chat_input(const Json& item) {
  ChatInput input;
  for (const auto& [key, value] : item.get_object()) {
    if (key == "messages") {
      input.messages = value;
    } else if (key == "tools") {
      input.tools = value;
    } else if (key == "add_generation_prompt") {
      input.add_generation_prompt = value.get_bool();
    } else if (key == "continue_final_message") {
      input.continue_final_message = value.get_bool();
    } else if (key == "bos_token" || key == "eos_token") {
      input.tokens.set(key, value);
    } else if (key != "name" && key != "template" && key != "text" && key != "ids" &&
               key != "error") {
      input.variables.set(key, value);
    }
  }
  return input;
}

// A template that cannot even be read counts as one that does not render.
void expect_rendering(const std::function<std::string()>& render, const Json& item, Items& items) {
  const Json* error = item.find("error");
  try {
    const std::string text = render();
    if (error != nullptr) {
      items.fail(str_cat(item.at("name").get_string(), " renders, expected an error"));
    } else {
      items.expect("rendering", text, item.at("text").get_string(), item);
    }
  } catch (const TemplateRefusal& refusal) {
    if (error == nullptr || refusal.message() != error->get_string()) {
      items.fail(str_cat(item.at("name").get_string(), " refuses: ", refusal.message()));
    }
  } catch (const Error& other) {
    if (error == nullptr) {
      items.fail(str_cat(item.at("name").get_string(), ": ", other.what()));
    }
  }
}

void run_template(const GoldenCase& golden, RunContext&, CaseResult& result) {
  Items items(golden, result);
  for (const Json& item : items.list()) {
    const auto render = [&] {
      return ChatTemplate(item.at("template").get_string()).render(chat_input(item)).text;
    };
    expect_rendering(render, item, items);
  }
}

void run_chat(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const std::string folder = tokenizer_folder(golden, context);
  if (folder.empty()) {
    result.skip("needs --model with the tokenizer");
    return;
  }
  const TokenizerConfig config = TokenizerConfig::load(folder);
  const auto tokenizer = Tokenizer::load(folder);
  const ChatTemplate chat(config.chat_template);
  Items items(golden, result);
  for (const Json& item : items.list()) {
    ChatInput input = chat_input(item);
    input.tokens = config.variables;
    expect_rendering([&] { return chat.render(input).text; }, item, items);
    if (const Json* ids = item.find("ids")) {
      items.expect("encode", tokenizer->encode(chat.render(input).text), ids_of(*ids), item);
    }
  }
}

}  // namespace

void add_tokenizer_kinds(Registry& registry) {
  registry.add_prefix("encode", run_tokenizer<check_encode>);
  registry.add_prefix("decode", run_tokenizer<check_decode>);
  registry.add_prefix("invalid_utf8", run_tokenizer<check_invalid_utf8>);
  registry.add_prefix("stream", run_stream);
  registry.add_prefix("chat", run_chat);
  registry.add_prefix("template", run_template);
}

}  // namespace mstar::golden

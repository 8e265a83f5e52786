// Every recorded rendering, exactly: small templates of our own here; conversations of published
// tokenizers when MSTAR_TOKENIZER_GOLDEN names them (see tokenizer_golden_test.cc).

#include <cstdlib>

#include "gtest/gtest.h"

#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/text/chat_template.h"
#include "mstar/text/tokenizer.h"
#include "mstar/text/tokenizer_config.h"

namespace mstar {

namespace {

constexpr size_t kMaxCaseBytes = size_t{16} << 20;

// The options of a case as the input of a rendering.
ChatInput input_of(const Json& item) {
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

void expect_rendering(const ChatTemplate& chat, const Json& item, const ChatInput& input) {
  const std::string& name = item.at("name").get_string();
  const Json* error = item.find("error");
  if (error == nullptr) {
    EXPECT_EQ(chat.render(input).text, item.at("text").get_string()) << name;
    return;
  }
  try {
    ADD_FAILURE() << name << " gave " << chat.render(input).text;
  } catch (const TemplateRefusal& refusal) {
    EXPECT_EQ(refusal.message(), error->get_string()) << name;
  } catch (const Error&) {
    // Refused by the language itself; the words are ours.
  }
}

class TemplateGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(TemplateGoldenTest, renders) {
  const std::string path =
      str_cat(MSTAR_SOURCE_DIR, "/tests/golden/tokenizer/templates/", GetParam(), ".json");
  const Json all = Json::parse(read_text_file(path, kMaxCaseBytes), path);
  ASSERT_GT(all.size(), 20u);
  for (const Json& item : all.get_array()) {
    const ChatTemplate chat(item.at("template").get_string());
    expect_rendering(chat, item, input_of(item));
  }
}

INSTANTIATE_TEST_SUITE_P(golden, TemplateGoldenTest, testing::Values("with_bos", "without_bos"));

// Folders outside the project: "cases=tokenizer[:…]".
TEST(ChatGoldenTest, published) {
  const char* more = std::getenv("MSTAR_TOKENIZER_GOLDEN");
  if (more == nullptr) {
    GTEST_SKIP() << "MSTAR_TOKENIZER_GOLDEN names no folders";
  }
  std::string_view rest = more;
  size_t num_checked = 0;
  while (!rest.empty()) {
    const std::string one(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    const std::string folder = one.substr(one.find('=') + 1);
    const auto text =
        read_text_file_if_there(one.substr(0, one.find('=')) + "/chat.json", kMaxCaseBytes);
    if (!text) {
      continue;
    }
    const TokenizerConfig config = TokenizerConfig::load(folder);
    const auto tokenizer = Tokenizer::load(folder);
    const ChatTemplate chat(config.chat_template);
    const Json all = Json::parse(*text);
    for (const Json& item : all.get_array()) {
      ChatInput input = input_of(item);
      input.tokens = config.variables;
      expect_rendering(chat, item, input);
      ++num_checked;
      if (const Json* ids = item.find("ids")) {
        std::vector<int32_t> expected;
        for (const Json& id : ids->get_array()) {
          expected.push_back(static_cast<int32_t>(id.get_int()));
        }
        EXPECT_EQ(tokenizer->encode(chat.render(input).text), expected) << item.dump();
      }
    }
  }
  EXPECT_GT(num_checked, 0u);
}

}  // namespace

}  // namespace mstar

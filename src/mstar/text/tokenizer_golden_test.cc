// Every recorded case of the tiny tokenizers, exactly. Further folders of the same form, for
// tokenizers that are not ours to ship, are checked when MSTAR_TOKENIZER_GOLDEN names them:
//   MSTAR_TOKENIZER_GOLDEN=<folder of cases>=<folder of tokenizer>[:…] text_test

#include <cstdlib>
#include <filesystem>

#include "gtest/gtest.h"

#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/text/detokenizer.h"
#include "mstar/text/tokenizer.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

constexpr size_t kMaxCaseBytes = size_t{16} << 20;

struct Folder {
  std::string cases;
  std::string tokenizer;
};

std::vector<Folder> folders() {
  std::vector<Folder> out;
  const std::string base = str_cat(MSTAR_SOURCE_DIR, "/tests/golden/tokenizer/");
  for (const char* name : {"bert", "clip", "gemma", "gpt2", "mistral", "roberta", "t5"}) {
    out.push_back({str_cat(base, name), str_cat(base, "models/", name)});
  }
  const char* more = std::getenv("MSTAR_TOKENIZER_GOLDEN");
  std::string_view rest = more == nullptr ? "" : more;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(':'));
    const size_t equals = one.find('=');
    out.push_back({std::string(one.substr(0, equals)), std::string(one.substr(equals + 1))});
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
  return out;
}

// Names the folder in failures.
[[maybe_unused]] void PrintTo(const Folder& folder, std::ostream* out) {  // NOLINT: gtest's name
  *out << folder.cases;
}

std::string name_of(const testing::TestParamInfo<Folder>& info) {
  return std::filesystem::path(info.param.cases).filename().string();
}

class TokenizerGoldenTest : public testing::TestWithParam<Folder> {
 protected:
  void SetUp() override { tokenizer_ = Tokenizer::load(GetParam().tokenizer); }

  // The cases of one file; empty when the folder has no such file.
  Json cases(const std::string& file) const {
    const auto text = read_text_file_if_there(str_cat(GetParam().cases, "/", file), kMaxCaseBytes);
    return text ? Json::parse(*text, file) : Json::array();
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
};

std::vector<int32_t> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : json.get_array()) {
    ids.push_back(static_cast<int32_t>(id.get_int()));
  }
  return ids;
}

// What the case records under the first of `keys` that it has: files leave out what is equal.
std::vector<int32_t> recorded(const Json& item, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (const Json* found = item.find(key)) {
      return ids_of(*found);
    }
  }
  ADD_FAILURE() << "no ids recorded";
  return {};
}

// Id of the token that stands for what the vocabulary does not have, or -1.
int32_t unknown_id(const std::string& folder, const Tokenizer& tokenizer) {
  const std::string text =
      read_text_file(str_cat(folder, "/tokenizer.json"), Tokenizer::kMaxFileBytes);
  const Json root = Json::parse(text);
  const Json& model = root.at("model");
  if (const Json* id = model.find("unk_id"); id != nullptr && !id->is_null()) {
    return static_cast<int32_t>(id->get_int());
  }
  const Json* token = model.find("unk_token");
  const bool there = token != nullptr && token->is_string();
  return there ? tokenizer.find_token(token->get_string()).value_or(-1) : -1;
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

TEST_P(TokenizerGoldenTest, encode) {
  const Json all = cases("encode.json");
  ASSERT_GT(all.size(), 500u);
  for (const Json& item : all.get_array()) {
    const std::string& text = item.at("text").get_string();
    const auto ids = recorded(item, {"ids"});
    EXPECT_EQ(tokenizer_->encode(text), ids) << text;
    EXPECT_EQ(tokenizer_->encode(text, {.add_template = true}),
              recorded(item, {"ids_with_template", "ids"}))
        << text;
    EXPECT_EQ(tokenizer_->encode(text, {.added_tokens = AddedTokens::kSpecialsAsText}),
              recorded(item, {"ids_special_as_text", "ids"}))
        << text;
    EXPECT_EQ(tokenizer_->encode(text, {.added_tokens = AddedTokens::kAllAsText}),
              recorded(item, {"ids_plain", "ids_special_as_text", "ids"}))
        << text;
    const std::string& decoded = item.at("decoded").get_string();
    EXPECT_EQ(tokenizer_->decode(ids), decoded);
    const Json* without = item.find("decoded_without_special");
    EXPECT_EQ(tokenizer_->decode(ids, true), without == nullptr ? decoded : without->get_string());
  }
}

// Text from outside gives no special id, whatever it says.
TEST_P(TokenizerGoldenTest, user_text_is_never_special) {
  const int32_t unknown = unknown_id(GetParam().tokenizer, *tokenizer_);
  const Json all = cases("encode.json");
  for (const Json& item : all.get_array()) {
    const std::string& text = item.at("text").get_string();
    if (text.empty()) {
      continue;
    }
    const auto ids = tokenizer_->encode(MarkedText{text, {{0, text.size()}}});
    for (const int32_t id : ids) {
      // The unknown token stands for characters outside the vocabulary; it controls nothing.
      EXPECT_TRUE(!tokenizer_->is_special(id) || id == unknown)
          << "\"" << text << "\" gave " << tokenizer_->token(id);
    }
  }
}

TEST_P(TokenizerGoldenTest, invalid_utf8) {
  const Json all = cases("invalid_utf8.json");
  ASSERT_GT(all.size(), 0u);
  for (const Json& item : all.get_array()) {
    const std::string bytes = from_hex(item.at("bytes_hex").get_string());
    EXPECT_EQ(sanitize_utf8(bytes), item.at("text").get_string());
    EXPECT_EQ(tokenizer_->encode(bytes), ids_of(item.at("ids")));
  }
}

TEST_P(TokenizerGoldenTest, decode) {
  const Json all = cases("decode.json");
  ASSERT_GT(all.size(), 100u);
  for (const Json& item : all.get_array()) {
    const auto ids = ids_of(item.at("ids"));
    EXPECT_EQ(tokenizer_->decode(ids), item.at("decoded").get_string());
    EXPECT_EQ(tokenizer_->decode(ids, true), item.at("decoded_without_special").get_string());
  }
}

TEST_P(TokenizerGoldenTest, stream) {
  const Json all = cases("stream.json");
  for (const Json& item : all.get_array()) {
    Detokenizer detokenizer(tokenizer_, false);
    std::vector<std::string> chunks;
    for (const int32_t id : ids_of(item.at("ids"))) {
      chunks.push_back(detokenizer.push(id));
    }
    chunks.push_back(detokenizer.finish());
    std::vector<std::string> expected;
    for (const Json& chunk : item.at("chunks").get_array()) {
      expected.push_back(chunk.get_string());
    }
    EXPECT_EQ(chunks, expected) << item.dump();
  }
}

// Streaming says in the end what decoding the whole says, where the text is whole characters.
TEST_P(TokenizerGoldenTest, stream_equals_decode) {
  const Json all = cases("encode.json");
  for (const Json& item : all.get_array()) {
    const auto ids = ids_of(item.at("ids"));
    Detokenizer detokenizer(tokenizer_, true);
    std::string text;
    for (const int32_t id : ids) {
      text += detokenizer.push(id);
    }
    text += detokenizer.finish();
    EXPECT_EQ(text, tokenizer_->decode(ids, true));
  }
}

// An answer's text is what it adds to its prompt's, wherever the sequence is cut into the two.
TEST_P(TokenizerGoldenTest, an_answer_adds_to_its_prompt) {
  const Json all = cases("encode.json");
  int num_compared = 0;
  int num_told = 0;  // where whole decoding says which part is the answer's
  for (const Json& item : all.get_array()) {
    const auto ids = ids_of(item.at("ids"));
    const std::string whole = tokenizer_->decode(ids, true);
    for (size_t cut = 0; cut <= std::min<size_t>(ids.size(), 24); ++cut) {
      const std::span<const int32_t> prompt = std::span(ids).first(cut);
      Detokenizer detokenizer(tokenizer_, true);
      detokenizer.follow(prompt);
      std::string answer;
      for (const int32_t id : std::span(ids).subspan(cut)) {
        const std::string bytes = detokenizer.bytes_of(id);
        const std::string text = detokenizer.push(id);
        answer += text;
        if (tokenizer_->can_stream() && is_valid_utf8(bytes) && !detokenizer.skips(id)) {
          EXPECT_TRUE(text.ends_with(bytes)) << text << " for " << bytes;
        }
      }
      answer += detokenizer.finish();
      if (tokenizer_->can_stream()) {
        EXPECT_EQ(prompt_text(tokenizer_, prompt) + answer, whole) << cut;
        ++num_compared;
      }
      const std::string before = tokenizer_->decode(prompt, true);
      if (whole.starts_with(before) && !before.ends_with(kReplacementCharacter)) {
        EXPECT_EQ(answer, whole.substr(before.size())) << cut << " of " << whole;
        ++num_told;
      }
    }
  }
  EXPECT_GT(num_told, 1000);
  EXPECT_EQ(num_compared > 1000, tokenizer_->can_stream());
}

INSTANTIATE_TEST_SUITE_P(golden, TokenizerGoldenTest, testing::ValuesIn(folders()), name_of);

}  // namespace

}  // namespace mstar

#include "mstar/text/gguf_vocab.h"

#include "gtest/gtest.h"

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

// The arrays a converter would write for a tokenizer.json of ours.
GgufVocab from_tokenizer_json(const std::string& name, const std::string& model) {
  const std::string path =
      str_cat(MSTAR_SOURCE_DIR, "/tests/golden/tokenizer/models/", name, "/tokenizer.json");
  const Json root = Json::parse(read_text_file(path, Tokenizer::kMaxFileBytes), path);
  GgufVocab vocab;
  vocab.model = model;
  const Json& parts = root.at("model");
  if (parts.at("vocab").is_array()) {
    for (const Json& piece : parts.at("vocab").get_array()) {
      vocab.tokens.push_back(piece[0].get_string());
      vocab.scores.push_back(static_cast<float>(piece[1].get_double()));
    }
  } else {
    vocab.tokens.resize(parts.at("vocab").size());
    for (const auto& [text, id] : parts.at("vocab").get_object()) {
      vocab.tokens[static_cast<size_t>(id.get_int())] = text;
    }
  }
  vocab.token_types.assign(vocab.tokens.size(), 1);
  for (const Json& token : root.at("added_tokens").get_array()) {
    vocab.token_types[static_cast<size_t>(token.at("id").get_int())] = 3;
  }
  if (const Json* merges = parts.find("merges")) {
    for (const Json& merge : merges->get_array()) {
      vocab.merges.push_back(str_cat(merge[0].get_string(), " ", merge[1].get_string()));
    }
  }
  return vocab;
}

// Every recorded text gives the ids that the tokenizer.json gives, its template's left out.
void expect_golden(const Tokenizer& tokenizer, const std::string& name, size_t at_least) {
  const std::string path =
      str_cat(MSTAR_SOURCE_DIR, "/tests/golden/tokenizer/", name, "/encode.json");
  const Json all = Json::parse(read_text_file(path, Tokenizer::kMaxFileBytes), path);
  size_t num_equal = 0;
  for (const Json& item : all.get_array()) {
    std::vector<int32_t> expected;
    for (const Json& id : item.at("ids").get_array()) {
      expected.push_back(static_cast<int32_t>(id.get_int()));
    }
    num_equal += tokenizer.encode(item.at("text").get_string()) == expected ? 1 : 0;
  }
  EXPECT_GE(num_equal, at_least) << "of " << all.size();
}

TEST(GgufVocabTest, byte_level_equals_tokenizer_json) {
  GgufVocab vocab = from_tokenizer_json("gpt2", "gpt2");
  vocab.pre = "gpt-2";
  const auto tokenizer = make_gguf_tokenizer(vocab);
  expect_golden(*tokenizer, "gpt2", 600);
  const std::string text = "Zürich 12:30 \U0001F600\n";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

// Lower ids of a trained BPE were merged earlier; scores say the same.
TEST(GgufVocabTest, scores_stand_for_merges) {
  GgufVocab vocab = from_tokenizer_json("gemma", "llama");
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    vocab.scores.push_back(-static_cast<float>(id));
    if (vocab.tokens[id].size() == 6 && vocab.tokens[id].starts_with("<0x")) {
      vocab.token_types[id] = 6;
    }
  }
  vocab.add_space_prefix = 0;
  vocab.unk_id = 3;
  vocab.bos_id = 2;
  const auto tokenizer = make_gguf_tokenizer(vocab);
  expect_golden(*tokenizer, "gemma", 600);
  const auto ids = tokenizer->encode("Hi", {.add_template = true});
  EXPECT_EQ(ids.front(), 2);
}

TEST(GgufVocabTest, word_pieces_get_their_prefix_back) {
  GgufVocab vocab = from_tokenizer_json("bert", "bert");
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    std::string& token = vocab.tokens[id];
    if (vocab.token_types[id] != 1) {
      continue;
    }
    token = token.starts_with("##") ? token.substr(2) : "\u2581" + token;
  }
  vocab.unk_id = 1;
  vocab.cls_id = 2;
  vocab.sep_id = 3;
  const auto tokenizer = make_gguf_tokenizer(vocab);
  expect_golden(*tokenizer, "bert", 615);
  const auto ids = tokenizer->encode("hello", {.add_template = true});
  EXPECT_EQ(ids.front(), 2);
  EXPECT_EQ(ids.back(), 3);
}

TEST(GgufVocabTest, unigram) {
  GgufVocab vocab = from_tokenizer_json("t5", "t5");
  vocab.unk_id = 2;
  vocab.eos_id = 1;
  const auto tokenizer = make_gguf_tokenizer(vocab);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("water and after")), "water and after");
  EXPECT_EQ(tokenizer->encode("x", {.add_template = true}).back(), 1);
}

TEST(GgufVocabTest, every_pattern_compiles) {
  for (const char* name : {"",
                           "default",
                           "gpt-2",
                           "llama-bpe",
                           "qwen2",
                           "smollm",
                           "gpt-4o",
                           "tekken",
                           "falcon",
                           "bloom",
                           "deepseek-coder",
                           "deepseek-v3",
                           "dbrx"}) {
    GgufVocab vocab = from_tokenizer_json("gpt2", "gpt2");
    vocab.pre = name;
    const auto tokenizer = make_gguf_tokenizer(vocab);
    const std::string text = "Don't 12345 go: 你好\r\n\n  x";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << name;
  }
}

TEST(GgufVocabTest, bad_arrays_are_errors) {
  const auto expect_error = [](const auto& spoil) {
    GgufVocab vocab = from_tokenizer_json("gpt2", "gpt2");
    spoil(vocab);
    EXPECT_THROW(make_gguf_tokenizer(vocab), Error);
  };
  expect_error([](GgufVocab& v) { v.tokens.clear(); });
  expect_error([](GgufVocab& v) { v.token_types.pop_back(); });
  expect_error([](GgufVocab& v) { v.model = "llama"; });  // needs scores
  expect_error([](GgufVocab& v) { v.model = "other"; });
  expect_error([](GgufVocab& v) { v.pre = "no such pattern"; });
  expect_error([](GgufVocab& v) { v.bos_id = 1 << 20; });
  expect_error([](GgufVocab& v) { v.merges[0] = "onepart"; });
  expect_error([](GgufVocab& v) { v.merges[0] = "zzzz qqqq"; });
  expect_error([](GgufVocab& v) { v.tokens[5] = "\xFF"; });
}

}  // namespace

}  // namespace mstar

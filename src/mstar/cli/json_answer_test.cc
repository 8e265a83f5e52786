// Answers in JSON of a tiny checkpoint whose weights are chance: whatever it would rather say, the
// document is one of the schema; and nothing depends on who shares the batch or what is captured.
#include <gtest/gtest.h>

#include <algorithm>

#include "mstar/base/str_cat.h"
#include "mstar/cli/served_model.h"
#include "mstar/text/byte_alphabet.h"

namespace mstar {
namespace {

using testing::Answer;
using testing::Deployed;
using testing::kVocabSize;
using testing::Served;

// Byte-level BPE: three special tokens (2 ends answers, as the checkpoint says), the bytes, and
// some merges with what JSON is made of.
std::string byte_tokenizer() {
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"{", "\""}, {"\"", ":"},  {"\"", ","}, {" ", "\""},  {"\"", "}"},  {"}", "]"},  {"t", "r"},
      {"u", "e"},  {"tr", "ue"}, {"n", "u"},  {"l", "l"},   {"nu", "ll"}, {"a", "b"},  {"ab", "\""},
      {"1", "2"},  {"0", "."},   {"\n", " "}, {"\n ", " "}, {"\\", "n"},  {"e", "\","}};
  Json vocabulary = Json::object({{"<pad>", 0}, {"<s>", 1}, {"</s>", 2}});
  int id = 3;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.set(byte_alphabet()[static_cast<size_t>(byte)], id++);
  }
  Json merges = Json::array();
  for (const auto& [left, right] : pairs) {
    vocabulary.set(to_byte_alphabet(left + right), id++);
    merges.push_back(Json(Json::Array{to_byte_alphabet(left), to_byte_alphabet(right)}));
  }
  Json special = Json::array();
  for (const char* name : {"<pad>", "<s>", "</s>"}) {
    special.push_back(Json::object({{"id", vocabulary.at(name)},
                                    {"content", name},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}}));
  }
  const Json level = Json::object({{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", true},
                                   {"use_regex", true}});
  return Json::object({{"version", "1.0"},
                       {"added_tokens", special},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", level},
                       {"post_processor", nullptr},
                       {"decoder", level},
                       {"model",
                        Json::object({{"type", "BPE"},
                                      {"dropout", nullptr},
                                      {"unk_token", nullptr},
                                      {"continuing_subword_prefix", ""},
                                      {"end_of_word_suffix", ""},
                                      {"fuse_unk", false},
                                      {"byte_fallback", false},
                                      {"vocab", vocabulary},
                                      {"merges", merges}})}})
      .dump();
}

const std::string kCat =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},)"
    R"("age":{"type":"integer","minimum":0,"maximum":30},"tags":{"type":"array","items":)"
    R"({"enum":["red","round"]},"maxItems":2},"owner":{"anyOf":[{"type":"null"},)"
    R"({"$ref":"#/$defs/person"}]}},"required":["name","age","tags","owner"],)"
    R"("additionalProperties":false,"$defs":{"person":{"type":"object","properties":)"
    R"({"adult":{"type":"boolean"}},"required":["adult"],"additionalProperties":false}}})";

std::string with_schema(const std::string& schema, const std::string& more) {
  return str_cat(R"({"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)",
                 schema,
                 "}},",
                 more,
                 "}");
}

void expect_cat(const std::string& text) {
  const Json cat = Json::parse(text, "answer");
  ASSERT_EQ(cat.size(), 4U) << text;
  EXPECT_LE(cat.at("age").get_int(), 30) << text;
  EXPECT_GE(cat.at("age").get_int(), 0) << text;
  EXPECT_TRUE(cat.at("name").is_string()) << text;
  EXPECT_LE(cat.at("tags").size(), 2U) << text;
  for (const Json& tag : cat.at("tags").get_array()) {
    EXPECT_TRUE(tag == Json("red") || tag == Json("round")) << text;
  }
  const Json& owner = cat.at("owner");
  EXPECT_TRUE(owner.is_null() || owner.at("adult").is_bool()) << text;
}

const std::vector<std::string> kSampling = {
    R"("temperature":0)",
    R"("temperature":1.0,"seed":11)",
    R"("temperature":0.7,"top_k":20,"top_p":0.9,"seed":12,"repetition_penalty":1.3)",
    R"("temperature":1.2,"min_p":0.02,"seed":13,"presence_penalty":0.5)",
    R"("temperature":5,"seed":14,"logit_bias":{"2":8})",
};

struct Question {
  std::string prompt;
  std::string parameters;
};

// Constrained in several ways, and free ones between them.
std::vector<Question> questions() {
  std::vector<Question> out;
  for (int index = 0; index < 15; ++index) {
    const std::string& sampling = kSampling[static_cast<size_t>(index) % kSampling.size()];
    const std::string prompt(static_cast<size_t>(1 + index * 5 % 40),
                             static_cast<char>('a' + index));
    const std::string rest = str_cat("\"max_tokens\":200,", sampling);
    if (index % 3 == 0) {
      out.push_back({prompt, str_cat("{\"ignore_eos\":true,\"max_tokens\":40,", sampling, "}")});
    } else if (index % 3 == 1) {
      out.push_back({prompt, with_schema(kCat, rest)});
    } else {
      out.push_back({prompt,
                     str_cat(R"({"response_format":{"type":"json_object"},)",
                             "\"max_tokens\":60,",
                             sampling,
                             "}")});
    }
  }
  return out;
}

std::vector<std::string> answers(Served& served, bool at_once) {
  std::vector<std::shared_ptr<Answer>> running;
  std::vector<std::string> out;
  for (const Question& question : questions()) {
    running.push_back(served.ask(question.prompt, question.parameters));
    if (!at_once) {
      running.back()->wait();
    }
  }
  out.reserve(running.size());
  for (const auto& answer : running) {
    out.push_back(answer->wait());
  }
  return out;
}

TEST(JsonAnswers, AnyWeightsWriteDocumentsOfTheSchema) {
  for (const char* checkpoint : {"llama_untied", "qwen3"}) {
    Served served({.checkpoint = checkpoint, .tokenizer = byte_tokenizer()});
    std::vector<std::shared_ptr<Answer>> running;
    for (int index = 0; index < 20; ++index) {
      running.push_back(served.ask(
          str_cat("cat ", index),
          with_schema(
              kCat,
              str_cat("\"max_tokens\":200,\"temperature\":", index % 4, ",\"seed\":", index))));
    }
    for (const auto& answer : running) {
      expect_cat(answer->wait());
      EXPECT_EQ(answer->completion().finish_reason, "stop");
    }
    served.expect_empty();
  }
}

TEST(JsonAnswers, SharingABatchChangesNothing) {
  Served captured({.tokenizer = byte_tokenizer()});
  const std::vector<std::string> alone = answers(captured, false);
  EXPECT_EQ(answers(captured, true), alone);
  Served eager({.graph_capture = false, .tokenizer = byte_tokenizer()});
  EXPECT_EQ(answers(eager, true), alone);
  Served chunked({.max_batch_tokens = 8, .tokenizer = byte_tokenizer()});
  EXPECT_EQ(answers(chunked, true), alone);
  Served cached({.kv = R"({"prefix_cache":true,"page_size":4})", .tokenizer = byte_tokenizer()});
  EXPECT_EQ(answers(cached, true), alone);
  EXPECT_EQ(answers(cached, true), alone);
  for (size_t index = 0; index < alone.size(); ++index) {
    if (index % 3 == 1) {
      expect_cat(alone[index]);
    } else if (index % 3 == 2) {
      EXPECT_EQ(alone[index].front(), '{');
    }
  }
}

TEST(JsonAnswers, LimitsAndLogprobsAreAsEver) {
  Served served({.tokenizer = byte_tokenizer()});
  const auto cut = served.ask("cat", with_schema(kCat, R"("max_tokens":3,"temperature":0)"));
  EXPECT_FALSE(cut->wait().empty());
  EXPECT_EQ(cut->completion().finish_reason, "length");
  EXPECT_EQ(cut->completion().num_generated_tokens, 3);
  const std::string sampled = R"("max_tokens":200,"temperature":1.5,"seed":5)";
  const auto told = served.ask("cat", with_schema(kCat, sampled + ",\"logprobs\":2"));
  EXPECT_EQ(told->wait(), served.ask("cat", with_schema(kCat, sampled))->wait());
  EXPECT_FALSE(told->logprobs().empty());
  const auto stopped = served.ask("cat", with_schema(kCat, sampled + R"(,"stop":"age")"));
  EXPECT_EQ(stopped->wait().find("age"), std::string::npos);
  EXPECT_EQ(stopped->completion().finish_reason, "stop");
}

TEST(JsonAnswers, WhatCannotBeDoneIsSaid) {
  Served words({});
  const auto refused = words.ask("t5", R"({"response_format":{"type":"json_object"}})");
  EXPECT_EQ(refused->wait().rfind("error: [request] \"response_format\":", 0), 0U);
  EXPECT_EQ(refused->code(), ErrorCode::kUnsupported);
  Served served({.tokenizer = byte_tokenizer()});
  const auto wrong =
      served.ask("cat", with_schema(R"({"type":"string","pattern":"a"})", R"("max_tokens":3)"));
  EXPECT_EQ(wrong->wait(),
            "error: [request] \"response_format\": json_schema.schema.pattern: this keyword is not "
            "supported");
  served.expect_empty();
}

}  // namespace
}  // namespace mstar

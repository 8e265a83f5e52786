#include "mstar/models/common/answer_format.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {
namespace {

// The tiny byte-level tokenizer of the tests; its first special token ends answers.
class AnswerFormat : public ::testing::Test {
 protected:
  AnswerFormat()
      : tokenizer_(
            Tokenizer::load(str_cat(MSTAR_SOURCE_DIR, "/tests/golden/tokenizer/models/gpt2"))),
        grammars_(tokenizer_, static_cast<int64_t>(tokenizer_->vocab_size()), {stop()}) {}

  int32_t stop() const {
    int32_t id = 0;
    while (!tokenizer_->is_special(id)) {
      ++id;
    }
    return id;
  }

  AnswerRules rules(const std::string& parameters) {
    return answer_rules(Json::parse(parameters), grammars_);
  }

  std::string error(const std::string& format, const std::string& more = "") {
    try {
      rules(str_cat(R"({"response_format":)", format, more, "}"));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  TokenGrammars grammars_;
};

TEST_F(AnswerFormat, TextIsFree) {
  EXPECT_EQ(rules("{}"), nullptr);
  EXPECT_EQ(rules(R"({"response_format":{"type":"text"}})"), nullptr);
}

TEST_F(AnswerFormat, RulesFollowTheAnswer) {
  const auto source = rules(
      R"({"response_format":{"type":"json_schema","json_schema":{"name":"a-1","strict":true,
          "description":"x","schema":{"type":"array","items":{"const":7},"maxItems":1}}}})");
  ASSERT_NE(source, nullptr);
  const auto answer = source->start();
  std::vector<uint32_t> mask((tokenizer_->vocab_size() + 31) / 32);
  const auto allows = [&](int32_t token) {
    answer->fill_mask(mask);
    return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) != 0;
  };
  EXPECT_FALSE(allows(stop()));
  for (const char* text : {"[", "7", "]"}) {
    const int32_t token = *tokenizer_->find_token(text);
    ASSERT_TRUE(allows(token)) << text;
    answer->accept(token);
  }
  EXPECT_TRUE(allows(stop()));
  answer->reset();
  EXPECT_FALSE(allows(stop()));
  EXPECT_NE(rules(R"({"response_format":{"type":"json_object"}})"), nullptr);
}

TEST_F(AnswerFormat, ErrorsNameThePath) {
  const std::string start = R"([request] "response_format": )";
  const auto begins = [&](const std::string& text, const std::string& path) {
    EXPECT_EQ(text.rfind(start + path, 0), 0U) << text;
  };
  begins(error(R"({"type":"json_schema","json_schema":{"name":"a","schema":
                   {"properties":{"b":{"pattern":"c"}}}}})"),
         "json_schema.schema.properties.b.pattern: ");
  begins(error(R"({"type":"yaml"})"), "type: found \"yaml\"");
  begins(error("{}"), "type: missing");
  begins(error(R"({"type":"json_object","json_schema":{}})"), "found \"json_schema\"");
  begins(error(R"({"type":"json_schema"})"), "json_schema: expected");
  begins(error(R"({"type":"json_schema","json_schema":{"schema":{}}})"),
         "json_schema.name: missing");
  begins(error(R"({"type":"json_schema","json_schema":{"name":"a b","schema":{}}})"),
         "json_schema.name: expected");
  begins(error(R"({"type":"json_schema","json_schema":{"name":"a"}})"),
         "json_schema.schema: missing");
  begins(error(R"({"type":"json_schema","json_schema":{"name":"a","schema":{},"x":1}})"),
         "json_schema: found \"x\"");
  begins(error(R"({"type":"json_schema","json_schema":{"name":"a","schema":{},"strict":1}})"),
         "json_schema.strict: ");
  begins(error(R"({"type":"json_object"})", R"(,"ignore_eos":true)"), "a document ends");
}

}  // namespace
}  // namespace mstar

// Which documents a schema lets through, byte by byte: what it says of them, that every beginning
// can be finished, and what it refuses to read.
#include <algorithm>
#include <random>

#include "gtest/gtest.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/constrain/json_automaton.h"

namespace mstar {
namespace {

std::shared_ptr<const JsonGrammar> compiled(const std::string& schema, bool ascii_only = false) {
  return compile_json_schema(Json::parse(schema), "schema", ascii_only);
}

// Reads bytes with the automaton of one schema.
class Reader {
 public:
  explicit Reader(std::shared_ptr<const JsonGrammar> grammar)
      : grammar_(std::move(grammar)), automaton_(*grammar_) {}

  // False, and where it was, when no document goes on so.
  bool step(uint8_t byte) {
    JsonAutomaton::Threads next;
    for (const JsonAutomaton::Frame& thread : threads_) {
      automaton_.step(thread, byte, 0, next);
    }
    if (next.empty()) {
      return false;
    }
    threads_ = std::move(next);
    return true;
  }

  bool may_end() const {
    return std::ranges::any_of(threads_, [&](const auto& one) { return automaton_.may_end(one); });
  }

  std::vector<uint8_t> ways() {
    std::vector<uint8_t> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      const size_t arena = automaton_.arena_size();
      JsonAutomaton::Threads next;
      for (const JsonAutomaton::Frame& thread : threads_) {
        automaton_.step(thread, static_cast<uint8_t>(byte), 0, next);
      }
      automaton_.shrink_arena(arena);
      if (!next.empty()) {
        bytes.push_back(static_cast<uint8_t>(byte));
      }
    }
    return bytes;
  }

  void collect() { automaton_.collect(threads_); }

 private:
  std::shared_ptr<const JsonGrammar> grammar_;
  JsonAutomaton automaton_;
  JsonAutomaton::Threads threads_{JsonAutomaton::begin()};
};

bool accepts(const std::shared_ptr<const JsonGrammar>& grammar, std::string_view text) {
  Reader reader(grammar);
  for (const char byte : text) {
    if (!reader.step(static_cast<uint8_t>(byte))) {
      return false;
    }
  }
  return reader.may_end();
}

struct Case {
  std::string schema;
  std::vector<std::string> documents;
  std::vector<std::string> others;
};

TEST(JsonSchema, SaysWhichDocumentsThereAre) {
  const std::vector<Case> cases = {
      {R"({"type":"null"})", {"null"}, {"", "nul", "nulll", "0", " null", "null "}},
      {R"({"type":"boolean"})", {"true", "false"}, {"tru", "1", "\"true\""}},
      {R"({"type":"integer"})",
       {"0", "-0", "12", "-900719925474099123", "123456789012345678"},
       {"01", "-", "+1", "1.0", "1e3", "1234567890123456789", ""}},
      {R"({"type":"number"})",
       {"0", "0.5", "-1.25e+10", "1E9", "2e-07", "123456789012345.123456789012345"},
       {".5", "1.", "1e", "1e123", "0x1", "1.5e+", "NaN", "-Infinity"}},
      {R"({"type":"string"})",
       {"\"\"",
        "\"a b\"",
        R"("\"\\\/\b\f\n\r\t\u00e9\uD7ff\uABCd")",
        "\"\\u00e9\"",
        "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\""},
       {"\"",
        "\"a\nb\"",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"\xC3\"",
        "\"\xC0\xAF\"",
        "\"\xED\xA0\x80\"",
        "\"\xF4\x90\x80\x80\"",
        "\"\xFF\"",
        "'a'"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {"\"ab\"", "\"abc\"", "\"\xF0\x9F\x98\x80\xC3\xA9\"", "\"\\n\\u0041z\""},
       {"\"a\"", "\"abcd\"", "\"\""}},
      {R"({"enum":["red","green",1,12,null,{"a":[1,2]},"é"]})",
       {"\"red\"", "1", "12", "null", "{\"a\":[1,2]}", "\"\xC3\xA9\""},
       {"\"re\"", "\"redd\"", "2", "121", "{\"a\": [1,2]}"}},
      {R"({"enum":["red",1,2.5],"type":"number"})", {"1", "2.5"}, {"\"red\""}},
      {R"({"const":"x"})", {"\"x\""}, {"\"y\""}},
      {R"({"type":["string","null"]})", {"\"a\"", "null"}, {"1"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":2})",
       {"[1]", "[1,2]", "[ 1, 2 ]", "[\n  1,\n  2\n]"},
       {"[]", "[1,2,3]", "[1,]", "[1 ,2]", "[,1]", "[  1]", "[1,\n\n2]"}},
      {R"({"type":"array","maxItems":0})", {"[]", "[ ]", "[\n]"}, {"[1]"}},
      {R"({"type":"array"})", {"[]", R"([1,"a",{"b":[null]},[[]]])"}, {"[", "[1", "{}"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},
           "c":{"type":"null"}},"required":["b"]})",
       {R"({"b":""})",
        R"({"a":1,"b":""})",
        R"({"a": 1, "b": "", "c": null})",
        "{\n  \"b\": \"\"\n}"},
       {"{}",
        R"({"a":1})",
        R"({"b":"","a":1})",
        R"({"b":"","d":1})",
        R"({"b":"",})",
        R"({"b" :""})",
        R"({"a":1,"c":null})"}},
      {R"({"type":"object","properties":{"ab":{"type":"integer"}},
           "additionalProperties":{"type":"boolean"}})",
       {"{}", R"({"ab":1})", R"({"ab":1,"a":true})", R"({"abc":true,"":false,"b":true})"},
       {R"({"ab":true})", R"({"x":true,"ab":1})", R"({"x":1})", R"({"a\u0062":true})"}},
      {R"({"type":"object","properties":{},"additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","required":["x"]})",
       {R"({"x":[1]})", R"({"x":1,"y":{}})"},
       {"{}", R"({"y":1})"}},
      {R"({"type":"object"})",
       {"{}", R"({"a":{"b":[1,{"c":null}]}})", R"({"a\n":1})"},
       {"[]", "1"}},
      {"{}", {"1", "\"a\"", "[[]]", "{}", "null"}, {"", "nil"}},
      {"true", {"1", "{}"}, {"nil"}},
      {R"({"anyOf":[{"type":"object","properties":{"k":{"const":"a"},"n":{"type":"integer"}},
           "required":["k","n"]},{"type":"object","properties":{"k":{"const":"ab"}},
           "required":["k"]},{"type":"null"}]})",
       {R"({"k":"a","n":1})", R"({"k":"ab"})", "null"},
       {R"({"k":"ab","n":1})", R"({"k":"a"})", "{}"}},
      {R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
           "v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
           "required":["v","next"],"additionalProperties":false}}})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1})", R"({"v":1,"next":{}})"}},
      {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"properties":{"a/b~c":{"type":"null"},"d":{"$ref":"#/properties/a~1b~0c"}}})",
       {R"({"a/b~c":null,"d":null})"},
       {R"({"d":1})"}},
      {R"({"anyOf":[{"type":"null"},{"$ref":"#"}]})", {"null"}, {"1"}},
  };
  for (const Case& one : cases) {
    const auto grammar = compiled(one.schema);
    for (const std::string& text : one.documents) {
      EXPECT_TRUE(accepts(grammar, text)) << one.schema << " should allow " << text;
    }
    for (const std::string& text : one.others) {
      EXPECT_FALSE(accepts(grammar, text)) << one.schema << " should not allow " << text;
    }
  }
}

TEST(JsonSchema, BoundsOfNumbersAreExact) {
  struct Bounded {
    std::string keywords;
    std::vector<std::string> inside;
    std::vector<std::string> outside;
  };

  const std::vector<Bounded> cases = {
      {R"("type":"integer","minimum":3,"maximum":117)",
       {"3", "9", "10", "99", "100", "117"},
       {"0", "2", "118", "1000", "-3", "00"}},
      {R"("type":"integer","minimum":-20,"maximum":-7)",
       {"-7", "-20", "-13"},
       {"-6", "-21", "7", "0"}},
      {R"("type":"integer","exclusiveMinimum":0,"exclusiveMaximum":10)",
       {"1", "9"},
       {"0", "10", "-1"}},
      {R"("type":"integer","minimum":0.5)", {"1", "12345678901234567"}, {"0", "-1"}},
      {R"("type":"number","minimum":0,"maximum":1)",
       {"0", "1", "0.0", "0.999", "1.000", "-0", "0.000000000000001"},
       {"1.1", "2", "-0.1", "1.0001", "0.0000000000000001", "1e0"}},
      {R"("type":"number","exclusiveMinimum":0.1,"maximum":0.3)",
       // The double 0.1 is a little more than the decimal, 0.3 a little less.
       {"0.2", "0.11", "0.29999"},
       {"0.1", "0", "0.4"}},
      {R"("type":"number","minimum":-1.5,"maximum":-0.25)",
       {"-1.5", "-0.25", "-1", "-0.3"},
       {"-0.2", "-1.51", "0"}},
      {R"("type":"number","minimum":1e30)", {}, {}},
  };
  for (const Bounded& one : cases) {
    const std::string schema = str_cat("{", one.keywords, "}");
    if (one.inside.empty()) {
      EXPECT_THROW(compiled(schema), Error) << schema;
      continue;
    }
    const auto grammar = compiled(schema);
    for (const std::string& text : one.inside) {
      EXPECT_TRUE(accepts(grammar, text)) << schema << " should allow " << text;
    }
    for (const std::string& text : one.outside) {
      EXPECT_FALSE(accepts(grammar, text)) << schema << " should not allow " << text;
    }
  }
}

std::string error_of(const std::string& schema) {
  try {
    compiled(schema);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonSchema, WhatIsNotReadIsNamedByItsPath) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type":"string","pattern":"a+"})", "[schema.pattern]"},
      {R"({"type":"string","format":"date"})", "[schema.format]"},
      {R"({"properties":{"a":{"items":{"oneOf":[]}}}})", "[schema.properties.a.items.oneOf]"},
      {R"({"anyOf":[{"type":"null"},{"not":{}}]})", "[schema.anyOf[1].not]"},
      {R"({"type":"number","multipleOf":2})", "[schema.multipleOf]"},
      {R"({"type":"object","patternProperties":{}})", "[schema.patternProperties]"},
      {R"({"type":"array","uniqueItems":true})", "[schema.uniqueItems]"},
      {R"({"enum":[1],"minimum":0})", "[schema.minimum]"},
      {R"({"anyOf":[{}],"type":"object"})", "[schema.type]"},
      {R"({"$ref":"#/$defs/a","$defs":{}})", "[schema.$ref]"},
      {R"({"$ref":"http://example.org/a"})", "[schema.$ref]"},
      {R"({"type":"text"})", "[schema.type]"},
      {R"({"type":[]})", "[schema.type]"},
      {R"({"minLength":1,"minItems":2})", "[schema.type]"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "[schema.minLength]"},
      {R"({"type":"string","minLength":-1})", "[schema.minLength]"},
      {R"({"type":"array","maxItems":1.5})", "[schema.maxItems]"},
      {R"({"type":"integer","minimum":"a"})", "[schema.minimum]"},
      {R"({"type":"integer","minimum":0.2,"maximum":0.8})", "[schema]"},
      {R"({"enum":[]})", "[schema.enum]"},
      {R"({"enum":["a"],"type":"integer"})", "[schema.type]"},
      {R"({"required":["a"],"properties":{},"additionalProperties":false})", "[schema.required]"},
      {R"({"required":[1]})", "[schema.required]"},
      {R"({"properties":[]})", "[schema.properties]"},
      {R"({"properties":{"a":1}})", "[schema.properties.a]"},
      {R"({"anyOf":[]})", "[schema.anyOf]"},
      {R"({"anyOf":[{"$ref":"#"}]})", "[schema]"},
      {R"({"$ref":"#"})", "[schema]"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "[schema]"},
      {R"({"type":"array","items":{"$ref":"#"},"minItems":1})", "[schema]"},
      {"false", "[schema]"},
  };
  for (const auto& [schema, path] : cases) {
    EXPECT_EQ(error_of(schema).rfind(path, 0), 0U) << schema << ": " << error_of(schema);
  }
}

TEST(JsonSchema, LimitsHold) {
  std::string many = R"({"anyOf":[)";
  for (int index = 0; index < 65; ++index) {
    many += str_cat(index == 0 ? "" : ",", R"({"type":"string","minLength":)", index, "}");
  }
  EXPECT_NE(error_of(many + "]}").find("at most 64"), std::string::npos);

  std::string wide = R"({"properties":{)";
  for (int index = 0; index < 5000; ++index) {
    wide += str_cat(index == 0 ? "" : ",", "\"p", index, R"(":{"type":"null"})");
  }
  EXPECT_NE(error_of(wide + "}}").find("4096"), std::string::npos);

  EXPECT_NE(error_of(str_cat(R"({"const":")", std::string(300000, 'x'), "\"}")).find("262144"),
            std::string::npos);

  // A chain of references, each with many ways to the next.
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int index = 0; index < 2000; ++index) {
    chain += str_cat("\"d",
                     index,
                     R"(":{"anyOf":[{"$ref":"#/$defs/d)",
                     (index + 1) % 2000,
                     R"("},{"$ref":"#/$defs/d)",
                     (index * 7 + 3) % 2000,
                     "\"}]},");
  }
  chain += R"("end":{"type":"null"}}})";
  EXPECT_NE(error_of(chain), "");

  std::string deep = R"({"type":"null"})";
  for (int index = 0; index < 40; ++index) {
    deep = str_cat(R"({"type":"array","minItems":1,"items":)", deep, "}");
  }
  try {
    static_cast<void>(compile_json_schema(Json::parse(deep, "json", 200), "schema", false));
    FAIL() << "40 nested lists";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("32 nested"), std::string::npos);
  }
}

TEST(JsonSchema, LiteralsCanBeSpelledInAscii) {
  const auto grammar =
      compiled("{\"properties\":{\"\xC3\xA9\":{\"const\":\"\xF0\x9F\x98\x80\"}}}", true);
  EXPECT_TRUE(accepts(grammar, R"({"\u00e9":"\ud83d\ude00"})"));
  EXPECT_FALSE(accepts(grammar, "{\"\xC3\xA9\":\"\xF0\x9F\x98\x80\"}"));
  const auto open =
      compiled("{\"properties\":{\"\xC3\xA9\":{}},\"additionalProperties\":true}", true);
  EXPECT_TRUE(accepts(open, "{\"\xC3\xA8\":1}"));
  EXPECT_FALSE(accepts(open, "{\"\xC3\xA9\":1}")) << "a name of the schema, spelled otherwise";
}

// From every state some way leads on or the document may end, and whoever prefers closing bytes
// arrives at a document.
TEST(JsonSchema, EveryBeginningCanBeFinished) {
  const std::vector<std::string> schemas = {
      R"({"type":"object"})",
      "{}",
      R"({"type":"array","items":{"$ref":"#"},"minItems":0,"maxItems":3})",
      R"({"properties":{"a":{"type":"number","minimum":-3.25,"maximum":1000},"b":{"enum":[1,12,"x"]},
          "ab":{"type":"string","minLength":3,"maxLength":5}},"required":["ab"],
          "additionalProperties":{"type":"integer","minimum":5,"maximum":50000}})",
      R"({"type":"object","properties":{"n":{"anyOf":[{"$ref":"#"},{"type":"null"}]},
          "l":{"type":"array","items":{"$ref":"#"}}},"required":["n"]})",
      R"({"anyOf":[{"type":"array","items":{"type":"integer"},"minItems":3},
          {"type":"array","items":{"type":"string"},"maxItems":2},{"type":"number"}]})",
  };
  for (const std::string& schema : schemas) {
    const auto grammar = compiled(schema);
    for (uint32_t seed = 0; seed < 40; ++seed) {
      std::mt19937 random(seed);
      Reader reader(grammar);
      std::string text;
      const size_t free = random() % 200;
      while (text.size() < 4000) {
        const std::vector<uint8_t> ways = reader.ways();
        ASSERT_TRUE(!ways.empty() || reader.may_end()) << schema << " stuck behind " << text;
        if (ways.empty() || (text.size() >= free && reader.may_end())) {
          break;
        }
        uint8_t byte = ways[random() % ways.size()];
        if (text.size() >= free) {  // towards the end
          const auto is_way = [&](char one) {
            return std::ranges::find(ways, static_cast<uint8_t>(one)) != ways.end();
          };
          const bool is_text = is_way('Q') && is_way('|');
          for (const char closing : std::string_view(is_text ? "\"" : "}]:\"n1u0,l")) {
            if (is_way(closing)) {
              byte = static_cast<uint8_t>(closing);
              break;
            }
          }
        }
        ASSERT_TRUE(reader.step(byte));
        text += static_cast<char>(byte);
        if (random() % 16 == 0) {
          reader.collect();
        }
      }
      EXPECT_TRUE(reader.may_end()) << schema << ": " << text;
      EXPECT_TRUE(accepts(grammar, text)) << text;
    }
  }
}

}  // namespace
}  // namespace mstar

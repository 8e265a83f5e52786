#include "mstar/server/openai/request.h"

#include <gtest/gtest.h>

#include "mstar/base/str_cat.h"
#include "mstar/server/api_error.h"
#include "mstar/server/openai/chat.h"
#include "mstar/server/openai/media_request.h"
#include "mstar/server/testing/fake_backend.h"

namespace mstar {
namespace {

class ChatRequestTest : public ::testing::Test {
 protected:
  ChatRequest parse(std::string_view fields) {
    const Json body = Json::parse(
        str_cat(R"({"messages":[{"role":"user","content":"hi"}])", fields, "}"), "test");
    return parse_chat_request(body, backend_.description(), 4);
  }

  // The field that the error names, or "" without an error.
  std::string wrong_field(std::string_view fields) {
    try {
      parse(fields);
      return "";
    } catch (const Error& error) {
      const Json json = error_json(error);
      const Json& param = json.at("error").at("param");
      return param.is_null() ? "null" : param.get_string();
    }
  }

  testing::FakeBackend backend_;
};

TEST_F(ChatRequestTest, NullIsAbsentAndIgnoredFieldsAreIgnored) {
  const ChatRequest chat = parse(
      R"(,"temperature":null,"stop":null,"stream":null,"user":"u","metadata":{"a":1},"store":true,
         "service_tier":"auto","safety_identifier":"x","prompt_cache_key":"y")");
  EXPECT_FALSE(chat.answer.stream);
  EXPECT_EQ(chat.answer.num_choices, 1);
  EXPECT_EQ(chat.request.parameters.size(), 0U);
}

TEST_F(ChatRequestTest, ParametersGoOnToTheModel) {
  const ChatRequest chat =
      parse(R"(,"temperature":0.5,"seed":9007199254740993,"max_completion_tokens":7,"stop":["a"])");
  EXPECT_EQ(chat.request.parameters.at("seed").get_int(), 9007199254740993);
  EXPECT_EQ(chat.request.parameters.at("temperature").get_double(), 0.5);
  EXPECT_EQ(parse(R"(,"max_tokens":7,"max_completion_tokens":7)").request.parameters.size(), 1U);
}

TEST_F(ChatRequestTest, ErrorsNameTheField) {
  EXPECT_EQ(wrong_field(""), "");
  EXPECT_EQ(wrong_field(R"(,"temprature":1)"), "temprature");
  EXPECT_EQ(wrong_field(R"(,"temperature":3)"), "temperature");
  EXPECT_EQ(wrong_field(R"(,"seed":1.5)"), "seed");
  EXPECT_EQ(wrong_field(R"(,"max_tokens":0)"), "max_tokens");
  EXPECT_EQ(wrong_field(R"(,"n":0)"), "n");
  EXPECT_EQ(wrong_field(R"(,"n":5)"), "n");
  EXPECT_EQ(wrong_field(R"(,"n":1e300)"), "n");
  EXPECT_EQ(wrong_field(R"(,"stream":"yes")"), "stream");
  EXPECT_EQ(wrong_field(R"(,"stream_options":{"x":1})"), "stream_options");
  EXPECT_EQ(wrong_field(R"(,"modalities":["smell"])"), "modalities");
  EXPECT_EQ(wrong_field(R"(,"modalities":["action"])"), "null");
}

TEST_F(ChatRequestTest, WhatIsNotSupportedIsAnErrorUnlessItAsksForNothing) {
  for (const char* fields : {R"(,"tools":[])",
                             R"(,"tool_choice":"none")",
                             R"(,"logprobs":false,"top_logprobs":0)",
                             R"(,"response_format":{"type":"text"})",
                             R"(,"parallel_tool_calls":true)"}) {
    EXPECT_EQ(wrong_field(fields), "") << fields;
  }
  EXPECT_EQ(wrong_field(R"(,"tools":[{"type":"function"}])"), "tools");
  EXPECT_EQ(wrong_field(R"(,"tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(wrong_field(R"(,"functions":[{"name":"f"}])"), "functions");
  EXPECT_EQ(wrong_field(R"(,"function_call":"auto")"), "function_call");
  EXPECT_EQ(wrong_field(R"(,"response_format":{"type":"json_object"})"), "response_format");
  EXPECT_EQ(wrong_field(R"(,"audio":{"voice":"a"})"), "audio");
}

TEST_F(ChatRequestTest, LogprobsBecomeTheModelsNumber) {
  EXPECT_EQ(parse(R"(,"logprobs":true)").request.parameters.at("logprobs").get_int(), 0);
  EXPECT_EQ(parse(R"(,"logprobs":true,"top_logprobs":3)").request.parameters.at("logprobs"),
            Json(3));
  EXPECT_FALSE(parse(R"(,"logprobs":false)").request.parameters.contains("logprobs"));
  EXPECT_EQ(wrong_field(R"(,"logprobs":3)"), "logprobs");
  EXPECT_EQ(wrong_field(R"(,"top_logprobs":3)"), "top_logprobs");
  EXPECT_EQ(wrong_field(R"(,"logprobs":true,"top_logprobs":21)"), "top_logprobs");
}

class MessagesTest : public ::testing::Test {
 protected:
  ModelRequest parse(std::string_view messages) {
    const Json body = Json::parse(str_cat(R"({"messages":)", messages, "}"), "test");
    return parse_chat_request(body, backend_.description(), 1).request;
  }

  testing::FakeBackend backend_;
};

TEST_F(MessagesTest, RolesAndTurnsStay) {
  const ModelRequest request = parse(R"([{"role":"system","content":"s"},
      {"role":"user","content":[{"type":"text","text":"a"},"b"]},
      {"role":"assistant","content":null,"tool_calls":[]},{"role":"user","content":""}])");
  ASSERT_EQ(request.messages.size(), 4U);
  EXPECT_EQ(request.messages[0].role, "system");
  ASSERT_EQ(request.messages[1].content.size(), 2U);
  EXPECT_EQ(request.messages[1].content[1].text, "b");
  EXPECT_TRUE(request.messages[2].content.empty());
}

TEST_F(MessagesTest, MediaKeepTheirPlace) {
  const ModelRequest request = parse(R"([{"role":"user","content":[
      {"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},
      {"type":"text","text":"what"},
      {"type":"input_audio","input_audio":{"data":"UklGRgAAAABXQVZF","format":"wav"}}]}])");
  ASSERT_EQ(request.media.size(), 2U);
  EXPECT_EQ(request.media[0].modality, Modality::kImage);
  EXPECT_EQ(request.messages[0].content[0].media, 0);
  EXPECT_EQ(request.messages[0].content[2].media, 1);
}

TEST_F(MessagesTest, WrongOnesAreErrors) {
  for (const char* messages : {"[]",
                               "null",
                               "{}",
                               "[1]",
                               R"([{"role":"king","content":"x"}])",
                               R"([{"content":"x"}])",
                               R"([{"role":"user"}])",
                               R"([{"role":"user","content":1}])",
                               R"([{"role":"user","content":[{"type":"smell"}]}])",
                               R"([{"role":"user","content":[{"type":"text"}]}])",
                               R"([{"role":"user","content":[{"type":"image_url"}]}])",
                               R"([{"role":"user","content":[{"type":"image_url",
                                   "image_url":"http://host/x.png"}]}])",
                               R"([{"role":"user","content":[{"type":"image_url",
                                   "image_url":{"url":"file:///etc/passwd"}}]}])",
                               R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])"}) {
    EXPECT_THROW(parse(messages), Error) << messages;
  }
}

TEST(RepeatRequest, SeedsCountUpWithoutRounding) {
  ModelRequest request;
  request.parameters.set("seed", int64_t{9007199254740993});
  const auto requests = repeat_request(request, 3, "id");
  EXPECT_EQ(requests[2].parameters.at("seed").get_int(), 9007199254740995);
  EXPECT_EQ(requests[0].request_id, "id");
  EXPECT_NE(requests[1].request_id, requests[2].request_id);
}

TEST(MediaRequestTest, SizeBecomesWidthAndHeight) {
  const testing::FakeBackend backend;
  HttpRequest http;
  const auto parse = [&](std::string_view fields) {
    http.body = str_cat(R"({"prompt":"p")", fields, "}");
    return parse_media_request(
        http, backend.description(), MediaAccess(), {.media = {}, .max_choices = 10});
  };
  const MediaRequest request = parse(R"(,"size":"640x480","n":2,"seed":3)");
  EXPECT_EQ(request.request.parameters.at("width").get_int(), 640);
  EXPECT_EQ(request.request.parameters.at("height").get_int(), 480);
  EXPECT_EQ(request.num_choices, 2);
  EXPECT_EQ(parse(R"(,"size":"auto","quality":"standard")").request.parameters.size(), 0U);
  for (const char* size : {"640",
                           "x",
                           "640x",
                           "x480",
                           "640x480x1",
                           "-640x480",
                           "1e3x480",
                           " 1x1",
                           "99999999999999999999x480",
                           "8x8"}) {
    EXPECT_THROW(parse(str_cat(",\"size\":\"", size, "\"")), Error) << size;
  }
  EXPECT_THROW(parse(R"(,"quality":"hd")"), Error);
  EXPECT_THROW(parse(R"(,"n":11)"), Error);
  http.body = "{}";
  EXPECT_THROW(parse_media_request(http, backend.description(), MediaAccess(), {.media = {}}),
               Error);
}

}  // namespace
}  // namespace mstar

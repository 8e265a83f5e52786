#include "mstar/server/http/form.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"

namespace mstar {
namespace {

std::string part(const std::string& header, const std::string& data) {
  return "--xyz\r\nContent-Disposition: form-data; " + header + "\r\n\r\n" + data + "\r\n";
}

TEST(Multipart, FieldsAndFilesComeInOrder) {
  const std::string body = part("name=\"text\"", "hello") +
                           part("name=\"files\"; filename=\"a \\\"b\\\".png\"", "\r\n--xy\r\n") +
                           part("name=empty", "") + "--xyz--\r\n";
  const auto fields = parse_multipart(body, "xyz");
  ASSERT_EQ(fields.size(), 3U);
  EXPECT_EQ(fields[0].name, "text");
  EXPECT_EQ(fields[0].data, "hello");
  EXPECT_FALSE(fields[0].is_file);
  EXPECT_EQ(fields[1].file_name, "a \"b\".png");
  EXPECT_TRUE(fields[1].is_file);
  EXPECT_EQ(fields[1].data, "\r\n--xy\r\n");
  EXPECT_EQ(fields[2].name, "empty");
  EXPECT_EQ(fields[2].data, "");
}

TEST(Multipart, RefusesWhatIsCutOrUnnamed) {
  const std::string good = part("name=a", "1") + "--xyz--";
  EXPECT_EQ(parse_multipart(good, "xyz").size(), 1U);
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(parse_multipart(good.substr(0, length), "xyz"), Error) << length;
  }
  EXPECT_THROW(parse_multipart(part("filename=a", "1") + "--xyz--", "xyz"), Error);
  EXPECT_THROW(parse_multipart(good, ""), Error);
  EXPECT_THROW(parse_multipart(good + good, "abc"), Error);
  EXPECT_THROW(parse_multipart(
                   part("name=a", "1") + part("name=b", "2") + "--xyz--", "xyz", {.max_fields = 1}),
               Error);
  EXPECT_THROW(parse_multipart(good, "xyz", {.max_part_header_bytes = 10}), Error);
}

TEST(Form, UrlencodedFieldsAreDecoded) {
  HttpRequest request;
  request.headers.add("content-type", "application/x-www-form-urlencoded; charset=utf-8");
  request.body = "text=a+b%2Bc&streaming=false&x";
  const auto fields = parse_form(request);
  ASSERT_EQ(fields.size(), 3U);
  EXPECT_EQ(fields[0].data, "a b+c");
  EXPECT_EQ(fields[2].name, "x");
  request.body = "a=%4";
  EXPECT_THROW(parse_form(request), Error);
  request.headers = {{"Content-Type", "text/plain"}};
  EXPECT_THROW(parse_form(request), Error);
}

TEST(HeaderParameter, QuotedAndPlain) {
  EXPECT_EQ(header_parameter("multipart/form-data; charset=x; boundary=\"a;b\"", "boundary"),
            "a;b");
  EXPECT_EQ(header_parameter("form-data; NAME = q", "name"), "q");
  EXPECT_EQ(header_parameter("form-data; filename=\"name=x\"", "name"), "");
  EXPECT_EQ(header_parameter("form-data", "name"), "");
}

}  // namespace
}  // namespace mstar

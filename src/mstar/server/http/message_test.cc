#include "mstar/server/http/message.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/server/http/access.h"
#include "mstar/server/http/client.h"
#include "mstar/server/http/router.h"

namespace mstar {
namespace {

std::string path_of(std::string_view target) {
  HttpRequest request;
  return parse_target(target, request) ? request.path : "refused";
}

TEST(Target, TheSameResourceHasOnePath) {
  EXPECT_EQ(path_of("/v1/models"), "/v1/models");
  EXPECT_EQ(path_of("//v1///models/"), "/v1/models");
  EXPECT_EQ(path_of("/"), "/");
  EXPECT_EQ(path_of("/V1/models"), "/V1/models");
  EXPECT_EQ(path_of("/v1/models?x=1#y"), "/v1/models");
}

TEST(Target, TricksAreRefused) {
  for (const char* target : {"",
                             "v1/models",
                             "http://host/v1",
                             "/health/../v1/models",
                             "/health/%2e%2E/v1",
                             "/a/./b",
                             "/a\\b",
                             "/a%5cb",
                             "/a%00b",
                             "/a%",
                             "/a%zz",
                             "/x?a=%",
                             "*"}) {
    EXPECT_EQ(path_of(target), "refused") << target;
  }
}

TEST(Target, QueryIsDecoded) {
  HttpRequest request;
  ASSERT_TRUE(parse_target("/walks?format=mer%6daid&a=b+c", request));
  EXPECT_EQ(*request.find_query("format"), "mermaid");
  EXPECT_EQ(*request.find_query("a"), "b c");
  EXPECT_EQ(request.find_query("b"), nullptr);
}

TEST(Headers, NamesIgnoreCase) {
  HttpRequest request;
  request.headers.add("CONTENT-type", " Application/JSON ; charset=utf-8");
  EXPECT_EQ(request.media_type(), "application/json");
  EXPECT_EQ(request.headers.get("missing"), "");
}

TEST(Access, KeysGuardEverythingButHealth) {
  const Access access({"secret", "other"}, {});
  HttpRequest request;
  const auto allowed = [&](std::string_view target, const char* authorization) {
    request = {};
    EXPECT_TRUE(parse_target(target, request));
    if (authorization != nullptr) {
      request.headers.add("authorization", authorization);
    }
    return access.is_allowed(request);
  };
  EXPECT_TRUE(allowed("/health", nullptr));
  EXPECT_TRUE(allowed("//health/", nullptr));
  for (const char* path : {"/", "/v1/models", "//v1/models", "/HEALTH", "/ready", "/metrics"}) {
    EXPECT_FALSE(allowed(path, nullptr)) << path;
    EXPECT_TRUE(allowed(path, "Bearer secret")) << path;
    EXPECT_TRUE(allowed(path, "bearer  other")) << path;
  }
  for (const char* wrong : {"Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "secret"}) {
    EXPECT_FALSE(allowed("/v1/models", wrong)) << wrong;
  }
}

TEST(Access, ConstantTimeComparisonIsAComparison) {
  EXPECT_TRUE(equals_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equals_in_constant_time("abd", "abc"));
  EXPECT_FALSE(equals_in_constant_time("", "abc"));
  EXPECT_FALSE(equals_in_constant_time("abcabc", "abc"));
  EXPECT_FALSE(equals_in_constant_time("abc", ""));
  EXPECT_TRUE(equals_in_constant_time("", ""));
}

TEST(Access, OnlyAllowedOriginsGetHeaders) {
  const Access access({}, {"https://a.example"});
  HttpRequest request;
  request.method = "OPTIONS";
  request.headers.add("Origin", "https://a.example");
  request.headers.add("Access-Control-Request-Method", "POST");
  const auto preflight = access.preflight(request);
  ASSERT_TRUE(preflight.has_value());
  EXPECT_EQ(preflight->status, 204);
  EXPECT_EQ(preflight->headers.get("access-control-allow-origin"), "https://a.example");
  request.headers = {{"Origin", "https://b.example"}, {"Access-Control-Request-Method", "POST"}};
  EXPECT_EQ(access.preflight(request)->status, 403);
  EXPECT_TRUE(access.cors_headers(request).fields().empty());
}

TEST(Router, MatchesByMethodAndPath) {
  Router router;
  router.add({.method = "GET", .pattern = "/v1/models", .handler = {}});
  router.add({.method = "GET", .pattern = "/v1/models/{id*}", .handler = {}});
  router.add({.method = "GET", .pattern = "/v1/videos/{id}/content", .handler = {}});
  router.add({.method = "DELETE", .pattern = "/v1/videos/{id}", .handler = {}});
  HttpRequest request;
  request.method = "HEAD";
  request.path = "/v1/models/org/na%20me";
  ASSERT_NE(router.find(request).route, nullptr);
  EXPECT_EQ(request.path_values.at("id"), "org/na me");
  request.path = "/v1/videos/7/content";
  EXPECT_EQ(router.find(request).route->pattern, "/v1/videos/{id}/content");
  EXPECT_EQ(request.path_values.at("id"), "7");
  request.path = "/v1/videos/7";
  EXPECT_EQ(router.find(request).route, nullptr);
  EXPECT_EQ(router.find(request).allow, "DELETE");
  for (const char* path : {"/v1", "/v1/models2", "/v1/videos", "/v1/videos/7/8"}) {
    request.path = path;
    EXPECT_EQ(router.find(request).route, nullptr) << path;
    EXPECT_EQ(router.find(request).allow, "") << path;
  }
}

TEST(Url, PartsOrAnError) {
  const HttpUrl url = HttpUrl::parse("http://[::1]:81/a/");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, "81");
  EXPECT_EQ(url.path, "/a");
  EXPECT_EQ(HttpUrl::parse("http://host").port, "80");
  EXPECT_THROW(HttpUrl::parse("https://host"), Error);
  EXPECT_THROW(HttpUrl::parse("http://:80"), Error);
}

}  // namespace
}  // namespace mstar

#include "mstar/server/image_store.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/server/http/host.h"

namespace mstar {
namespace {

using std::chrono::seconds;

ImageStore::Image image(size_t size) {
  return {std::string(size, 'x'), "image/png"};
}

TEST(ImageStore, TheOldestGoFirst) {
  ImageStore store({.max_bytes = 100, .max_count = 3, .max_age = seconds(10)});
  const ImageStore::Clock::time_point start{};
  for (int index = 0; index < 4; ++index) {
    store.add(str_cat("i", index), image(10), start);
  }
  EXPECT_EQ(store.find("i0", start), nullptr) << "three places";
  ASSERT_NE(store.find("i1", start), nullptr);
  store.add("big", image(85), start);
  EXPECT_EQ(store.find("i2", start), nullptr) << "85 bytes need room";
  ASSERT_NE(store.find("i3", start), nullptr);
  EXPECT_EQ(store.find("big", start)->bytes.size(), 85U);
  EXPECT_EQ(store.find("big", start)->content_type, "image/png");
  EXPECT_EQ(store.stats(start).num_images, 2U);
  EXPECT_EQ(store.stats(start).size_bytes, 95U);
  EXPECT_EQ(store.stats(start).num_dropped, 3);
  EXPECT_THROW(store.add("huge", image(101), start), Error);
  EXPECT_EQ(store.stats(start).num_images, 2U) << "what cannot be kept drops nothing";
}

TEST(ImageStore, PicturesAge) {
  ImageStore store({.max_bytes = 100, .max_count = 3, .max_age = seconds(10)});
  const ImageStore::Clock::time_point start{};
  store.add("a", image(10), start);
  store.add("b", image(20), start + seconds(5));
  const auto held = store.find("a", start + seconds(9));
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(store.find("a", start + seconds(10)), nullptr);
  EXPECT_EQ(held->bytes.size(), 10U) << "who has it keeps it";
  EXPECT_NE(store.find("b", start + seconds(14)), nullptr);
  EXPECT_EQ(store.stats(start + seconds(15)).size_bytes, 0U);
}

TEST(ImageStore, CanBeOff) {
  EXPECT_FALSE(ImageStore({.max_bytes = 0}).is_on());
  EXPECT_FALSE(ImageStore({.max_count = 0}).is_on());
  EXPECT_TRUE(ImageStore({}).is_on());
}

TEST(BaseUrl, IsAPlainHostOrNothing) {
  const auto url = [](const std::string& host, const std::string& proto = "") {
    HttpRequest request;
    request.headers.add("Host", host);
    if (!proto.empty()) {
      request.headers.add("X-Forwarded-Proto", proto);
    }
    return base_url(request).value_or("none");
  };
  EXPECT_EQ(url("127.0.0.1:8000"), "http://127.0.0.1:8000");
  EXPECT_EQ(url("a-b.Example.org"), "http://a-b.Example.org");
  EXPECT_EQ(url("[::1]:80"), "http://[::1]:80");
  EXPECT_EQ(url("example.org", "HTTPS"), "https://example.org");
  EXPECT_EQ(url("example.org", "javascript"), "http://example.org");
  for (const char* host : {"",
                           "a/b",
                           "a@b",
                           "a:b",
                           "a:",
                           "a:123456",
                           ":80",
                           "a b",
                           "<a>",
                           "a\"b",
                           "a\r\nX: 1",
                           "[::1",
                           "[]",
                           "[x]",
                           "[::1]x",
                           "a?b",
                           "a#b",
                           "a%41"}) {
    EXPECT_EQ(url(host), "none") << host;
  }
  EXPECT_EQ(url(std::string(256, 'a')), "none");
  EXPECT_FALSE(base_url(HttpRequest()).has_value());
}

}  // namespace
}  // namespace mstar

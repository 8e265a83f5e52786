#include "mstar/server/http/fetch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/server/encoding.h"
#include "mstar/server/http/server.h"
#include "mstar/server/media_access.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPng = "\x89PNG\r\n\x1A\n picture";

// A server on this machine with a few answers.
class Site {
 public:
  Site()
      : http_(
            {.port = 0},
            [](const HttpRequest&) { return std::nullopt; },
            [this](const HttpRequest& request, const std::shared_ptr<ResponseWriter>& writer) {
              answer(request, writer);
            }) {}

  std::string url(std::string_view path) const {
    return str_cat("http://127.0.0.1:", http_.port(), path);
  }

  std::string other_host_url(std::string_view path) const {
    return str_cat("http://localhost:", http_.port(), path);
  }

 private:
  void answer(const HttpRequest& request, const std::shared_ptr<ResponseWriter>& held) {
    ResponseWriter& writer = *held;
    if (request.path == "/a.png") {
      writer.send({.status = 200, .body = std::string(kPng)});
    } else if (request.path == "/moved") {
      writer.send({.status = 302, .headers = {{"Location", "/a.png"}}});
    } else if (request.path == "/away") {
      writer.send({.status = 302, .headers = {{"Location", other_host_url("/a.png")}}});
    } else if (request.path == "/round") {
      writer.send({.status = 302, .headers = {{"Location", "/round"}}});
    } else if (request.path == "/big") {
      writer.send({.status = 200, .body = std::string(100'000, 'x')});
    } else if (request.path == "/slow") {
      writer.start(200, {{"Content-Type", "image/png"}});
      writer.write("x");  // and then nothing
      const std::lock_guard lock(mutex_);
      held_.push_back(held);
    } else {
      writer.send({.status = 404});
    }
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<ResponseWriter>> held_;  // guarded by mutex_
  HttpServer http_;
};

FetchOptions local() {
  return {.max_bytes = 50'000, .public_addresses_only = false};
}

ErrorCode failure(const std::string& url, const FetchOptions& options) {
  try {
    fetch_url(
        url, [](std::string_view host) { return host == "127.0.0.1"; }, options);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << url << " was fetched";
  return ErrorCode::kInternal;
}

TEST(Fetch, FollowsRedirectsOnAllowedHostsOnly) {
  const Site site;
  const auto allowed = [](std::string_view host) { return host == "127.0.0.1"; };
  EXPECT_EQ(fetch_url(site.url("/a.png"), allowed, local()), kPng);
  EXPECT_EQ(fetch_url(site.url("/moved?x=1#y"), allowed, local()), kPng);
  EXPECT_EQ(failure(site.url("/away"), local()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(site.url("/round"), local()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(site.url("/none"), local()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(site.other_host_url("/a.png"), local()), ErrorCode::kInvalidArgument);
}

TEST(Fetch, IsBoundInSizeAndTime) {
  const Site site;
  EXPECT_EQ(failure(site.url("/big"), local()), ErrorCode::kTooLarge);
  FetchOptions hasty = local();
  hasty.timeout = std::chrono::milliseconds(100);
  EXPECT_EQ(failure(site.url("/slow"), hasty), ErrorCode::kUnavailable);
}

TEST(Fetch, AddressesOfThisNetworkAreRefusedWhateverTheirName) {
  const Site site;
  EXPECT_EQ(failure(site.url("/a.png"), {}), ErrorCode::kInvalidArgument);
  for (const char* address : {"127.0.0.1",
                              "10.1.2.3",
                              "172.31.0.1",
                              "192.168.1.1",
                              "169.254.169.254",
                              "100.64.0.1",
                              "0.0.0.0",
                              "224.0.0.1",
                              "255.255.255.255",
                              "::1",
                              "::",
                              "fe80::1",
                              "fc00::1",
                              "ff02::1",
                              "::ffff:10.0.0.1",
                              "64:ff9b::a9fe:a9fe",
                              "2002:7f00:1::",
                              "2001:db8::1",
                              "nonsense"}) {
    EXPECT_FALSE(is_public_address(address)) << address;
  }
  for (const char* address :
       {"8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"}) {
    EXPECT_TRUE(is_public_address(address)) << address;
  }
}

TEST(Fetch, UrlsAreTakenApartStrictly) {
  const FetchUrl url = FetchUrl::parse("HTTPS://Example.ORG.:8443?q=1#part");
  EXPECT_TRUE(url.secure);
  EXPECT_EQ(url.host, "example.org");
  EXPECT_EQ(url.port, "8443");
  EXPECT_EQ(url.target, "/?q=1");
  EXPECT_EQ(FetchUrl::parse("http://[::1]/x").host, "::1");
  for (const char* bad : {"ftp://a/",
                          "http://",
                          "http://user@a/",
                          "http://a:port/",
                          "http://a/x y",
                          "http://a/\r\nX: 1",
                          "http://a\\@b/",
                          "a.png"}) {
    EXPECT_THROW(FetchUrl::parse(bad), Error) << bad;
  }
}

TEST(MediaAccess, ReadsFilesBelowTheFolderOnly) {
  const fs::path root = fs::path(::testing::TempDir()) / str_cat("mstar_media_", getpid());
  fs::create_directories(root / "media" / "inner");
  fs::create_directories(root / "media2");
  for (const char* name : {"media/inner/a b.png", "secret.png", "media2/c.png"}) {
    std::ofstream(root / name, std::ios::binary) << kPng;
  }
  fs::create_symlink(root / "secret.png", root / "media" / "link.png");
  fs::create_symlink(root / "media" / "inner", root / "media" / "folder");
  MediaAccessOptions options;
  options.local_folder = (root / "media").string();
  const MediaAccess access(options);
  const auto get = [&](const std::string& path) {
    return *access.get(str_cat("file://", root.string(), path), Modality::kImage, "f").bytes;
  };
  EXPECT_EQ(get("/media/inner/a%20b.png"), kPng);
  EXPECT_EQ(get("/media/folder/a b.png"), kPng);
  std::string problem;
  for (const char* path : {"/secret.png",
                           "/media/../secret.png",
                           "/media/%2e%2e/secret.png",
                           "/media/link.png",
                           "/media2/c.png",
                           "/media/none.png",
                           "/media"}) {
    try {
      get(path);
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << path;
      EXPECT_TRUE(problem.empty() || problem == error.what()) << "tells files from none: " << path;
      problem = error.what();
    }
  }
  EXPECT_THROW(
      MediaAccess().get(
          str_cat("file://", root.string(), "/media/inner/a b.png"), Modality::kImage, "f"),
      Error);
  EXPECT_THROW(access.get("http://127.0.0.1/a.png", Modality::kImage, "f"), Error);
  options.local_folder = (root / "none").string();
  EXPECT_THROW(MediaAccess{options}, Error);
  fs::remove_all(root);
}

TEST(MediaAccess, FetchesFromListedHosts) {
  const Site site;
  MediaAccessOptions options;
  options.allowed_domains = {"127.0.0.1", "*.Example.org"};
  options.fetch = local();
  const MediaAccess access(options);
  EXPECT_EQ(*access.get(site.url("/a.png"), Modality::kImage, "f").bytes, kPng);
  EXPECT_EQ(access.get(site.url("/a.png"), Modality::kNone, "f").modality, Modality::kImage);
  EXPECT_EQ(*access.get_or_base64(site.url("/a.png"), Modality::kImage, "f").bytes, kPng);
  EXPECT_EQ(*access.get_or_base64(encode_base64(kPng), Modality::kImage, "f").bytes, kPng);
  EXPECT_THROW(MediaAccess().get_or_base64(site.url("/a.png"), Modality::kImage, "f"), Error);
  EXPECT_THROW(access.get(site.other_host_url("/a.png"), Modality::kImage, "f"), Error);
  EXPECT_THROW(access.get("http://badexample.org/", Modality::kImage, "f"), Error);
  try {
    access.get(site.url("/a.png"), Modality::kAudio, "f");
    FAIL() << "a picture is no sound";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupportedMedia);
  }
}

}  // namespace
}  // namespace mstar

// The server over sockets, with a backend whose answers the tests choose.
#include "mstar/server/api.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <thread>

#include "mstar/base/log.h"
#include "mstar/base/str_cat.h"
#include "mstar/server/http/client.h"
#include "mstar/server/live_feed.h"
#include "mstar/server/testing/fake_backend.h"
#include "mstar/server/testing/scenario.h"

namespace mstar {
namespace {

using testing::FakeBackend;

// An API on a port of its own.
class TestServer {
 public:
  explicit TestServer(std::vector<std::string> keys = {},
                      HttpServerOptions options = {},
                      ApiOptions api_options = {})
      : api_(quietly(std::move(api_options)), Access(std::move(keys), {"https://page.example"})) {
    options.port = 0;
    http_.emplace(
        options,
        [this](const HttpRequest& request) { return api_.guard(request); },
        [this](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
          api_.handle(std::move(request), std::move(writer));
        });
    url_ = HttpUrl::parse(str_cat("http://127.0.0.1:", http_->port()));
  }

  ~TestServer() {
    http_.reset();
    api_.finish();
    api_.context().set_backend(nullptr);
    backend_.reset();
  }

  void set_ready() {
    backend_ = std::make_shared<FakeBackend>();
    api_.context().set_backend(backend_);
  }

  Api& api() { return api_; }

  HttpServer& http() { return *http_; }

  FakeBackend& backend() { return *backend_; }

  HttpResponse call(const HttpCall& call) const { return http_call(url_, call); }

  HttpCall chat(const std::string& prompt, bool stream) const {
    const Json body = Json::object(
        {{"messages", Json(Json::Array{Json::object({{"role", "user"}, {"content", prompt}})})},
         {"stream", stream}});
    return {.method = "POST",
            .path = "/v1/chat/completions",
            .headers = {{"Content-Type", "application/json"}},
            .body = body.dump()};
  }

 private:
  static ApiOptions quietly(ApiOptions options) {
    set_log(LogLevel::kOff, LogFormat::kText);
    return options;
  }

  Api api_;
  std::shared_ptr<FakeBackend> backend_;
  std::optional<HttpServer> http_;
  HttpUrl url_;
};

class ScenarioTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, AnswersAsTheFileSays) {
  TestServer server;
  server.set_ready();
  const auto scenarios = testing::read_scenarios(GetParam());
  ASSERT_FALSE(scenarios.empty());
  for (const auto& scenario : scenarios) {
    ASSERT_FALSE(scenario.expectations.empty()) << scenario.where;
    EXPECT_EQ(check_scenario(scenario, server.call(scenario.call)), "");
  }
}

std::vector<std::string> scenario_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(MSTAR_SOURCE_DIR "/tests/http")) {
    if (entry.path().extension() == ".http") {
      files.push_back(entry.path().string());
    }
  }
  std::ranges::sort(files);
  return files;
}

INSTANTIATE_TEST_SUITE_P(Files,
                         ScenarioTest,
                         ::testing::ValuesIn(scenario_files()),
                         [](const auto& file) {
                           return std::filesystem::path(file.param).stem().string();
                         });

TEST(Server, SaysThatItIsLoading) {
  TestServer server;
  EXPECT_EQ(server.call({.path = "/health"}).status, 200);
  EXPECT_EQ(server.call({.path = "/ready"}).status, 503);
  const HttpResponse refused = server.call(server.chat("say a", false));
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.headers.find("Retry-After"), nullptr);
  server.set_ready();
  EXPECT_EQ(server.call({.path = "/ready"}).status, 200);
  EXPECT_EQ(server.call(server.chat("say a", false)).status, 200);
  server.api().context().set_draining();
  EXPECT_EQ(server.call({.path = "/ready"}).status, 503);
  EXPECT_EQ(server.call(server.chat("say a", false)).status, 503);
}

TEST(Server, MetricsCanHaveVllmsNamesToo) {
  TestServer server({}, {}, {.vllm_metrics = true});
  server.set_ready();
  EXPECT_EQ(server.call(server.chat("say a b", false)).status, 200);
  const std::string text = server.call({.path = "/metrics"}).body;
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"fake\"} 1\n",
        "vllm:num_requests_waiting{model_name=\"fake\"} 2\n",
        "vllm:kv_cache_usage_perc{model_name=\"fake\"} 0.25\n",
        "vllm:prefix_cache_hits_total{model_name=\"fake\"} 3\n",
        "vllm:prompt_tokens_total{model_name=\"fake\"} 3\n",
        "vllm:request_success_total{model_name=\"fake\",finished_reason=\"stop\"} 1\n",
        "vllm:e2e_request_latency_seconds_bucket{model_name=\"fake\",le=\"+Inf\"} 1\n",
        "mstar_streamed_tokens_total 2\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

// Reads what /walks/live sends until `count` events came.
std::vector<Json> live_events(const TestServer& server,
                              size_t count,
                              const std::function<void()>& first) {
  std::string text;
  std::vector<Json> events;
  server.call(
      {.path = "/walks/live", .on_data = [&](const HttpResponse& head, std::string_view data) {
         EXPECT_EQ(head.status, 200);
         text += data;
         for (size_t end = text.find("\n\n"); end != std::string::npos; end = text.find("\n\n")) {
           events.push_back(Json::parse(text.substr(6, end - 6)));
           text.erase(0, end + 2);
           if (events.size() == 1) {
             first();
           }
         }
         return events.size() < count;
       }});
  return events;
}

TEST(Server, TheLiveFeedTellsWhereRequestsAre) {
  TestServer server;
  server.set_ready();
  LiveFeed& live = server.api().live();
  live.on_request(7, "a", RequestPhase::kQueued);
  const auto events = live_events(server, 2, [&] {
    const RequestKey keys[] = {7};
    live.on_step({.node = "LLM", .walk = "answer", .requests = keys, .begin = {}, .seconds = 0.25});
  });
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].at("requests")[0].at("id"), Json("a"));
  EXPECT_EQ(events[0].at("requests")[0].at("node"), Json(""));
  EXPECT_EQ(events[0].at("waiting"), Json(2));
  EXPECT_EQ(events[0].at("caches")[0].at("free"), Json(6));
  EXPECT_EQ(events[1].at("requests")[0].at("node"), Json("LLM"));
  EXPECT_EQ(events[1].at("nodes")[0].at("seconds"), Json(0.25));
}

TEST(Server, TheLiveFeedEndsWhenTheServerDrains) {
  TestServer server;
  server.set_ready();
  const auto events = live_events(server, 100, [&] { server.api().live().close(); });
  EXPECT_EQ(events.size(), 1U);
  EXPECT_EQ(server.call({.path = "/walks/live"}).body, "");
  EXPECT_EQ(server.call({.method = "HEAD", .path = "/walks/live"}).status, 200);
}

TEST(Server, BrowsersSendTheKeyAsAPassword) {
  TestServer server({"secret"});
  server.set_ready();
  const HttpResponse asked = server.call({.path = "/"});
  EXPECT_EQ(asked.status, 401);
  EXPECT_TRUE(asked.headers.get("WWW-Authenticate").starts_with("Basic "));
  const auto with = [&](const std::string& header) {
    return server.call({.path = "/v1/models", .headers = {{"Authorization", header}}}).status;
  };
  EXPECT_EQ(with("Basic OnNlY3JldA=="), 200);  // ":secret"
  EXPECT_EQ(with("basic bWU6c2VjcmV0"), 200);  // "me:secret"
  EXPECT_EQ(with("Basic c2VjcmV0"), 401);      // "secret"
  EXPECT_EQ(with("Basic c2VjcmV0Og=="), 401);  // "secret:"
  EXPECT_EQ(with("Basic !!!"), 401);
  EXPECT_EQ(with("Basic "), 401);
}

TEST(Server, KeysGuardEveryRouteHoweverSpelled) {
  TestServer server({"secret"});
  server.set_ready();
  EXPECT_EQ(server.call({.path = "/health"}).status, 200);
  for (const char* path : {"/",
                           "/walks/live",
                           "/ready",
                           "/metrics",
                           "//v1/models",
                           "/v1/models/",
                           "/V1/models",
                           "/x"}) {
    for (const char* method : {"GET", "HEAD", "POST", "DELETE"}) {
      EXPECT_EQ(server.call({.method = method, .path = path}).status, 401) << method << path;
    }
  }
  EXPECT_EQ(
      server.call({.path = "/v1/models", .headers = {{"Authorization", "Bearer secret"}}}).status,
      200);
  EXPECT_EQ(server.call({.path = "/health/../v1/models"}).status, 400);
}

TEST(Server, HeadHasNoBodyAndCorsOnlyForAllowedPages) {
  TestServer server;
  server.set_ready();
  const HttpResponse head = server.call({.method = "HEAD", .path = "/v1/models"});
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_NE(head.headers.get("Content-Length"), "0");
  const auto origin = [&](const char* name) {
    return server.call({.path = "/health", .headers = {{"Origin", name}}})
               .headers.get("Access-Control-Allow-Origin") == name;
  };
  EXPECT_TRUE(origin("https://page.example"));
  EXPECT_FALSE(origin("https://other.example"));
}

TEST(Server, LargeHeadersAndBodiesAreRefused) {
  TestServer server({}, {.max_header_bytes = 2048, .max_body_bytes = 10'000});
  server.set_ready();
  EXPECT_EQ(server.call({.path = "/health", .headers = {{"X", std::string(4000, 'x')}}}).status,
            431);
  HttpCall call = server.chat("say a", false);
  call.body += std::string(20'000, ' ');
  EXPECT_EQ(server.call(call).status, 413);
  EXPECT_EQ(server.call(server.chat("say a", false)).status, 200);
}

TEST(Server, SixtyFourStreamsAtOnceKeepTheirAnswers) {
  TestServer server;
  server.set_ready();
  std::vector<HttpResponse> answers(64);
  std::vector<std::thread> clients;
  for (size_t index = 0; index < answers.size(); ++index) {
    clients.emplace_back([&, index] {
      answers[index] = server.call(server.chat(str_cat("say one ", index, " end"), true));
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  for (size_t index = 0; index < answers.size(); ++index) {
    EXPECT_EQ(answers[index].status, 200);
    EXPECT_NE(answers[index].body.find(str_cat("\"content\":\"", index, " \"")), std::string::npos);
    EXPECT_TRUE(answers[index].body.ends_with("data: [DONE]\n\n"));
  }
}

TEST(Server, AClientThatLeavesCancelsItsRequest) {
  TestServer server;
  server.set_ready();
  HttpCall call = server.chat("wait", true);
  call.on_data = [](const HttpResponse&, std::string_view) { return false; };  // hangs up
  server.call(call);
  server.backend().wait_cancelled(1);
  EXPECT_EQ(server.call(server.chat("say a", false)).status, 200);
}

TEST(Server, CancellationReachesEveryChoice) {
  TestServer server;
  server.set_ready();
  HttpCall call = server.chat("wait", true);
  call.body.pop_back();
  call.body += ",\"n\":3}";
  // It leaves once it has heard of all three: one that left before would find some never begun.
  std::string heard;
  call.on_data = [&heard](const HttpResponse&, std::string_view data) {
    heard += data;
    return heard.find("\"index\":0") == std::string::npos ||
           heard.find("\"index\":1") == std::string::npos ||
           heard.find("\"index\":2") == std::string::npos;
  };
  server.call(call);
  server.backend().wait_cancelled(3);
}

// Each is noticed, whatever thread hears of its bytes first.
TEST(Server, ManyClientsThatLeaveAreAllNoticed) {
  constexpr int kThreads = 12;
  constexpr int kLeaves = 80;  // of each
  TestServer server;
  server.set_ready();
  std::vector<std::thread> clients;
  for (int thread = 0; thread < kThreads; ++thread) {
    clients.emplace_back([&server] {
      for (int leave = 0; leave < kLeaves; ++leave) {
        HttpCall call = server.chat("wait", true);
        call.on_data = [](const HttpResponse&, std::string_view) { return false; };
        server.call(call);
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  server.backend().wait_cancelled(kThreads * kLeaves);
}

// One bit that a thread waits for.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST(Server, ASlowReaderPausesOnlyItself) {
  TestServer server({}, {.high_water_bytes = 64 << 10});
  server.set_ready();
  constexpr int kNumChunks = 400;  // 25 MiB: more than sockets hold
  Gate go_on;
  size_t num_bytes = 0;
  std::string tail;
  std::thread slow([&] {
    HttpCall call = server.chat(str_cat("flood ", kNumChunks), true);
    call.on_data = [&](const HttpResponse&, std::string_view data) {
      if (num_bytes == 0) {
        go_on.wait();
      }
      num_bytes += data.size();
      tail = data;
      return true;
    };
    server.call(call);
  });
  server.backend().wait_paused(1);
  EXPECT_EQ(server.call(server.chat("say a b", false)).status, 200);
  go_on.open();
  slow.join();
  EXPECT_GT(num_bytes, size_t{kNumChunks} << 16);
  EXPECT_TRUE(tail.ends_with("data: [DONE]\n\n"));
}

HttpCall images_by_url(int count) {
  return {.method = "POST",
          .path = "/v1/images/generations",
          .headers = {{"Content-Type", "application/json"}},
          .body = str_cat(R"({"prompt":"a cat","response_format":"url","n":)", count, "}")};
}

// The path of each URL of an answer.
std::vector<std::string> image_paths(const HttpResponse& answer) {
  std::vector<std::string> paths;
  const Json document = Json::parse(answer.body, "answer");
  for (const Json& entry : document.at("data").get_array()) {
    const std::string& url = entry.at("url").get_string();
    EXPECT_EQ(url.rfind("http://127.0.0.1:", 0), 0U) << url;
    paths.push_back(url.substr(url.find('/', 7)));
  }
  return paths;
}

TEST(Server, PicturesCanBeFetchedByUrl) {
  TestServer server({"key"}, {}, {.images = {.max_count = 3}});
  server.set_ready();
  const HttpHeaders key = {{"Authorization", "Bearer key"}};
  const auto get = [&](const std::string& path, const char* method = "GET") {
    return server.call({.method = method, .path = path, .headers = key});
  };
  HttpCall call = images_by_url(2);
  call.headers.add("Authorization", "Bearer key");
  const std::vector<std::string> paths = image_paths(server.call(call));
  ASSERT_EQ(paths.size(), 2U);
  EXPECT_NE(paths[0], paths[1]);
  const HttpResponse picture = get(paths[0]);
  EXPECT_EQ(picture.status, 200);
  EXPECT_EQ(picture.headers.get("Content-Type"), "image/png");
  EXPECT_EQ(picture.body, "\x89PNG fake");
  const HttpResponse head = get(paths[0], "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.get("Content-Length"), std::to_string(picture.body.size()));
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(server.call({.path = paths[0]}).status, 401) << "guarded as every route";
  EXPECT_EQ(get(paths[0], "DELETE").status, 405);
  EXPECT_NE(get("/metrics").body.find("\nmstar_stored_images 2\n"), std::string::npos);
  EXPECT_NE(get("/metrics").body.find("\nmstar_stored_image_bytes 18\n"), std::string::npos);
  EXPECT_EQ(image_paths(server.call(call)).size(), 2U);
  const HttpResponse gone = get(paths[0]);
  EXPECT_EQ(gone.status, 404);
  EXPECT_NE(gone.body.find("image_not_found"), std::string::npos);
  EXPECT_EQ(get(paths[1]).status, 200);
  EXPECT_NE(get("/metrics").body.find("\nmstar_stored_images_dropped_total 1\n"),
            std::string::npos);
}

TEST(Server, PicturesAreKeptOnlyIfTheOperatorWants) {
  TestServer server({}, {}, {.images = {.max_bytes = 0}});
  server.set_ready();
  const HttpResponse refused = server.call(images_by_url(1));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("--image-store-mb"), std::string::npos);
}

// Wherever a request may name media, the same rules hold.
TEST(Server, MediaAreFetchedByTheSameRulesEverywhere) {
  ApiOptions listed;
  listed.media.allowed_domains = {"127.0.0.1", "localhost", "media.example"};
  TestServer open({}, {}, std::move(listed));
  TestServer closed;
  open.set_ready();
  closed.set_ready();

  struct Asked {
    std::string path;
    std::string type;
    std::string before;
    std::string behind;
  };

  const std::string form = "application/x-www-form-urlencoded";
  const std::string json = "application/json";
  const std::vector<Asked> routes = {
      {"/v1/chat/completions",
       json,
       R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":")",
       R"("}}]}]})"},
      {"/v1/images/edits", json, R"({"prompt":"a","image":")", R"("})"},
      {"/v1/images/edits", json, R"({"prompt":"a","image":[{"image_url":")", R"("}]})"},
      {"/v1/videos", json, R"({"prompt":"a","input_reference":")", R"("})"},
      {"/v1/videos/sync", json, R"({"prompt":"a","input_reference":{"url":")", R"("}})"},
      {"/v1/videos/generations", json, R"({"prompt":"a","image":")", R"("})"},
      {"/v1/videos/generations", form, "prompt=a&image=", ""},
      {"/v1/audio/transcriptions", json, R"({"file":")", R"("})"},
      {"/generate", form, "text=a&files=", ""},
  };
  const auto ask = [](const TestServer& server, const Asked& route, const std::string& url) {
    return server.call({.method = "POST",
                        .path = route.path,
                        .headers = {{"Content-Type", route.type}},
                        .body = str_cat(route.before, url, route.behind)});
  };
  for (const Asked& route : routes) {
    const HttpResponse off = ask(closed, route, "http://media.example/a.png");
    EXPECT_EQ(off.status, 400) << route.path << off.body;
    EXPECT_NE(off.body.find("fetching remote media is off"), std::string::npos) << off.body;
    const HttpResponse other = ask(open, route, "http://other.example/a.png");
    EXPECT_EQ(other.status, 400) << route.path;
    EXPECT_NE(other.body.find("is not one that media are fetched from"), std::string::npos)
        << other.body;
    for (const char* url : {"http://127.0.0.1:1/a.png", "http://localhost:1/a.png"}) {
      const HttpResponse inside = ask(open, route, url);
      EXPECT_EQ(inside.status, 400) << route.path;
      EXPECT_NE(inside.body.find("public"), std::string::npos) << inside.body;
    }
    const HttpResponse file = ask(open, route, "file:///etc/passwd");
    EXPECT_EQ(file.status, 400) << route.path;
    EXPECT_NE(file.body.find("local files are not read"), std::string::npos) << file.body;
  }
}

TEST(Server, DeletingAVideoStopsIt) {
  TestServer server;
  server.set_ready();
  HttpCall call{.method = "POST",
                .path = "/v1/videos",
                .headers = {{"Content-Type", "application/json"}},
                .body = R"({"prompt":"wait"})"};
  const Json job = Json::parse(server.call(call).body, "job");
  const std::string path = "/v1/videos/" + job.at("id").get_string();
  EXPECT_EQ(server.call({.path = path + "/content"}).status, 400);
  const HttpResponse deleted = server.call({.method = "DELETE", .path = path});
  EXPECT_EQ(Json::parse(deleted.body, "job").at("status").get_string(), "cancelled");
  server.backend().wait_cancelled(1);
  EXPECT_EQ(Json::parse(server.call({.path = path}).body, "job").at("status").get_string(),
            "cancelled");
  server.call({.method = "DELETE", .path = path});
  EXPECT_EQ(server.call({.path = path}).status, 404);
}

TEST(Server, StopLetsAnswersEnd) {
  TestServer server;
  server.set_ready();
  EXPECT_EQ(server.call(server.chat("say a", true)).status, 200);
  EXPECT_TRUE(server.http().stop(std::chrono::seconds(5)));
  EXPECT_EQ(server.http().num_connections(), 0);
  EXPECT_THROW(server.call({.path = "/health"}), Error);
}

}  // namespace
}  // namespace mstar

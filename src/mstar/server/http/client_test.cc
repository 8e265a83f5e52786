#include "mstar/server/http/client.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>
#include <thread>

#include "mstar/base/str_cat.h"
#include "mstar/server/http/server.h"

namespace mstar {
namespace {

// As a process finds it that was paused while it waited, or that something samples.
TEST(HttpClient, SignalsDoNotEndAnAnswer) {
  using SignalAction = struct sigaction;
  SignalAction action = {};
  SignalAction before = {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR2, &action, &before), 0);
  const pthread_t client = ::pthread_self();
  HttpServer server(
      {.port = 0},
      [](const HttpRequest&) { return std::nullopt; },
      [&](const HttpRequest&, const std::shared_ptr<ResponseWriter>& writer) {
        writer->start(200, {});
        for (int part = 0; part < 10; ++part) {
          for (int count = 0; count < 20; ++count) {
            ::pthread_kill(client, SIGUSR2);
            std::this_thread::yield();
          }
          writer->write("part ");
        }
        writer->finish();
      });
  HttpCall call;
  call.path = "/";
  const HttpUrl url = HttpUrl::parse(str_cat("http://127.0.0.1:", server.port()));
  std::string expected;
  for (int part = 0; part < 10; ++part) {
    expected += "part ";
  }
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(http_call(url, call).body, expected);
  }
  ::sigaction(SIGUSR2, &before, nullptr);
}

}  // namespace
}  // namespace mstar

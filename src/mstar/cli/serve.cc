// `mstar serve`: HTTP until a signal comes.
#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/commands.h"
#include "mstar/cli/loaded_model.h"
#include "mstar/server/api.h"
#include "mstar/server/http/server.h"
#include "mstar/server/runtime_backend.h"

namespace mstar {

namespace {

// Waits for SIGINT and SIGTERM on a thread of its own: the first is for wait(), the second ends
// the process at once. Must be made before other threads, which inherit the blocked signals.
class StopSignal {
 public:
  StopSignal() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::thread([this] { run(); }).detach();  // ends with the process
  }

  // From here on the first signal is waited for; before, it ends the process (nothing is running
  // that could drain).
  void arm() {
    const std::lock_guard lock(mutex_);
    armed_ = true;
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return came_; });
  }

 private:
  [[noreturn]] static void leave() {
    std::fputs("mstar: stopped\n", stderr);
    std::_Exit(130);
  }

  void run() {
    while (true) {
      int signal = 0;
      sigwait(&signals_, &signal);
      const std::lock_guard lock(mutex_);
      if (came_ || !armed_) {
        leave();
      }
      came_ = true;
      changed_.notify_all();
    }
  }

  sigset_t signals_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool armed_ = false;
  bool came_ = false;
};

std::vector<Flag> serve_flags() {
  std::vector<Flag> flags = model_flags();
  const std::vector<Flag> own = {
      {.name = "host", .value = "ADDRESS", .fallback = "127.0.0.1", .help = "to listen on"},
      {.name = "port", .value = "PORT", .fallback = "8000", .help = "to listen on; 0: any"},
      {.name = "api-key", .value = "KEY", .help = "clients must send it", .repeats = true},
      {.name = "api-key-file", .value = "FILE", .help = "one key a line"},
      {.name = "no-auth", .help = "listen on other addresses without a key"},
      {.name = "served-model-name", .value = "NAME", .help = "what clients call the model"},
      {.name = "allowed-origins", .value = "LIST", .help = "pages that may call, or *"},
      {.name = "max-body-mb", .value = "MB", .fallback = "64", .help = "largest request"},
      {.name = "max-connections", .value = "N", .fallback = "1024", .help = "at the same time"},
      {.name = "max-choices", .value = "N", .fallback = "16", .help = "largest n"},
      {.name = "shutdown-timeout",
       .value = "SECONDS",
       .fallback = "30",
       .help = "for running requests after SIGTERM"},
  };
  flags.insert(flags.begin(), own.begin(), own.end());
  return flags;
}

Access read_access(const Flags& flags) {
  std::vector<std::string> keys = flags.get_all("api-key");
  std::erase(keys, "");
  if (flags.has("api-key-file")) {
    for (std::string& key : read_api_keys(flags.get("api-key-file"))) {
      keys.push_back(std::move(key));
    }
  }
  if (keys.empty() && !is_loopback(flags.get("host")) && !flags.get_bool("no-auth")) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[command line] --host ",
                        flags.get("host"),
                        " can be reached from other machines: give --api-key, or --no-auth if "
                        "everybody may use it"));
  }
  return {std::move(keys), split_list(flags.get("allowed-origins"))};
}

HttpServerOptions read_http_options(const Flags& flags) {
  HttpServerOptions options;
  options.host = flags.get("host");
  options.port = static_cast<uint16_t>(flags.get_int("port", 0, 65535));
  options.max_body_bytes = static_cast<size_t>(flags.get_int("max-body-mb", 1, 65536)) << 20;
  options.max_connections = static_cast<int>(flags.get_int("max-connections", 1, 1 << 20));
  return options;
}

}  // namespace

int serve_command(const std::vector<std::string>& words) {
  Flags flags("serve", serve_flags());
  flags.parse(words);
  if (flags.get_bool("help")) {
    std::printf("mstar serve [MODEL] [options]\n\n%s", flags.help().c_str());
    return 0;
  }
  if (flags.positionals().size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, "[command line] serve: one model at a time");
  }
  const auto timeout =
      std::chrono::milliseconds(flags.get_int("shutdown-timeout", 0, 86400) * 1000);
  StopSignal& stop = *new StopSignal;  // its thread uses it until the process ends
  ApiOptions api_options;
  api_options.version = version_text();
  api_options.max_choices = flags.get_int("max-choices", 1, 4096);
  Api api(api_options, read_access(flags));
  std::optional<LoadedModel> loaded;  // ends before the API that its requests answer through
  std::optional<HttpServer> http;
  OpenedModel opened =
      open_from_flags(flags, flags.positionals().empty() ? "" : flags.positionals().front());
  // Listens while it loads, so that /health and /ready say what is going on.
  http.emplace(
      read_http_options(flags),
      [&api](const HttpRequest& request) { return api.guard(request); },
      [&api](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
        api.handle(std::move(request), std::move(writer));
      });
  ProgressBar bar(true);
  loaded.emplace(load_model(std::move(opened), bar));
  auto backend = std::make_shared<RuntimeBackend>(
      *loaded->opened.model, *loaded->runtime, *loaded->service, flags.get("served-model-name"));
  stop.arm();
  api.context().set_backend(backend);
  std::fprintf(stderr,
               "mstar %s: serving %s on http://%s:%d\n",
               version_text().c_str(),
               backend->description().name.c_str(),
               flags.get("host").c_str(),
               http->port());
  stop.wait();
  std::fputs("mstar: draining; a second signal ends at once\n", stderr);
  api.context().set_draining();
  const bool drained = loaded->runtime->conductor().drain(timeout);
  http->stop(std::chrono::seconds(5));  // for answers on their way
  http.reset();
  api.finish();
  std::fputs(drained ? "mstar: drained\n" : "mstar: requests were cut off\n", stderr);
  return 0;
}

}  // namespace mstar

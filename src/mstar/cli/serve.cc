// `mstar serve`: HTTP until a signal comes.
#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "mstar/base/error.h"
#include "mstar/base/log.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/commands.h"
#include "mstar/cli/loaded_model.h"
#include "mstar/server/api.h"
#include "mstar/server/http/server.h"
#include "mstar/server/live_feed.h"
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
      {.name = "allowed-media-domains",
       .value = "LIST",
       .help = "hosts that media may be fetched from; none when not given"},
      {.name = "allowed-local-media-path",
       .value = "FOLDER",
       .help = "where file: media may lie; nowhere when not given"},
      {.name = "max-media-mb", .value = "MB", .fallback = "64", .help = "largest of such media"},
      {.name = "media-timeout", .value = "SECONDS", .fallback = "10", .help = "for fetching one"},
      {.name = "image-store-mb",
       .value = "MB",
       .fallback = "256",
       .help = "of pictures kept for response_format url; 0: none"},
      {.name = "image-store-count", .value = "N", .fallback = "1024", .help = "of such pictures"},
      {.name = "image-store-seconds",
       .value = "SECONDS",
       .fallback = "3600",
       .help = "that such a picture is kept"},
      {.name = "request-timeout",
       .value = "SECONDS",
       .fallback = "0",
       .help = "most that a request may take; 0: any"},
      {.name = "seed", .value = "N", .help = "of requests that bring none, in order of arrival"},
      {.name = "metrics-compat", .value = "NAMES", .help = "vllm: /metrics has its names too"},
      {.name = "log-level",
       .value = "LEVEL",
       .fallback = "info",
       .help = "debug, info, warning, error or off"},
      {.name = "log-format", .value = "FORMAT", .fallback = "text", .help = "text or json"},
      {.name = "log-stats", .help = "a line about load and throughput every ten seconds"},
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

MediaAccessOptions read_media_options(const Flags& flags) {
  MediaAccessOptions options;
  options.allowed_domains = split_list(flags.get("allowed-media-domains"));
  options.local_folder = flags.get("allowed-local-media-path");
  options.fetch.max_bytes = static_cast<size_t>(flags.get_int("max-media-mb", 1, 65536)) << 20;
  options.fetch.timeout = std::chrono::seconds(flags.get_int("media-timeout", 1, 3600));
  return options;
}

ApiOptions read_api_options(const Flags& flags) {
  ApiOptions options;
  options.version = version_text();
  options.max_choices = flags.get_int("max-choices", 1, 4096);
  options.media = read_media_options(flags);
  options.images.max_bytes = static_cast<size_t>(flags.get_int("image-store-mb", 0, 65536)) << 20;
  options.images.max_count = static_cast<size_t>(flags.get_int("image-store-count", 1, 1 << 20));
  options.images.max_age = std::chrono::seconds(flags.get_int("image-store-seconds", 1, 7 * 86400));
  if (flags.has("metrics-compat")) {
    if (flags.get("metrics-compat") != "vllm") {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[command line] --metrics-compat: found \"",
                          flags.get("metrics-compat"),
                          "\", expected vllm"));
    }
    options.vllm_metrics = true;
  }
  return options;
}

// Writes a line about the load from time to time, until it is destroyed. Idle times have none.
class StatsLog {
 public:
  StatsLog(ServerContext& context, const Backend& backend)
      : context_(context), backend_(backend), thread_([this] { run(); }) {}

  ~StatsLog() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  StatsLog(const StatsLog&) = delete;
  StatsLog& operator=(const StatsLog&) = delete;

 private:
  void run() {
    constexpr std::chrono::seconds kInterval{10};
    int64_t num_tokens = context_.metrics().num_generated_tokens();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kInterval, [this] { return stop_; })) {
      const BackendStats stats = backend_.stats();
      const int64_t now = context_.metrics().num_generated_tokens();
      if (stats.num_running > 0 || stats.num_waiting > 0 || now != num_tokens) {
        int64_t num_pages = 0;
        int64_t num_free = 0;
        for (const BackendStats::Cache& cache : stats.caches) {
          num_pages += cache.num_pages;
          num_free += cache.num_free;
        }
        log_line(LogLevel::kInfo,
                 "stats",
                 {{"running", stats.num_running},
                  {"waiting", stats.num_waiting},
                  {"tokens_per_second",
                   static_cast<double>(now - num_tokens) / static_cast<double>(kInterval.count())},
                  {"kv_pages", num_pages},
                  {"kv_pages_free", num_free}});
      }
      num_tokens = now;
    }
  }

  ServerContext& context_;
  const Backend& backend_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

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
  set_log(parse_log_level(flags.get("log-level"), "command line --log-level"),
          parse_log_format(flags.get("log-format"), "command line --log-format"));
  StopSignal& stop = *new StopSignal;  // its thread uses it until the process ends
  Api api(read_api_options(flags), read_access(flags));
  std::optional<LoadedModel> loaded;  // ends before the API that its requests answer through
  std::optional<HttpServer> http;
  OpenedModel opened =
      open_from_flags(flags, flags.positionals().empty() ? "" : flags.positionals().front());
  opened.service.request_timeout =
      std::chrono::seconds(flags.get_int("request-timeout", 0, 7 * 86400));
  RuntimeBackendOptions backend_options{.served_name = flags.get("served-model-name")};
  if (flags.has("seed")) {
    backend_options.seed =
        static_cast<uint64_t>(flags.get_int("seed", 0, std::numeric_limits<int64_t>::max()));
  }
  opened.options.listeners.push_back(&api.live());
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
      *loaded->opened.model, *loaded->runtime, *loaded->service, backend_options);
  stop.arm();
  api.context().set_backend(backend);
  std::fprintf(stderr,
               "mstar %s: serving %s on http://%s:%d\n",
               version_text().c_str(),
               backend->description().name.c_str(),
               flags.get("host").c_str(),
               http->port());
  std::optional<StatsLog> stats_log;
  if (flags.get_bool("log-stats")) {
    stats_log.emplace(api.context(), *backend);
  }
  stop.wait();
  std::fputs("mstar: draining; a second signal ends at once\n", stderr);
  api.context().set_draining();
  api.live().close();
  const bool drained = loaded->runtime->conductor().drain(timeout);
  http->stop(std::chrono::seconds(5));  // for answers on their way
  http.reset();
  api.finish();
  std::fputs(drained ? "mstar: drained\n" : "mstar: requests were cut off\n", stderr);
  return 0;
}

}  // namespace mstar

#include "mstar/server/api.h"

#include <atomic>
#include <chrono>
#include <cmath>

#include "mstar/base/log.h"
#include "mstar/base/str_cat.h"
#include "mstar/server/api_error.h"
#include "mstar/server/live_feed.h"
#include "mstar/server/openai/video_jobs.h"

namespace mstar {

namespace {

// Adds what every answer carries (CORS), counts it and logs it.
class FinishingWriter final : public ResponseWriter {
 public:
  FinishingWriter(std::shared_ptr<ResponseWriter> inner,
                  ServerContext& context,
                  const HttpRequest& request,
                  const Router::Route* route,
                  HttpHeaders extra)
      : inner_(std::move(inner)),
        context_(context),
        method_(request.method),
        path_(request.path.substr(0, kLongestLoggedPath)),
        // What asks for the server's state comes all the time.
        level_(route != nullptr && route->is_quick ? LogLevel::kDebug : LogLevel::kInfo),
        route_(route != nullptr ? str_cat(route->method, " ", route->pattern) : "none"),
        extra_(std::move(extra)) {}

  void send(HttpResponse response) override {
    context_.metrics().count_http(route_, response.status);
    status_ = response.status;
    add_extra(response.headers);
    inner_->send(std::move(response));
    log("served");
  }

  void start(int status, HttpHeaders headers) override {
    context_.metrics().count_http(route_, status);
    status_ = status;
    add_extra(headers);
    inner_->start(status, std::move(headers));
  }

  void write(std::string_view data) override { inner_->write(data); }

  void finish() override {
    inner_->finish();
    log("streamed");
  }

  void abort() override {
    inner_->abort();
    log("aborted");
  }

  void on_disconnect(std::function<void()> callback) override {
    inner_->on_disconnect(std::move(callback));
  }

  void on_backpressure(std::function<void(bool)> callback) override {
    inner_->on_backpressure(std::move(callback));
  }

 private:
  static constexpr size_t kLongestLoggedPath = 256;

  void log(std::string_view what) const {
    if (log_enabled(level_)) {
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
      log_line(level_,
               what,
               {{"method", method_},
                {"path", path_},
                {"status", status_.load()},
                {"milliseconds", std::round(passed.count() * 1e4) / 10.0}});
    }
  }

  void add_extra(HttpHeaders& headers) const {
    for (const auto& [name, value] : extra_.fields()) {
      headers.add(name, value);
    }
  }

  const std::shared_ptr<ResponseWriter> inner_;
  ServerContext& context_;
  const std::string method_;
  const std::string path_;
  const LogLevel level_;
  const std::string route_;
  const HttpHeaders extra_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::atomic<int> status_ = 0;
};

void run_handler(ServerContext& context,
                 const Router::Route& route,
                 const HttpRequest& request,
                 const std::shared_ptr<ResponseWriter>& writer) {
  try {
    route.handler(request, writer);
  } catch (const Error& error) {
    // One that names no field is about the body's own type.
    if (error.code() == ErrorCode::kUnsupportedMedia &&
        !error_json(error).at("error").at("param").is_null()) {
      context.metrics().count_media_failure("unknown");
    }
    writer->send(error_response(error));
  } catch (const std::bad_alloc&) {
    writer->send(error_response(Error(ErrorCode::kUnavailable, "[server] out of memory")));
  } catch (const std::exception& error) {
    writer->send(error_response(Error(ErrorCode::kInternal, error.what())));
  }
}

}  // namespace

Api::Api(ApiOptions options, Access access)
    : context_(std::move(options)),
      access_(std::move(access)),
      live_(std::make_unique<LiveFeed>(context_)),
      jobs_(std::make_unique<VideoJobs>(context_)) {
  add_operation_routes(context_, router_);
  add_page_routes(*live_, router_);
  add_generate_route(context_, router_);
  add_chat_route(context_, router_);
  add_text_routes(context_, router_);
  add_image_routes(context_, router_);
  add_video_routes(context_, *jobs_, router_);
  add_audio_routes(context_, router_);
  queue_ = std::make_unique<WorkQueue>(context_.options().num_threads);
}

Api::~Api() {
  finish();
}

void Api::finish() {
  context_.set_draining();
  live_->close();
  queue_.reset();
}

std::optional<HttpResponse> Api::guard(const HttpRequest& request) const {
  if (auto preflight = access_.preflight(request)) {
    return preflight;  // a browser asks without the key
  }
  if (access_.is_allowed(request)) {
    return std::nullopt;
  }
  HttpResponse response =
      error_response(ApiError(ErrorCode::kUnauthenticated,
                              "[server] no or a wrong API key; send \"Authorization: Bearer KEY\"",
                              "",
                              "invalid_api_key"));
  if (request.path == "/" || request.path.starts_with("/walks")) {
    // The page's reader is asked for the key by the browser, which then sends it with every call.
    response.headers = {{"Content-Type", "application/json"},
                        {"WWW-Authenticate", "Basic realm=\"mstar: the API key as password\""}};
  }
  const HttpHeaders cors = access_.cors_headers(request);
  for (const auto& [name, value] : cors.fields()) {
    response.headers.add(name, value);
  }
  return response;
}

void Api::handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const Router::Match match = router_.find(request);
  writer = std::make_shared<FinishingWriter>(
      std::move(writer), context_, request, match.route, access_.cors_headers(request));
  if (match.route == nullptr) {
    HttpResponse response = error_response(Error(
        ErrorCode::kNotFound, str_cat("[server] no route ", request.method, " ", request.path)));
    if (!match.allow.empty()) {
      response.status = 405;
      response.headers.add("Allow", match.allow);
    }
    writer->send(std::move(response));
    return;
  }
  if (match.route->is_quick) {
    run_handler(context_, *match.route, request, writer);
    return;
  }
  // A shared request: a task must be copyable.
  auto shared = std::make_shared<const HttpRequest>(std::move(request));
  queue_->post([this, route = match.route, shared, writer] {
    run_handler(context_, *route, *shared, writer);
  });
}

}  // namespace mstar

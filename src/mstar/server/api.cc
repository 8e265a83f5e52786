#include "mstar/server/api.h"

#include "mstar/base/str_cat.h"
#include "mstar/server/api_error.h"
#include "mstar/server/openai/video_jobs.h"

namespace mstar {

namespace {

// Adds what every answer carries (CORS), and counts it.
class FinishingWriter final : public ResponseWriter {
 public:
  FinishingWriter(std::shared_ptr<ResponseWriter> inner,
                  ServerContext& context,
                  std::string route,
                  HttpHeaders extra)
      : inner_(std::move(inner)),
        context_(context),
        route_(std::move(route)),
        extra_(std::move(extra)) {}

  void send(HttpResponse response) override {
    context_.metrics().count_http(route_, response.status);
    add_extra(response.headers);
    inner_->send(std::move(response));
  }

  void start(int status, HttpHeaders headers) override {
    context_.metrics().count_http(route_, status);
    add_extra(headers);
    inner_->start(status, std::move(headers));
  }

  void write(std::string_view data) override { inner_->write(data); }

  void finish() override { inner_->finish(); }

  void abort() override { inner_->abort(); }

  void on_disconnect(std::function<void()> callback) override {
    inner_->on_disconnect(std::move(callback));
  }

  void on_backpressure(std::function<void(bool)> callback) override {
    inner_->on_backpressure(std::move(callback));
  }

 private:
  void add_extra(HttpHeaders& headers) const {
    for (const auto& [name, value] : extra_.fields()) {
      headers.add(name, value);
    }
  }

  const std::shared_ptr<ResponseWriter> inner_;
  ServerContext& context_;
  const std::string route_;
  const HttpHeaders extra_;
};

void run_handler(const Router::Route& route,
                 const HttpRequest& request,
                 const std::shared_ptr<ResponseWriter>& writer) {
  try {
    route.handler(request, writer);
  } catch (const Error& error) {
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
      jobs_(std::make_unique<VideoJobs>(context_)) {
  add_operation_routes(context_, router_);
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
  const HttpHeaders cors = access_.cors_headers(request);
  for (const auto& [name, value] : cors.fields()) {
    response.headers.add(name, value);
  }
  return response;
}

void Api::handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const Router::Match match = router_.find(request);
  const std::string label =
      match.route != nullptr ? str_cat(match.route->method, " ", match.route->pattern) : "none";
  writer = std::make_shared<FinishingWriter>(
      std::move(writer), context_, label, access_.cors_headers(request));
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
    run_handler(*match.route, request, writer);
    return;
  }
  // A shared request: a task must be copyable.
  auto shared = std::make_shared<const HttpRequest>(std::move(request));
  queue_->post([route = match.route, shared, writer] { run_handler(*route, *shared, writer); });
}

}  // namespace mstar

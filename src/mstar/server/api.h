#pragma once

#include <memory>
#include <optional>
#include <string>

#include "mstar/runtime/work_queue.h"
#include "mstar/server/context.h"
#include "mstar/server/http/access.h"
#include "mstar/server/http/router.h"
#include "mstar/server/http/server.h"

namespace mstar {

class LiveFeed;
class VideoJobs;

// All routes of the server over one model: the OpenAI API, mstar's own, and operations. Give
// guard() and handle() to an HttpServer, which must end before this does. Thread-safe.
class Api {
 public:
  Api(ApiOptions options, Access access);
  ~Api();

  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  ServerContext& context() { return context_; }

  // What the runtime tells of its steps, for GET /walks/live.
  LiveFeed& live() { return *live_; }

  // Refuses requests without a key.
  std::optional<HttpResponse> guard(const HttpRequest& request) const;

  void handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer);

  // Refuses new requests and returns when no handler is at work any more. Afterwards the backend
  // may go; handle() must not be called again.
  void finish();

 private:
  ServerContext context_;
  const Access access_;
  std::unique_ptr<LiveFeed> live_;
  std::unique_ptr<VideoJobs> jobs_;
  Router router_;
  std::unique_ptr<WorkQueue> queue_;  // runs handlers; last, for they use the rest
};

// ---- one function for each group of routes

void add_operation_routes(ServerContext& context, Router& router);  // health … walks
void add_page_routes(LiveFeed& live, Router& router);               // the page and its live feed
void add_generate_route(ServerContext& context, Router& router);    // mstar's own
void add_text_routes(ServerContext& context, Router& router);       // completions, tokenize
void add_chat_route(ServerContext& context, Router& router);
void add_image_routes(ServerContext& context, Router& router);
void add_video_routes(ServerContext& context, VideoJobs& jobs, Router& router);
void add_audio_routes(ServerContext& context, Router& router);

}  // namespace mstar

// GET / and GET /walks/live: the page, and what it draws.
#include "mstar/server/answer.h"
#include "mstar/server/api.h"
#include "mstar/server/live_feed.h"

namespace mstar {

extern const std::string_view kPageHtml;  // page/index.html, made by cmake/embed_file.cmake

void add_page_routes(LiveFeed& live, Router& router) {
  router.add({.method = "GET",
              .pattern = "/",
              .handler =
                  [](const HttpRequest&, const std::shared_ptr<ResponseWriter>& writer) {
                    // Everything is in the one file: nothing else may be loaded or run.
                    writer->send({.status = 200,
                                  .headers = {{"Content-Type", "text/html; charset=utf-8"},
                                              {"Cache-Control", "no-cache"},
                                              {"X-Content-Type-Options", "nosniff"},
                                              {"X-Frame-Options", "DENY"},
                                              {"Referrer-Policy", "no-referrer"},
                                              {"Content-Security-Policy",
                                               "default-src 'none'; style-src 'unsafe-inline'; "
                                               "script-src 'unsafe-inline'; connect-src 'self'; "
                                               "img-src data: blob:; media-src data: blob:; "
                                               "base-uri 'none'; form-action 'none'"}},
                                  .body = std::string(kPageHtml)});
                  },
              .is_quick = true});
  router.add(
      {.method = "GET",
       .pattern = "/walks/live",
       .handler =
           [&live](const HttpRequest& request, const std::shared_ptr<ResponseWriter>& writer) {
             if (request.method == "HEAD") {
               writer->start(200, sse_headers());
               writer->finish();
             } else {
               live.subscribe(writer);
             }
           },
       .is_quick = true});
}

}  // namespace mstar

#include "mstar/server/openai/media_events.h"

#include "mstar/base/str_cat.h"

namespace mstar {

void MediaEvents::open() {
  if (!started_) {
    started_ = true;
    writer().start(200, sse_headers());
  }
}

void MediaEvents::send(std::string_view kind, const Json& data) {
  open();
  Json event = Json::object({{"type", str_cat(prefix_, ".", kind)}});
  for (const auto& [name, value] : data.get_object()) {
    event.set(name, value);
  }
  writer().write(sse_event(event));
}

void MediaEvents::progress(size_t index, std::string_view, int64_t iteration, int64_t limit) {
  if (limit > 0) {
    send("progress", Json::object({{"index", index}, {"step", iteration}, {"num_steps", limit}}));
  }
}

void MediaEvents::done(size_t, const Completion&) {
  open();
}

void MediaEvents::all_done() {
  writer().write(kSseDone);
  writer().finish();
}

void MediaEvents::failed(const Error& error) {
  if (!started_) {
    writer().send(error_response(error));
    return;
  }
  writer().write(sse_event(error_json(error)));
  writer().finish();
}

}  // namespace mstar

#include "mstar/server/live_feed.h"

#include <chrono>

#include "mstar/server/answer.h"
#include "mstar/server/context.h"

namespace mstar {

namespace {

constexpr std::chrono::milliseconds kBetweenEvents{100};

}  // namespace

LiveFeed::LiveFeed(ServerContext& context) : context_(context), thread_([this] { run(); }) {}

LiveFeed::~LiveFeed() {
  close();
  thread_.join();
}

void LiveFeed::close() {
  std::map<uint64_t, Subscriber> leaving;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    leaving.swap(subscribers_);
  }
  changed_.notify_all();
  for (const auto& [id, subscriber] : leaving) {
    subscriber.writer->finish();
  }
}

// Needs the lock.
void LiveFeed::touch() {
  if (!dirty_) {
    dirty_ = true;
    changed_.notify_all();
  }
}

void LiveFeed::on_step(const StepRecord& step) {
  const std::lock_guard lock(mutex_);
  for (const RequestKey request : step.requests) {
    const auto found = requests_.find(request);
    if (found != requests_.end()) {
      found->second.node = step.node;
      found->second.walk = step.walk;
      ++found->second.num_steps;
    }
  }
  if (subscribers_.empty()) {
    return;
  }
  Work& work = nodes_[{std::string(step.node), std::string(step.walk)}];
  ++work.num_steps;
  work.num_rows += static_cast<int64_t>(step.requests.size());
  work.seconds += step.seconds;
  touch();
}

void LiveFeed::on_request(RequestKey request, const std::string& request_id, RequestPhase phase) {
  const std::lock_guard lock(mutex_);
  switch (phase) {
    case RequestPhase::kQueued: requests_[request].request_id = request_id; break;
    case RequestPhase::kStarted: break;
    case RequestPhase::kDone:
    case RequestPhase::kFailed:
    case RequestPhase::kCancelled: requests_.erase(request); break;
  }
  touch();
}

void LiveFeed::subscribe(const std::shared_ptr<ResponseWriter>& writer) {
  writer->start(200, sse_headers());
  uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      id = ++next_subscriber_;
      subscribers_[id] = {writer, false};
      dirty_ = true;
    }
  }
  if (id == 0) {
    writer->finish();
    return;
  }
  // Not under the lock: both may call back at once.
  writer->on_disconnect([this, id] {
    const std::lock_guard lock(mutex_);
    subscribers_.erase(id);
  });
  writer->on_backpressure([this, id](bool paused) {
    const std::lock_guard lock(mutex_);
    const auto found = subscribers_.find(id);
    if (found != subscribers_.end()) {
      found->second.paused = paused;
    }
  });
  changed_.notify_all();
}

std::string LiveFeed::take_event() {
  Json requests = Json::array();
  for (const auto& [key, place] : requests_) {
    requests.push_back(Json::object({{"key", key},
                                     {"id", place.request_id},
                                     {"node", place.node},
                                     {"walk", place.walk},
                                     {"steps", place.num_steps}}));
  }
  Json nodes = Json::array();
  for (const auto& [name, work] : nodes_) {
    nodes.push_back(Json::object({{"node", name.first},
                                  {"walk", name.second},
                                  {"steps", work.num_steps},
                                  {"rows", work.num_rows},
                                  {"seconds", work.seconds}}));
  }
  nodes_.clear();
  Json event = Json::object({{"requests", std::move(requests)}, {"nodes", std::move(nodes)}});
  if (const auto backend = context_.find_backend()) {
    const BackendStats stats = backend->stats();
    Json caches = Json::array();
    for (const BackendStats::Cache& cache : stats.caches) {
      caches.push_back(Json::object({{"name", cache.name},
                                     {"worker", cache.worker},
                                     {"pages", cache.num_pages},
                                     {"free", cache.num_free},
                                     {"prefix", cache.num_prefix},
                                     {"prefix_hits", cache.num_prefix_hits}}));
    }
    event.set("running", stats.num_running);
    event.set("waiting", stats.num_waiting);
    event.set("caches", std::move(caches));
  }
  event.set("tokens", context_.metrics().num_generated_tokens());
  return sse_event(event);
}

void LiveFeed::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closed_ || (dirty_ && !subscribers_.empty()); });
    if (closed_) {
      return;
    }
    dirty_ = false;
    const std::string event = take_event();
    std::vector<std::shared_ptr<ResponseWriter>> writers;
    for (const auto& [id, subscriber] : subscribers_) {
      if (!subscriber.paused) {
        writers.push_back(subscriber.writer);
      }
    }
    lock.unlock();
    for (const auto& writer : writers) {
      writer->write(event);
    }
    lock.lock();
    changed_.wait_for(lock, kBetweenEvents, [this] { return closed_; });
  }
}

}  // namespace mstar

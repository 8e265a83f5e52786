#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/runtime/listener.h"
#include "mstar/server/http/server.h"

namespace mstar {

class ServerContext;

// What GET /walks/live sends: server-sent events that say where every request is in the walks, what
// the nodes did since the event before, and the load. An event follows a change, at most ten a
// second; nothing is sent while nothing happens. Listens to the runtime. Thread-safe.
class LiveFeed final : public RuntimeListener {
 public:
  explicit LiveFeed(ServerContext& context);
  ~LiveFeed() override;

  LiveFeed(const LiveFeed&) = delete;
  LiveFeed& operator=(const LiveFeed&) = delete;

  void on_step(const StepRecord& step) override;
  void on_request(RequestKey request, const std::string& request_id, RequestPhase phase) override;

  // Starts the answer and keeps it going until the client leaves or close().
  void subscribe(const std::shared_ptr<ResponseWriter>& writer);

  // Ends all streams and takes no further ones. Once.
  void close();

 private:
  struct Place {
    std::string request_id;
    std::string node;
    std::string walk;
    int64_t num_steps = 0;
  };

  struct Work {
    int64_t num_steps = 0;
    int64_t num_rows = 0;
    double seconds = 0.0;
  };

  struct Subscriber {
    std::shared_ptr<ResponseWriter> writer;
    bool paused = false;
  };

  void run();
  void touch();
  std::string take_event();  // needs the lock

  ServerContext& context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<RequestKey, Place> requests_;
  std::map<std::pair<std::string, std::string>, Work> nodes_;  // (node, walk) since the last event
  std::map<uint64_t, Subscriber> subscribers_;
  uint64_t next_subscriber_ = 0;
  bool dirty_ = false;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace mstar

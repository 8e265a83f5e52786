#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "mstar/base/json.h"
#include "mstar/server/context.h"

namespace mstar {

// Videos that are made while nobody waits: started by one request, asked for by others. Keeps a
// bounded number of them and of bytes; the oldest finished ones go first. Thread-safe.
class VideoJobs {
 public:
  explicit VideoJobs(ServerContext& context) : context_(context) {}

  // Starts a job and describes it. Throws Error(kResourceExhausted) when all places are taken by
  // jobs that still run.
  Json start(Backend& backend, ModelRequest request);

  Json list() const;
  // These throw Error(kNotFound) for an unknown id.
  Json get(std::string_view id) const;
  // The MP4. Throws Error(kInvalidArgument) while it is not completed.
  std::shared_ptr<const std::string> content(std::string_view id) const;
  // Stops the computation, or forgets what is finished; describes it.
  Json remove(std::string_view id);

 private:
  class Job;

  std::shared_ptr<Job> find(std::string_view id) const;
  void make_room();  // mutex_ is held

  ServerContext& context_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<Job>> jobs_;  // oldest first; guarded by mutex_
};

}  // namespace mstar

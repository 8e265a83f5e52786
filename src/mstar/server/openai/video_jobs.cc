#include "mstar/server/openai/video_jobs.h"

#include <algorithm>

#include "mstar/base/str_cat.h"
#include "mstar/server/api_error.h"

namespace mstar {

// One video in the making. The model's threads write, handlers read.
class VideoJobs::Job final : public ChunkSink {
 public:
  Job(std::string id, std::string model, Json parameters)
      : id_(std::move(id)), model_(std::move(model)), parameters_(std::move(parameters)) {}

  const std::string& id() const { return id_; }

  void set_ticket(const std::shared_ptr<RunningRequest>& ticket) {
    {
      const std::lock_guard lock(mutex_);
      if (is_running()) {
        ticket_ = ticket;
        return;
      }
    }
    ticket->cancel();
  }

  void on_chunk(OutputChunk chunk) override {
    const std::lock_guard lock(mutex_);
    if (chunk.modality == Modality::kVideo) {
      video_ += chunk.data;
    }
  }

  void on_progress(std::string_view, int64_t iteration, int64_t limit) override {
    const std::lock_guard lock(mutex_);
    if (is_running()) {
      status_ = "in_progress";
      if (limit > 0) {  // 100 is for a video that is there
        progress_ = std::max(progress_, std::clamp<int64_t>(iteration * 100 / limit, 0, 99));
      }
    }
  }

  void on_done(const Completion&) override {
    const std::lock_guard lock(mutex_);
    ticket_.reset();  // it keeps the request alive, which keeps this alive
    if (!is_running()) {
      return;
    }
    if (video_.empty()) {
      status_ = "failed";
      error_ = error_json(Error(ErrorCode::kInternal, "[videos] the model made no video"));
      return;
    }
    status_ = "completed";
    progress_ = 100;
    completed_at_ = unix_seconds();
    content_ = std::make_shared<const std::string>(std::move(video_));
  }

  void on_error(ErrorCode code, const std::string& message) override {
    const std::lock_guard lock(mutex_);
    ticket_.reset();
    if (is_running()) {
      status_ = code == ErrorCode::kCancelled ? "cancelled" : "failed";
      error_ = error_json(Error(code, message));
    }
  }

  // False when it was over already.
  bool cancel() {
    std::shared_ptr<RunningRequest> ticket;
    {
      const std::lock_guard lock(mutex_);
      if (!is_running()) {
        return false;
      }
      status_ = "cancelled";
      ticket = std::move(ticket_);
    }
    if (ticket != nullptr) {
      ticket->cancel();
    }
    return true;
  }

  bool is_over() const {
    const std::lock_guard lock(mutex_);
    return !is_running();
  }

  size_t size_bytes() const {
    const std::lock_guard lock(mutex_);
    return video_.size() + (content_ != nullptr ? content_->size() : 0);
  }

  std::shared_ptr<const std::string> content() const {
    const std::lock_guard lock(mutex_);
    return content_;
  }

  Json describe() const {
    const std::lock_guard lock(mutex_);
    Json out = Json::object({{"id", id_},
                             {"object", "video"},
                             {"created_at", created_at_},
                             {"completed_at", completed_at_ > 0 ? Json(completed_at_) : Json()},
                             {"status", status_},
                             {"progress", progress_},
                             {"model", model_}});
    for (const char* name : {"size", "seconds", "width", "height"}) {
      if (const Json* value = parameters_.find(name)) {
        out.set(name, *value);
      }
    }
    out.set("error", error_.is_null() ? error_ : error_.at("error"));
    return out;
  }

 private:
  bool is_running() const { return status_ == "queued" || status_ == "in_progress"; }

  const std::string id_;
  const std::string model_;
  const Json parameters_;
  const int64_t created_at_ = unix_seconds();

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<RunningRequest> ticket_;
  std::string status_ = "queued";
  int64_t progress_ = 0;
  int64_t completed_at_ = 0;
  std::string video_;
  std::shared_ptr<const std::string> content_;
  Json error_;
};

Json VideoJobs::start(Backend& backend, ModelRequest request) {
  auto job =
      std::make_shared<Job>(request.request_id, backend.description().name, request.parameters);
  {
    const std::lock_guard lock(mutex_);
    make_room();
    jobs_.push_back(job);
  }
  auto sink = context_.metrics().measure(request, job);
  job->set_ticket(backend.submit(std::move(request), std::move(sink), true));
  return job->describe();
}

void VideoJobs::make_room() {
  size_t num_bytes = 0;
  for (const auto& job : jobs_) {
    num_bytes += job->size_bytes();
  }
  const ApiOptions& options = context_.options();
  while (static_cast<int64_t>(jobs_.size()) >= options.max_stored_jobs ||
         num_bytes > options.max_stored_bytes) {
    const auto oldest = std::ranges::find_if(jobs_, [](const auto& job) { return job->is_over(); });
    if (oldest == jobs_.end()) {
      throw Error(ErrorCode::kResourceExhausted,
                  "[videos] all places are taken by videos that still run");
    }
    num_bytes -= (*oldest)->size_bytes();
    jobs_.erase(oldest);
  }
}

std::shared_ptr<VideoJobs::Job> VideoJobs::find(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(jobs_, [&](const auto& job) { return job->id() == id; });
  if (found == jobs_.end()) {
    throw Error(ErrorCode::kNotFound, str_cat("[videos] no video \"", id, "\""));
  }
  return *found;
}

Json VideoJobs::list() const {
  const std::lock_guard lock(mutex_);
  Json data = Json::array();
  for (auto job = jobs_.rbegin(); job != jobs_.rend(); ++job) {
    data.push_back((*job)->describe());
  }
  return Json::object({{"object", "list"}, {"data", std::move(data)}, {"has_more", false}});
}

Json VideoJobs::get(std::string_view id) const {
  return find(id)->describe();
}

std::shared_ptr<const std::string> VideoJobs::content(std::string_view id) const {
  auto content = find(id)->content();
  if (content == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[videos] \"", id, "\" is not completed"));
  }
  return content;
}

Json VideoJobs::remove(std::string_view id) {
  const auto job = find(id);
  if (!job->cancel()) {
    const std::lock_guard lock(mutex_);
    jobs_.remove(job);
    return Json::object({{"id", job->id()}, {"object", "video.deleted"}, {"deleted", true}});
  }
  return job->describe();
}

}  // namespace mstar

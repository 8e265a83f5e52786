#include "mstar/runtime/service.h"

#include <mutex>
#include <utility>
#include <vector>

#include "mstar/base/str_cat.h"

namespace mstar {

void ChunkSink::on_started() {}

void ChunkSink::on_progress(std::string_view, int64_t, int64_t) {}

// One request between the conductor and its sink. Events arrive on the conductor's thread and are
// worked off by the queue's threads, one at a time: writing a chunk may mean encoding a clip.
class Service::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(const Model& model,
          Conductor& conductor,
          WorkQueue& queue,
          std::shared_ptr<ChunkSink> sink,
          bool report_progress)
      : model_(model),
        conductor_(conductor),
        queue_(queue),
        sink_(std::move(sink)),
        report_progress_(report_progress) {}

  void prepare(const ModelRequest& request);
  void on_output(size_t part, OutputEvent event);
  void cancel();
  void time_out(std::chrono::milliseconds limit);
  void set_paused(bool paused);

 private:
  class PartSink;

  using PartEvent = std::pair<size_t, OutputEvent>;

  void start_part(size_t part);
  void submit(std::shared_ptr<const PreparedRequest> prepared);
  void work();
  void handle(OutputEvent& event);
  void write(std::vector<OutputChunk> chunks);
  void end_part();
  void end_well();
  void end_badly(ErrorCode code, const std::string& message);

  const Model& model_;
  Conductor& conductor_;
  WorkQueue& queue_;
  const std::shared_ptr<ChunkSink> sink_;
  const bool report_progress_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<PartEvent> events_;
  bool working_ = false;  // a task for the events is queued or running
  RequestKey key_ = 0;
  bool cancelled_ = false;
  bool paused_ = false;
  std::chrono::milliseconds timed_out_after_{0};  // 0: it has time left

  // Touched by one task at a time.
  std::vector<std::shared_ptr<const PreparedRequest>> parts_;  // mostly one
  size_t part_ = 0;                                            // that runs
  std::unique_ptr<OutputStream> stream_;                       // of that part
  std::string finish_reason_;
  int64_t num_prompt_tokens_ = 0;     // of the parts so far
  int64_t num_generated_tokens_ = 0;  // of this part
  int64_t num_tokens_before_ = 0;     // of earlier parts
  bool ended_ = false;
};

// Tells the session's parts apart: the last events of one may come when the next has begun.
class Service::Session::PartSink final : public OutputSink {
 public:
  PartSink(std::shared_ptr<Session> session, size_t part)
      : session_(std::move(session)), part_(part) {}

  void on_output(OutputEvent event) override { session_->on_output(part_, std::move(event)); }

 private:
  const std::shared_ptr<Session> session_;
  const size_t part_;
};

void Service::Session::prepare(const ModelRequest& request) {
  try {
    for (PreparedRequest& part : model_.process_parts(request)) {
      parts_.push_back(std::make_shared<const PreparedRequest>(std::move(part)));
    }
    start_part(0);
  } catch (const Error& error) {
    end_badly(error.code(), error.what());
  } catch (const std::exception& error) {
    end_badly(ErrorCode::kInternal, error.what());
  }
}

void Service::Session::start_part(size_t part) {
  part_ = part;
  stream_ = model_.make_output_stream(*parts_[part]);
  num_prompt_tokens_ += parts_[part]->num_prompt_tokens;
  submit(parts_[part]);
}

void Service::Session::submit(std::shared_ptr<const PreparedRequest> prepared) {
  // Held over the submission, so that a cancel either comes before it or knows the key.
  const std::lock_guard lock(mutex_);
  if (cancelled_) {
    throw Error(ErrorCode::kCancelled, "[service] cancelled while its prompt was read");
  }
  key_ = conductor_.submit(std::move(prepared),
                           std::make_shared<PartSink>(shared_from_this(), part_),
                           report_progress_,
                           part_ > 0);
  if (paused_) {
    conductor_.set_paused(key_, true);
  }
}

void Service::Session::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (key_ != 0) {
    conductor_.cancel(key_);
  }
}

void Service::Session::time_out(std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    timed_out_after_ = limit;
  }
  cancel();  // what comes of it says why
}

void Service::Session::set_paused(bool paused) {
  const std::lock_guard lock(mutex_);
  if (paused_ != paused) {
    paused_ = paused;
    if (key_ != 0) {
      conductor_.set_paused(key_, paused);
    }
  }
}

void Service::Session::on_output(size_t part, OutputEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.emplace_back(part, std::move(event));
    if (working_) {
      return;
    }
    working_ = true;
  }
  queue_.post([self = shared_from_this()] { self->work(); });
}

void Service::Session::work() {
  std::vector<PartEvent> events;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (events_.empty()) {
        working_ = false;
        return;
      }
      std::swap(events, events_);
    }
    for (auto& [part, event] : events) {
      if (ended_ || part != part_) {
        continue;
      }
      try {
        handle(event);
      } catch (const Error& error) {
        end_badly(error.code(), error.what());
        cancel();
      } catch (const std::exception& error) {
        end_badly(ErrorCode::kInternal, error.what());
        cancel();
      }
    }
    events.clear();
  }
}

void Service::Session::handle(OutputEvent& event) {
  num_generated_tokens_ = event.num_generated_tokens;
  switch (event.kind) {
    case OutputEvent::Kind::kStarted:
      if (part_ == 0) {
        sink_->on_started();
      }
      break;
    case OutputEvent::Kind::kEmit:
      write(stream_->write(event.modality, event.name, event.tensors));
      if (stream_->is_finished()) {  // nothing further will be shown: no need to compute it
        RequestKey key = 0;
        {
          const std::lock_guard lock(mutex_);
          key = key_;
        }
        end_part();
        conductor_.cancel(key);
      }
      break;
    case OutputEvent::Kind::kProgress:
      sink_->on_progress(event.name, event.iteration, event.limit);
      break;
    case OutputEvent::Kind::kDone:
      write(stream_->finish());
      end_part();
      break;
    case OutputEvent::Kind::kFailed: end_badly(event.code, event.message); break;
  }
}

void Service::Session::write(std::vector<OutputChunk> chunks) {
  for (OutputChunk& chunk : chunks) {
    if (!chunk.finish_reason.empty() && finish_reason_ != "length") {
      finish_reason_ = chunk.finish_reason;
    }
    if (part_ + 1 < parts_.size()) {
      chunk.finish_reason.clear();  // the answer goes on
    }
    for (const auto& [name, value] : parts_[part_]->chunk_metadata.get_object()) {
      chunk.metadata.set(name, value);
    }
    sink_->on_chunk(std::move(chunk));
  }
}

void Service::Session::end_part() {
  num_tokens_before_ += num_generated_tokens_;
  num_generated_tokens_ = 0;
  if (part_ + 1 < parts_.size()) {
    parts_[part_].reset();  // its tensors
    start_part(part_ + 1);
  } else {
    end_well();
  }
}

void Service::Session::end_well() {
  ended_ = true;
  sink_->on_done({.finish_reason = finish_reason_.empty() ? "stop" : finish_reason_,
                  .num_prompt_tokens = num_prompt_tokens_,
                  .num_generated_tokens = num_tokens_before_});
}

void Service::Session::end_badly(ErrorCode code, const std::string& message) {
  ended_ = true;
  std::chrono::milliseconds limit{0};
  {
    const std::lock_guard lock(mutex_);
    limit = timed_out_after_;
  }
  if (code == ErrorCode::kCancelled && limit.count() > 0) {
    sink_->on_error(ErrorCode::kUnavailable,
                    str_cat("[service] the request took longer than ",
                            static_cast<double>(limit.count()) / 1000.0,
                            " s, the most that this server allows"));
  } else {
    sink_->on_error(code, message);
  }
}

void Service::Ticket::cancel() {
  if (session_ != nullptr) {
    session_->cancel();
  }
}

void Service::Ticket::set_paused(bool paused) {
  if (session_ != nullptr) {
    session_->set_paused(paused);
  }
}

Service::Service(const Model& model, Conductor& conductor, ServiceOptions options)
    : model_(model), conductor_(conductor), queue_(options.num_threads) {
  if (options.request_timeout.count() > 0) {
    alarm_ = std::make_unique<Alarm>(options.request_timeout);
  }
}

Service::~Service() {
  alarm_.reset();
  conductor_.drain(std::chrono::milliseconds(0));  // no event comes after this
}

Service::Ticket Service::submit(ModelRequest request,
                                std::shared_ptr<ChunkSink> sink,
                                bool report_progress) {
  auto session =
      std::make_shared<Session>(model_, conductor_, queue_, std::move(sink), report_progress);
  if (alarm_ != nullptr) {
    alarm_->add([weak = std::weak_ptr(session), limit = alarm_->delay()] {
      if (const auto late = weak.lock()) {
        late->time_out(limit);
      }
    });
  }
  queue_.post([session, request = std::move(request)] { session->prepare(request); });
  return Ticket(std::move(session));
}

}  // namespace mstar

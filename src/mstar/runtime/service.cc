#include "mstar/runtime/service.h"

#include <mutex>
#include <vector>

#include "mstar/base/str_cat.h"

namespace mstar {

void ChunkSink::on_progress(std::string_view, int64_t, int64_t) {}

// One request between the conductor and its sink. Events arrive on the conductor's thread and are
// worked off by the queue's threads, one at a time: writing a chunk may mean encoding a clip.
class Service::Session : public OutputSink, public std::enable_shared_from_this<Session> {
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
  void on_output(OutputEvent event) override;
  void cancel();
  void set_paused(bool paused);

 private:
  void submit(std::shared_ptr<const PreparedRequest> prepared);
  void work();
  void handle(OutputEvent& event);
  void write(std::vector<OutputChunk> chunks);
  void end_well();
  void end_badly(ErrorCode code, const std::string& message);

  const Model& model_;
  Conductor& conductor_;
  WorkQueue& queue_;
  const std::shared_ptr<ChunkSink> sink_;
  const bool report_progress_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<OutputEvent> events_;
  bool working_ = false;  // a task for the events is queued or running
  RequestKey key_ = 0;
  bool cancelled_ = false;
  bool paused_ = false;

  // Touched by one task at a time.
  std::shared_ptr<const PreparedRequest> prepared_;
  std::unique_ptr<OutputStream> stream_;
  std::string finish_reason_;
  int64_t num_generated_tokens_ = 0;
  bool ended_ = false;
};

void Service::Session::prepare(const ModelRequest& request) {
  try {
    auto prepared = std::make_shared<const PreparedRequest>(model_.process_prompt(request));
    stream_ = model_.make_output_stream(*prepared);
    prepared_ = prepared;
    submit(std::move(prepared));
  } catch (const Error& error) {
    end_badly(error.code(), error.what());
  } catch (const std::exception& error) {
    end_badly(ErrorCode::kInternal, error.what());
  }
}

void Service::Session::submit(std::shared_ptr<const PreparedRequest> prepared) {
  // Held over the submission, so that a cancel either comes before it or knows the key.
  const std::lock_guard lock(mutex_);
  if (cancelled_) {
    throw Error(ErrorCode::kCancelled, "[service] cancelled while its prompt was read");
  }
  key_ = conductor_.submit(std::move(prepared), shared_from_this(), report_progress_);
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

void Service::Session::set_paused(bool paused) {
  const std::lock_guard lock(mutex_);
  if (paused_ != paused) {
    paused_ = paused;
    if (key_ != 0) {
      conductor_.set_paused(key_, paused);
    }
  }
}

void Service::Session::on_output(OutputEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    if (working_) {
      return;
    }
    working_ = true;
  }
  queue_.post([self = shared_from_this()] { self->work(); });
}

void Service::Session::work() {
  std::vector<OutputEvent> events;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (events_.empty()) {
        working_ = false;
        return;
      }
      std::swap(events, events_);
    }
    for (OutputEvent& event : events) {
      if (ended_) {
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
    case OutputEvent::Kind::kEmit:
      write(stream_->write(event.modality, event.name, event.tensors));
      if (stream_->is_finished()) {  // nothing further will be shown: no need to compute it
        end_well();
        cancel();
      }
      break;
    case OutputEvent::Kind::kProgress:
      sink_->on_progress(event.name, event.iteration, event.limit);
      break;
    case OutputEvent::Kind::kDone:
      write(stream_->finish());
      end_well();
      break;
    case OutputEvent::Kind::kFailed: end_badly(event.code, event.message); break;
  }
}

void Service::Session::write(std::vector<OutputChunk> chunks) {
  for (OutputChunk& chunk : chunks) {
    if (!chunk.finish_reason.empty()) {
      finish_reason_ = chunk.finish_reason;
    }
    sink_->on_chunk(std::move(chunk));
  }
}

void Service::Session::end_well() {
  ended_ = true;
  sink_->on_done({.finish_reason = finish_reason_.empty() ? "stop" : finish_reason_,
                  .num_prompt_tokens = prepared_->num_prompt_tokens,
                  .num_generated_tokens = num_generated_tokens_});
}

void Service::Session::end_badly(ErrorCode code, const std::string& message) {
  ended_ = true;
  sink_->on_error(code, message);
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

Service::Service(const Model& model, Conductor& conductor, int num_threads)
    : model_(model), conductor_(conductor), queue_(num_threads) {}

Service::~Service() {
  conductor_.drain(std::chrono::milliseconds(0));  // no event comes after this
}

Service::Ticket Service::submit(ModelRequest request,
                                std::shared_ptr<ChunkSink> sink,
                                bool report_progress) {
  auto session =
      std::make_shared<Session>(model_, conductor_, queue_, std::move(sink), report_progress);
  queue_.post([session, request = std::move(request)] { session->prepare(request); });
  return Ticket(std::move(session));
}

}  // namespace mstar

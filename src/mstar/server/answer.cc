#include "mstar/server/answer.h"

#include "mstar/base/str_cat.h"

namespace mstar {

class Answer::Sink final : public ChunkSink {
 public:
  Sink(std::shared_ptr<Answer> answer, size_t index) : answer_(std::move(answer)), index_(index) {}

  void on_chunk(OutputChunk chunk) override { answer_->on_chunk(index_, std::move(chunk)); }

  void on_progress(std::string_view loop, int64_t iteration, int64_t limit) override {
    const std::lock_guard lock(answer_->mutex_);
    if (!answer_->ended_) {
      answer_->progress(index_, loop, iteration, limit);
    }
  }

  void on_done(const Completion& completion) override { answer_->on_done(index_, completion); }

  void on_error(ErrorCode code, const std::string& message) override {
    answer_->on_failed(Error(code, message));
  }

 private:
  const std::shared_ptr<Answer> answer_;
  const size_t index_;
};

void Answer::progress(size_t, std::string_view, int64_t, int64_t) {}

void Answer::run(Backend& backend, std::vector<ModelRequest> requests, bool report_progress) {
  {
    const std::lock_guard lock(mutex_);
    num_open_ = requests.size();
  }
  // Weak: the writer must not keep alive what keeps the writer alive.
  writer_->on_disconnect([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->cancel_all();
    }
  });
  writer_->on_backpressure([weak = weak_from_this()](bool paused) {
    if (const auto self = weak.lock()) {
      self->set_paused(paused);
    }
  });
  for (size_t index = 0; index < requests.size(); ++index) {
    {
      const std::lock_guard lock(tickets_mutex_);
      if (cancelled_) {
        return;
      }
    }
    auto sink = context_.metrics().measure(requests[index],
                                           std::make_shared<Sink>(shared_from_this(), index));
    const auto ticket =
        backend.submit(std::move(requests[index]), std::move(sink), report_progress);
    const std::lock_guard lock(tickets_mutex_);
    if (cancelled_) {
      ticket->cancel();
    } else if (!released_) {
      tickets_.push_back(ticket);
      if (paused_) {
        ticket->set_paused(true);
      }
    }
  }
}

void Answer::on_chunk(size_t index, OutputChunk chunk_in) {
  try {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      chunk(index, std::move(chunk_in));
    }
  } catch (const Error& error) {
    on_failed(error);
  }
}

void Answer::on_done(size_t index, const Completion& completion) {
  try {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      return;
    }
    done(index, completion);
    if (--num_open_ > 0) {
      return;
    }
    all_done();
    ended_ = true;
  } catch (const Error& error) {
    on_failed(error);
    return;
  }
  release();
}

// A ticket keeps its request alive, which keeps its sink and so this alive.
void Answer::release() {
  std::vector<std::shared_ptr<RunningRequest>> tickets;
  const std::lock_guard lock(tickets_mutex_);
  released_ = true;
  tickets.swap(tickets_);
}

void Answer::on_failed(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      return;
    }
    ended_ = true;
    failed(error);
  }
  cancel_all();
}

void Answer::cancel_all() {
  std::vector<std::shared_ptr<RunningRequest>> tickets;
  {
    const std::lock_guard lock(tickets_mutex_);
    cancelled_ = true;
    tickets.swap(tickets_);
  }
  for (const auto& ticket : tickets) {
    ticket->cancel();
  }
}

// Under the lock, so that what a request hears last is what is true.
void Answer::set_paused(bool paused) {
  const std::lock_guard lock(tickets_mutex_);
  paused_ = paused;
  for (const auto& ticket : tickets_) {
    ticket->set_paused(paused);
  }
}

std::string Outcome::text() const {
  std::string text;
  for (const OutputChunk& chunk : chunks) {
    if (chunk.modality == Modality::kText) {
      text += chunk.data;
    }
  }
  return text;
}

std::vector<TokenLogprob> Outcome::logprobs() const {
  std::vector<TokenLogprob> all;
  for (const OutputChunk& chunk : chunks) {
    all.insert(all.end(), chunk.logprobs.begin(), chunk.logprobs.end());
  }
  return all;
}

void DocumentAnswer::chunk(size_t index, OutputChunk chunk) {
  outcomes_[index].chunks.push_back(std::move(chunk));
}

void DocumentAnswer::done(size_t index, const Completion& completion) {
  outcomes_[index].completion = completion;
}

void DocumentAnswer::all_done() {
  writer().send(make_(outcomes_));
}

void DocumentAnswer::failed(const Error& error) {
  writer().send(error_response(error));
}

std::string sse_event(const Json& data) {
  return str_cat("data: ", data.dump(), "\n\n");
}

HttpHeaders sse_headers() {
  return {{"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}};
}

}  // namespace mstar

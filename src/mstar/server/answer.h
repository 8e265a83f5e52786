#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mstar/server/api_error.h"
#include "mstar/server/context.h"
#include "mstar/server/http/server.h"

namespace mstar {

// One HTTP answer made of one or several requests to the model (n choices, several prompts). Ties
// them to the client: a client that goes away cancels them, one that reads slowly pauses them, and
// the first that fails ends all.
//
// Subclasses say how the answer looks; their functions are called one at a time.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(ServerContext& context, std::shared_ptr<ResponseWriter> writer)
      : context_(context), writer_(std::move(writer)) {}

  virtual ~Answer() = default;

  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // Submits the requests; once. What comes of them reaches the functions below by their index.
  void run(Backend& backend, std::vector<ModelRequest> requests, bool report_progress = false);

 protected:
  virtual void chunk(size_t index, OutputChunk chunk) = 0;
  virtual void progress(size_t index, std::string_view loop, int64_t iteration, int64_t limit);
  virtual void done(size_t index, const Completion& completion) = 0;
  virtual void all_done() = 0;                  // every request is done; ends the answer
  virtual void failed(const Error& error) = 0;  // instead of all_done()

  ServerContext& context() { return context_; }

  ResponseWriter& writer() { return *writer_; }

 private:
  class Sink;

  void on_chunk(size_t index, OutputChunk chunk);
  void on_done(size_t index, const Completion& completion);
  void on_failed(const Error& error);
  void cancel_all();
  void release();
  void set_paused(bool paused);

  ServerContext& context_;
  const std::shared_ptr<ResponseWriter> writer_;

  std::mutex mutex_;  // over the functions of subclasses
  // Guarded by mutex_.
  size_t num_open_ = 0;
  bool ended_ = false;

  std::mutex tickets_mutex_;
  // Guarded by tickets_mutex_.
  std::vector<std::shared_ptr<RunningRequest>> tickets_;
  bool cancelled_ = false;
  bool released_ = false;
  bool paused_ = false;
};

// All that one request answered.
struct Outcome {
  std::vector<OutputChunk> chunks;
  Completion completion;

  std::string text() const;  // its text chunks together
  std::vector<TokenLogprob> logprobs() const;
};

// Collects everything and answers with one document.
class DocumentAnswer final : public Answer {
 public:
  // Makes the document; runs on a thread of the service. May throw Error.
  using Make = std::function<HttpResponse(std::vector<Outcome>& outcomes)>;

  DocumentAnswer(ServerContext& context,
                 std::shared_ptr<ResponseWriter> writer,
                 size_t num_requests,
                 Make make)
      : Answer(context, std::move(writer)), outcomes_(num_requests), make_(std::move(make)) {}

 protected:
  void chunk(size_t index, OutputChunk chunk) override;
  void done(size_t index, const Completion& completion) override;
  void all_done() override;
  void failed(const Error& error) override;

 private:
  std::vector<Outcome> outcomes_;
  Make make_;
};

// One server-sent event: "data: …\n\n".
std::string sse_event(const Json& data);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

HttpHeaders sse_headers();

}  // namespace mstar

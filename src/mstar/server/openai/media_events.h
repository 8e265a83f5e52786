#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "mstar/server/answer.h"

namespace mstar {

// An answer of server-sent events for media that take their time: "PREFIX.progress" with the steps
// done of each request, what subclasses send when something is there, and "[DONE]".
class MediaEvents : public Answer {
 public:
  MediaEvents(ServerContext& context,
              std::shared_ptr<ResponseWriter> writer,
              std::string_view prefix)
      : Answer(context, std::move(writer)), prefix_(prefix) {}

 protected:
  // "PREFIX.KIND" with the fields of `data`.
  void send(std::string_view kind, const Json& data);

  void progress(size_t index, std::string_view loop, int64_t iteration, int64_t limit) override;
  void done(size_t index, const Completion& completion) override;
  void all_done() override;
  void failed(const Error& error) override;

 private:
  void open();

  const std::string prefix_;
  bool started_ = false;
};

}  // namespace mstar

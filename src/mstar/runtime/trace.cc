#include "mstar/runtime/trace.h"

#include <cinttypes>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr int kRequestsProcess = 1000;  // behind all workers

// Microseconds with the three digits that steps of a few microseconds need.
std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", seconds * 1e6);
  return text;
}

std::string json_text(std::string_view text) {
  return Json(text).dump();
}

std::string name_event(std::string_view kind, int process, int thread, std::string_view name) {
  return str_cat("{\"ph\":\"M\",\"name\":\"",
                 kind,
                 "\",\"pid\":",
                 process,
                 ",\"tid\":",
                 thread,
                 ",\"args\":{\"name\":",
                 json_text(name),
                 "}}");
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {
  if (file_ == nullptr) {
    throw Error(ErrorCode::kUnavailable, str_cat("[trace] cannot write \"", path, "\""));
  }
  std::fputs("[", file_);
  write(name_event("process_name", kRequestsProcess, 0, "requests"));
}

TraceWriter::~TraceWriter() {
  std::fputs("\n]\n", file_);
  std::fclose(file_);
}

void TraceWriter::write(const std::string& event) {
  std::fputs(is_first_ ? "\n" : ",\n", file_);
  std::fwrite(event.data(), 1, event.size(), file_);
  is_first_ = false;
}

int TraceWriter::row_of(int worker, std::string_view node) {
  const auto [it, is_new] =
      rows_.try_emplace({worker, std::string(node)}, static_cast<int>(rows_.size()) + 1);
  if (is_new) {
    write(name_event("process_name", worker, 0, str_cat("worker ", worker)));
    write(name_event("thread_name", worker, it->second, node));
  }
  return it->second;
}

void TraceWriter::on_step(const StepRecord& step) {
  const double begin = std::chrono::duration<double>(step.begin - start_).count();
  std::string requests;
  for (const RequestKey request : step.requests) {
    requests += str_cat(requests.empty() ? "" : ",", request);
  }
  const std::lock_guard lock(mutex_);
  const int row = row_of(step.worker, step.node);
  write(str_cat("{\"ph\":\"X\",\"name\":",
                json_text(step.walk),
                ",\"cat\":\"step\",\"pid\":",
                step.worker,
                ",\"tid\":",
                row,
                ",\"ts\":",
                microseconds(begin),
                ",\"dur\":",
                microseconds(step.seconds),
                ",\"args\":{\"rows\":",
                step.requests.size(),
                ",\"tokens\":",
                step.num_tokens,
                ",\"kernel_us\":",
                microseconds(step.kernel_seconds),
                ",\"captured\":",
                step.captured ? "true" : "false",
                ",\"requests\":[",
                requests,
                "]}}"));
}

void TraceWriter::on_request(RequestKey request,
                             const std::string& request_id,
                             RequestPhase phase) {
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const auto event = [&](std::string_view kind, std::string_view name) {
    write(str_cat("{\"ph\":\"",
                  kind,
                  "\",\"name\":",
                  json_text(name),
                  ",\"cat\":\"request\",\"id\":",
                  request,
                  ",\"pid\":",
                  kRequestsProcess,
                  ",\"tid\":0,\"ts\":",
                  microseconds(now),
                  ",\"args\":{\"request_id\":",
                  json_text(request_id),
                  ",\"phase\":\"",
                  to_string(phase),
                  "\"}}"));
  };
  const std::lock_guard lock(mutex_);
  switch (phase) {
    case RequestPhase::kQueued:
      event("b", "request");
      event("b", "queue");
      return;
    case RequestPhase::kStarted: event("e", "queue"); return;
    default: event("e", "request"); return;
  }
}

}  // namespace mstar

#include "mstar/cli/golden/case_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <system_error>

#include "mstar/base/str_cat.h"

namespace mstar::golden {

namespace {

// A record in the pipe: the verdict, the summary's length, the summary.
struct RecordHead {
  Verdict verdict;
  uint32_t size;
};

void write_all(int pipe, const void* bytes, size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = write(pipe, at, size);
    if (written < 0 && errno != EINTR) {
      _exit(1);  // the parent is gone
    }
    at += written > 0 ? written : 0;
    size -= written > 0 ? static_cast<size_t>(written) : 0;
  }
}

// False at the end of the pipe.
bool read_all(int pipe, void* bytes, size_t size) {
  auto* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t got = read(pipe, at, size);
    if (got == 0 || (got < 0 && errno != EINTR)) {
      return false;
    }
    at += got > 0 ? got : 0;
    size -= got > 0 ? static_cast<size_t>(got) : 0;
  }
  return true;
}

[[noreturn]] void run_child(int pipe,
                            size_t begin,
                            size_t num_cases,
                            const std::function<RunCase()>& prepare) {
  try {
    const RunCase run = prepare();
    for (size_t index = begin; index < num_cases; ++index) {
      const Outcome outcome = run(index);
      const RecordHead head{outcome.verdict, static_cast<uint32_t>(outcome.summary.size())};
      write_all(pipe, &head, sizeof(head));
      write_all(pipe, outcome.summary.data(), outcome.summary.size());
    }
    _exit(0);
  } catch (const std::exception& error) {
    const std::string line = str_cat(error.what(), "\n");
    write_all(STDERR_FILENO, line.data(), line.size());
    _exit(1);
  }
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    return str_cat("ended the process: ", strsignal(WTERMSIG(status)));
  }
  return str_cat("ended the process with exit code ", WEXITSTATUS(status));
}

// The cases from `begin` on; the first one that was not reported, and why it was not.
size_t run_from(size_t begin,
                size_t num_cases,
                const std::function<RunCase()>& prepare,
                const std::function<void(size_t index, const Outcome& outcome)>& report,
                std::string& why) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) {
    throw std::system_error(errno, std::generic_category(), "[mstar_golden] pipe");
  }
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    throw std::system_error(errno, std::generic_category(), "[mstar_golden] fork");
  }
  if (child == 0) {
    close(ends[0]);
    run_child(ends[1], begin, num_cases, prepare);
  }
  close(ends[1]);
  size_t next = begin;
  RecordHead head{};
  for (Outcome outcome; read_all(ends[0], &head, sizeof(head)); ++next) {
    outcome.verdict = head.verdict;
    outcome.summary.resize(head.size);
    if (!read_all(ends[0], outcome.summary.data(), head.size)) {
      break;
    }
    report(next, outcome);
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  why = how_it_ended(status);
  return next;
}

}  // namespace

void run_in_children(size_t num_cases,
                     const std::function<RunCase()>& prepare,
                     const std::function<void(size_t index, const Outcome& outcome)>& report) {
  for (size_t next = 0; next < num_cases;) {
    std::string why;
    next = run_from(next, num_cases, prepare, report, why);
    if (next < num_cases) {
      report(next, {Verdict::kFail, why});
      ++next;
    }
  }
}

}  // namespace mstar::golden

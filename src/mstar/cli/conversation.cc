#include "mstar/cli/conversation.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/cli/run_sink.h"
#include "mstar/server/encoding.h"

namespace mstar {

namespace {

constexpr int kInterrupted = 130;  // as shells report a program that SIGINT ended
constexpr int kEndSignal = SIGUSR1;

constexpr const char* kCommands =
    "/image FILE, /video FILE, /audio FILE  goes with the next message\n"
    "/clear                                 forgets the conversation\n"
    "/exit                                  or the end of input\n"
    "A line that ends with \\ goes on with the next; Ctrl-C ends an answer.\n";

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, kEndSignal);
  return set;
}

ContentPart text_part(std::string text) {
  return {.text = std::move(text)};
}

// What has been said, and what the next message carries.
class Conversation {
 public:
  explicit Conversation(const ModelRequest& opening) : opening_(opening), said_(opening) {}

  void clear() {
    said_ = opening_;
    next_ = ChatMessage();
  }

  void attach(const std::string& path) {
    MediaItem media = media_from_upload(read_text_file(path), path, path);
    next_.content.push_back(
        {.modality = media.modality, .text = "", .media = static_cast<int>(said_.media.size())});
    said_.media.push_back(std::move(media));
  }

  ModelRequest ask(std::string text) {
    next_.role = "user";
    next_.content.push_back(text_part(std::move(text)));
    said_.messages.push_back(std::exchange(next_, ChatMessage()));
    ModelRequest request = said_;
    request.request_id = str_cat("turn-", ++turns_);
    return request;
  }

  void answered(std::string text) {
    ChatMessage answer;
    answer.role = "assistant";
    answer.content.push_back(text_part(std::move(text)));
    said_.messages.push_back(std::move(answer));
  }

  // The message just asked counts no longer; its pictures may be attached again.
  void take_back() {
    for (const ContentPart& part : said_.messages.back().content) {
      if (part.media >= 0) {
        said_.media.pop_back();  // the last ones, in order
      }
    }
    said_.messages.pop_back();
  }

 private:
  const ModelRequest& opening_;
  ModelRequest said_;
  ChatMessage next_;
  int turns_ = 0;
};

// One message; nothing at the end of input.
std::optional<std::string> read_message(std::istream& in, bool terminal) {
  std::string message;
  for (const char* prompt = "> ";; prompt = ". ") {
    if (terminal) {
      std::fputs(prompt, stderr);
    }
    std::string line;
    if (!std::getline(in, line)) {
      return message.empty() ? std::nullopt : std::optional(message);
    }
    if (!line.ends_with('\\')) {
      return message + line;
    }
    line.back() = '\n';
    message += line;
  }
}

enum class Said : uint8_t { kMessage, kNothing, kExit };

// Carries out what is a command.
Said obey(const std::string& line, Conversation& conversation) {
  if (line.find_first_not_of(" \t\r\n") == std::string::npos) {
    return Said::kNothing;
  }
  if (!line.starts_with('/')) {
    return Said::kMessage;
  }
  const size_t space = line.find(' ');
  const std::string command = line.substr(0, space);
  const std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
  if (command == "/exit") {
    return Said::kExit;
  }
  if (command == "/clear") {
    conversation.clear();
  } else if (command == "/image" || command == "/video" || command == "/audio") {
    try {
      conversation.attach(argument);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  } else {
    std::fputs(kCommands, stderr);
  }
  return Said::kNothing;
}

void print_speed(const RunResult& result) {
  const int64_t tokens = result.completion.num_generated_tokens;
  const double decode = result.seconds - result.first_chunk_seconds;
  if (tokens > 1 && decode > 0.0) {
    std::fprintf(stderr,
                 "[%lld tokens, first after %.2f s, then %.0f a second]\n",
                 static_cast<long long>(tokens),
                 result.first_chunk_seconds,
                 static_cast<double>(tokens - 1) / decode);
  }
}

// One turn.
void answer(LoadedModel& loaded,
            std::string message,
            Conversation& conversation,
            InterruptGuard& interrupts,
            ProgressBar& bar,
            bool terminal) {
  auto sink = std::make_shared<RunSink>(bar, Modality::kText, true);
  interrupts.watch(
      loaded.service->submit(conversation.ask(std::move(message)), sink, /*report_progress=*/true));
  std::optional<Error> error;
  RunResult result;
  try {
    result = sink->wait();
  } catch (const Error& thrown) {
    error = thrown;
  }
  const bool cancelled = interrupts.release();
  std::fputc('\n', stdout);
  std::fflush(stdout);
  if (error && !cancelled) {
    std::fprintf(stderr, "%s\n", error->what());
  }
  if (sink->text().empty()) {
    conversation.take_back();
  } else {
    conversation.answered(sink->text());  // an answer cut short was still said
  }
  if (terminal && !error) {
    print_speed(result);
  }
}

}  // namespace

struct InterruptGuard::State {
  std::mutex mutex;
  std::optional<Service::Ticket> ticket;
  bool cancelled = false;
  sigset_t before;
  std::thread thread;

  void interrupt() {
    const std::lock_guard lock(mutex);
    if (!ticket) {
      const char newline = '\n';
      if (write(STDERR_FILENO, &newline, 1) != 1) {
      }  // nobody is left to tell
      std::_Exit(kInterrupted);
    }
    cancelled = true;
    ticket->cancel();
  }
};

InterruptGuard::InterruptGuard() : state_(std::make_unique<State>()) {
  const sigset_t set = handled_signals();
  pthread_sigmask(SIG_BLOCK, &set, &state_->before);
  state_->thread = std::thread([state = state_.get(), set] {
    for (int signal = 0; sigwait(&set, &signal) == 0 && signal != kEndSignal;) {
      state->interrupt();
    }
  });
}

InterruptGuard::~InterruptGuard() {
  pthread_kill(state_->thread.native_handle(), kEndSignal);
  state_->thread.join();
  pthread_sigmask(SIG_SETMASK, &state_->before, nullptr);
}

void InterruptGuard::watch(const Service::Ticket& ticket) {
  const std::lock_guard lock(state_->mutex);
  state_->ticket = ticket;
  state_->cancelled = false;
}

bool InterruptGuard::release() {
  const std::lock_guard lock(state_->mutex);
  state_->ticket.reset();
  return state_->cancelled;
}

void converse(LoadedModel& loaded,
              const ModelRequest& opening,
              InterruptGuard& interrupts,
              ProgressBar& bar,
              std::istream& in,
              bool terminal) {
  Conversation conversation(opening);
  if (terminal) {
    std::fputs("/help lists what else can be said\n", stderr);
  }
  while (std::optional<std::string> message = read_message(in, terminal)) {
    const Said said = obey(*message, conversation);
    if (said == Said::kExit) {
      return;
    }
    if (said == Said::kMessage) {
      answer(loaded, std::move(*message), conversation, interrupts, bar, terminal);
    }
  }
  if (terminal) {
    std::fputc('\n', stderr);
  }
}

}  // namespace mstar

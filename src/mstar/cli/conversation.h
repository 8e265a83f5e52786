// A conversation on a terminal: `mstar run MODEL` without a prompt.
#pragma once

#include <istream>
#include <memory>

#include "mstar/cli/loaded_model.h"
#include "mstar/cli/progress_bar.h"
#include "mstar/engine/model.h"
#include "mstar/runtime/service.h"

namespace mstar {

// While it lives, SIGINT cancels the request in its hands; with none it ends the program (130).
// Make it before threads that shall not be interrupted: they inherit the blocked signal. Main
// thread only.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();

  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // From now until release() SIGINT cancels `ticket`.
  void watch(const Service::Ticket& ticket);
  // True if it was cancelled.
  bool release();

 private:
  struct State;

  std::unique_ptr<State> state_;
};

// Reads one message a line from `in` (a line that ends with \ goes on with the next) until its end
// or /exit, and prints each answer to standard output. `opening` holds the system message, the
// parameters and the modalities of every turn. An error ends its turn, not the conversation.
void converse(LoadedModel& loaded,
              const ModelRequest& opening,
              InterruptGuard& interrupts,
              ProgressBar& bar,
              std::istream& in,
              bool terminal);

}  // namespace mstar

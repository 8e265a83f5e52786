#include "mstar/runtime/worker/worker.h"

#include <utility>
#include <variant>

namespace mstar {

void Worker::run() {
  while (true) {
    Scheduler::Work work = scheduler_.next();
    if (auto* batch = std::get_if<StepBatch>(&work)) {
      engine_.execute(*batch);
      scheduler_.complete(std::move(*batch));
    } else if (const auto* command = std::get_if<ExecutorCommand>(&work)) {
      obey(*command);
    } else {
      return;
    }
  }
}

void Worker::obey(const ExecutorCommand& command) {
  if (command.kind == ExecutorCommand::Kind::kRemove) {
    engine_.remove_request(command.handle);
    scheduler_.removed(command.request);
    return;
  }
  try {
    const auto handle = engine_.try_ingest_request(command.prepared->resource_configs);
    if (handle) {
      scheduler_.opened(command.request, *handle);
    } else {
      scheduler_.open_later(command);
    }
  } catch (const Error& error) {
    scheduler_.open_failed(command.request, error.code(), error.what());
  } catch (const std::exception& error) {
    scheduler_.open_failed(command.request, ErrorCode::kInternal, error.what());
  }
}

}  // namespace mstar

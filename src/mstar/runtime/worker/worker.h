#pragma once

#include <memory>
#include <thread>

#include "mstar/engine/engine.h"
#include "mstar/runtime/worker/scheduler.h"

namespace mstar {

// A thread that runs one engine's steps as its scheduler hands them out. The engine is this
// thread's alone from construction to destruction.
class Worker {
 public:
  // Both outlive the worker. Destroy only after Scheduler::stop() and the removal of every request.
  Worker(Engine& engine, Scheduler& scheduler)
      : engine_(engine), scheduler_(scheduler), thread_([this] { run(); }) {}

  ~Worker() { thread_.join(); }

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

 private:
  void run();
  void obey(const ExecutorCommand& command);

  Engine& engine_;
  Scheduler& scheduler_;
  std::thread thread_;
};

}  // namespace mstar

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "mstar/base/check.h"
#include "mstar/base/thread_pool.h"
#include "mstar/tensor/stream.h"

namespace mstar {

// The ops of one captured step, in order. One thread: the stream's.
class CpuGraph : public CapturedGraph {
 public:
  void replay() override;

  int num_ops() const override { return static_cast<int>(ops_.size()); }

  // Name and number of tasks of every op, for traces and tests: "rms_norm x4".
  std::vector<std::string> op_names() const;

 private:
  friend class CpuStream;

  struct Op {
    void (*run)(void* params, int task);
    void* params;
    int num_tasks;
    const char* name;
  };

  explicit CpuGraph(ThreadPool& pool, std::shared_ptr<CachingAllocator> memory)
      : pool_(pool), memory_(std::move(memory)) {}

  void* keep(const void* params, size_t size_bytes);

  ThreadPool& pool_;
  std::shared_ptr<CachingAllocator> memory_;
  std::vector<Op> ops_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;  // parameters of the ops, bump-allocated
  size_t chunk_used_ = 0;
};

// Runs each op at once on the pool; while capturing, also writes it down.
class CpuStream : public Stream {
 public:
  explicit CpuStream(ThreadPool& pool) : pool_(pool) {}

  Device device() const override { return {}; }

  Allocator& allocator() override {
    return capture_ ? static_cast<Allocator&>(*capture_->memory_) : temporaries_;
  }

  void synchronize() override {}  // ops have run when enqueue() returns

  void begin_capture(std::shared_ptr<CachingAllocator> memory = nullptr) override;
  std::unique_ptr<CapturedGraph> end_capture() override;

  bool is_capturing() const override { return capture_ != nullptr; }

  ThreadPool& pool() const { return pool_; }

  // Threads an op can count on; how many tasks it makes is its own choice.
  int num_threads() const { return pool_.num_threads(); }

  // One op: kernel(params, task) for every task in [0, num_tasks), concurrently. Params is a
  // plain struct of pointers and numbers: a capture keeps a copy of its bytes. `name` must be a
  // literal.
  //
  //   struct Params { const float* x; float* y; int64_t n; };
  //   stream.enqueue("copy", 4, Params{x, y, n}, [](const Params& p, int task) { … });
  //
  // The kernel is a function or a captureless lambda. It must not throw, allocate or log.
  template <typename Params, typename Kernel>
  void enqueue(const char* name, int num_tasks, const Params& params, Kernel kernel) {
    static_assert(std::is_trivially_copyable_v<Params>, "a capture copies the bytes");
    static_assert(std::is_empty_v<Kernel> || std::is_same_v<Kernel, void (*)(const Params&, int)>,
                  "captureless: everything an op needs is in its params");
    if constexpr (std::is_empty_v<Kernel>) {
      enqueue_raw(name, num_tasks, &params, sizeof(Params), [](void* p, int task) {
        Kernel{}(*static_cast<const Params*>(p), task);
      });
    } else {
      const Bound<Params> bound{params, kernel};
      enqueue_raw(name, num_tasks, &bound, sizeof(bound), [](void* p, int task) {
        const auto* b = static_cast<const Bound<Params>*>(p);
        b->kernel(b->params, task);
      });
    }
  }

  CachingAllocator::Stats memory_stats() const { return temporaries_.stats(); }

 private:
  template <typename Params>
  struct Bound {
    Params params;
    void (*kernel)(const Params&, int);
  };

  void enqueue_raw(const char* name,
                   int num_tasks,
                   const void* params,
                   size_t params_bytes,
                   void (*run)(void* params, int task));

  ThreadPool& pool_;
  CachingAllocator temporaries_;
  std::unique_ptr<CpuGraph> capture_;
};

// The CPU side of an op's device switch: a check that `stream` is one.
inline CpuStream& as_cpu(Stream& stream) {
  MSTAR_CHECK(stream.device().is_cpu(), "no kernel for device ", to_string(stream.device()));
  return static_cast<CpuStream&>(stream);
}

}  // namespace mstar

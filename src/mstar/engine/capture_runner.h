#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/engine/batched_model_output.h"
#include "mstar/engine/capture_config.h"
#include "mstar/engine/submodule.h"
#include "mstar/resources/step_runner.h"
#include "mstar/tensor/stream.h"

namespace mstar {

// Handles of requests that fill the padding rows of captured steps. They are opened once in every
// resource and keep what they hold. Executor thread.
class DummyRequests {
 public:
  explicit DummyRequests(std::vector<RequestHandle> handles) : handles_(std::move(handles)) {}

  int size() const { return static_cast<int>(handles_.size()); }

  RequestHandle operator[](int index) const { return handles_[static_cast<size_t>(index)]; }

 private:
  std::vector<RequestHandle> handles_;
};

// What a capture and its replays share with the engine. Everything outlives the runner.
struct CaptureEnvironment {
  NodeSubmodule& submodule;
  const NodeResources& resources;
  StepRunner& step_runner;
  Stream& stream;
  const NameTable& walk_names;
  const DummyRequests& dummies;
  std::shared_ptr<CachingAllocator> graph_memory;  // shared: graphs never run at the same time
};

// The captured steps of one node: one bucket for each (walk, rows, tokens, key) and slot. Records
// them at warm-up, finds the one for a batch, copies its inputs in and replays.
// Executor thread.
class CaptureRunner {
 public:
  CaptureRunner(CaptureEnvironment environment, std::vector<CaptureConfig> configs, int num_slots);
  ~CaptureRunner();

  // Upper bounds of all buckets, for the resources' static buffers.
  CaptureLimits limits() const;

  // Rows of the largest bucket of any config that serves `graph_walk` and caps eager batches; 0
  // when there is none.
  int eager_batch_cap(std::string_view graph_walk) const;

  // Records every bucket that is not lazy, largest first. A bucket that cannot be recorded is
  // dropped with its reason in failures(), unless `require_all`: then the error is thrown.
  void capture_all(bool require_all);

  const std::vector<std::string>& failures() const { return failures_; }

  // Any thread.
  int num_buckets() const { return num_buckets_.load(std::memory_order_relaxed); }

  // The smallest bucket that holds the batch, recorded now if it is lazy and nothing else does;
  // null: run eagerly. The lease is good until the next call of reserve(). Never throws for a
  // bucket that cannot be recorded: see failures().
  const SlotLease* reserve(WalkId walk, int bs, int64_t num_tokens, const CaptureKey& key);

  // Whether the bucket's padding rows keep no pages.
  bool is_lazy(const SlotLease& lease) const;

  // A padding row's inputs for the leased bucket.
  NodeInputs& template_inputs(const SlotLease& lease, int row);

  // Copies `args` into the static buffers of the leased graph and replays it. The result aliases
  // static memory: clone before the next replay.
  const BatchedModelOutput& replay(const SlotLease& lease, const ForwardArgs& args);

  // The ids the leased graph was recorded with: row i of the real batch has outputs under [i].
  std::span<const RequestHandle> recorded_ids(const SlotLease& lease) const;

 private:
  struct Bucket;

  // A bucket that was asked for.
  struct Wanted {
    const CaptureConfig* config;
    int bs;
    int64_t num_tokens;
  };

  Bucket& bucket_of(const SlotLease& lease) const;
  const SlotLease* find(WalkId walk, int bs, int64_t num_tokens, const CaptureKey& key);
  void try_record(const Wanted& wanted);
  void note_failure(const Wanted& wanted, const Error& error);
  int lazy_bucket(const CaptureConfig& config, int bs) const;
  bool record_lazily(WalkId walk, int bs, int64_t num_tokens, const CaptureKey& key);
  bool serves(const CaptureConfig& config, WalkId walk) const;
  void forget_rows(bool declared, Bucket& bucket);
  std::unique_ptr<Bucket> record(const CaptureConfig& config, int bs, int64_t num_tokens, int slot);

  CaptureEnvironment environment_;
  std::vector<CaptureConfig> configs_;
  int num_slots_;
  int next_slot_ = 0;
  std::vector<std::unique_ptr<Bucket>> buckets_;  // by (tokens, bs, slot)
  std::atomic<int> num_buckets_{0};
  SlotLease lease_;
  std::vector<std::string> failures_;
  std::vector<std::pair<const CaptureConfig*, int>> given_up_;  // lazy ones that cannot be recorded
};

}  // namespace mstar

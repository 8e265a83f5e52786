#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mstar/engine/capture_config.h"
#include "mstar/engine/capture_runner.h"

namespace mstar {

// One captured region of a submodule's forward. The surrounding forward asks can_run() and then
// calls run(), which copies the static inputs in, declares, plans and commits the region's own
// step and replays. Executor thread.
//
//   PiecewiseRunner* region = engine_inputs.piecewise_runners[0];
//   if (region->can_run(bs)) { outputs = region->run(inputs, engine_inputs.request_ids, lens); }
class PiecewiseRunner {
 public:
  PiecewiseRunner(CaptureEnvironment environment, PiecewiseConfig config);
  ~PiecewiseRunner();

  const std::string& label() const { return config_.label; }

  // Records every bucket. Throws what recording throws.
  void capture_all();

  // `num_tokens` -1: seq_len a row.
  bool can_run(int batch_size, int64_t num_tokens = -1) const;

  // Runs the region on the front rows of its static buffers. Outputs are copies of their first
  // rows: `batch_size` of them where the leading dim is the bucket's rows, `num_tokens` where it
  // is its tokens. Must not be called when can_run() says no (check). Throws
  // Error(kResourceExhausted) when a resource refuses the region's step.
  NamedTensors run(const NamedTensors& static_inputs,
                   std::span<const RequestHandle> request_ids,
                   std::span<const int64_t> seq_lens);

 private:
  struct Bucket;

  Bucket* find(int batch_size, int64_t num_tokens) const;
  std::unique_ptr<Bucket> record(int batch_size, int64_t num_tokens);

  CaptureEnvironment environment_;
  PiecewiseConfig config_;
  std::vector<std::unique_ptr<Bucket>> buckets_;  // smallest first
};

}  // namespace mstar

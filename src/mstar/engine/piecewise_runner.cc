#include "mstar/engine/piecewise_runner.h"

#include <algorithm>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

struct PiecewiseRunner::Bucket {
  int batch_size = 0;
  int64_t num_tokens = 0;
  NamedTensors inputs;   // static
  NamedTensors outputs;  // static
  std::vector<RequestHandle> ids;
  SubmoduleStep step;
  StepContext context;
  std::unique_ptr<CapturedGraph> graph;
};

namespace {

// Real rows first, the rest zero: padding rows of a region are full-length.
void fill_static(const Tensor& source, const Tensor& target, std::string_view name) {
  bool fits = source.dtype() == target.dtype() && source.num_dims() == target.num_dims() &&
              source.dim(0) <= target.dim(0) && source.is_contiguous();
  for (int dim = 1; fits && dim < source.num_dims(); ++dim) {
    fits = source.dim(dim) == target.dim(dim);
  }
  if (!fits) {
    throw Error(ErrorCode::kInternal,
                str_cat("[piecewise] static input \"",
                        name,
                        "\" is ",
                        target.to_string(),
                        ", the call brings ",
                        source.to_string()));
  }
  if (source.size_bytes() > 0) {
    std::memcpy(target.bytes(), source.bytes(), static_cast<size_t>(source.size_bytes()));
  }
  std::memset(target.bytes() + source.size_bytes(),
              0,
              static_cast<size_t>(target.size_bytes() - source.size_bytes()));
}

}  // namespace

PiecewiseRunner::PiecewiseRunner(CaptureEnvironment environment, PiecewiseConfig config)
    : environment_(std::move(environment)), config_(std::move(config)) {}

PiecewiseRunner::~PiecewiseRunner() = default;

void PiecewiseRunner::capture_all() {
  std::vector<int64_t> lengths = config_.capture_token_lengths;
  for (const int bs : config_.capture_batch_sizes) {
    if (bs > environment_.dummies.size()) {
      continue;
    }
    if (config_.capture_token_lengths.empty()) {
      lengths = {config_.seq_len * bs};
    }
    for (const int64_t num_tokens : lengths) {
      if (num_tokens >= bs) {
        buckets_.push_back(record(bs, num_tokens));
      }
    }
  }
  std::ranges::stable_sort(buckets_, [](const auto& a, const auto& b) {
    return std::pair(a->num_tokens, a->batch_size) < std::pair(b->num_tokens, b->batch_size);
  });
}

std::unique_ptr<PiecewiseRunner::Bucket> PiecewiseRunner::record(int batch_size,
                                                                 int64_t num_tokens) {
  auto bucket = std::make_unique<Bucket>();
  bucket->batch_size = batch_size;
  bucket->num_tokens = num_tokens;
  bucket->inputs = config_.make_static_inputs(batch_size, num_tokens);
  std::vector<int64_t> seq_lens;
  for (int row = 0; row < batch_size; ++row) {
    bucket->ids.push_back(environment_.dummies[row]);
    seq_lens.push_back(num_tokens / batch_size + (row == 0 ? num_tokens % batch_size : 0));
  }
  bucket->context.request_ids = bucket->ids;
  bucket->context.capture = true;
  bucket->context.lease = SlotLease{0, {-1, batch_size, static_cast<int32_t>(num_tokens), {}}};
  const bool declared =
      config_.declare_step && config_.declare_step(bucket->ids, seq_lens, bucket->step);
  StepRunner& runner = environment_.step_runner;
  if (declared) {
    const AdmitOutcome outcome = runner.admit(bucket->step, bucket->context);
    if (!outcome) {
      throw Error(ErrorCode::kResourceExhausted,
                  str_cat("[piecewise] no room to record \"",
                          config_.label,
                          "\" x",
                          batch_size,
                          ": ",
                          to_string(outcome.reason)));
    }
    runner.plan(bucket->step, bucket->context);
    runner.stage(environment_.stream, bucket->step, bucket->context);
  }
  environment_.stream.begin_capture(environment_.graph_memory);
  try {
    bucket->outputs = config_.capture_fn(
        {bucket->inputs, environment_.resources, bucket->context, environment_.stream});
  } catch (...) {
    environment_.stream.end_capture();
    throw;
  }
  bucket->graph = environment_.stream.end_capture();
  if (declared) {
    runner.rollback(bucket->step, bucket->context);
    for (const RequestHandle id : bucket->ids) {
      runner.reset_request(id, false);
    }
  }
  return bucket;
}

PiecewiseRunner::Bucket* PiecewiseRunner::find(int batch_size, int64_t num_tokens) const {
  const bool batched = config_.capture_token_lengths.empty();
  if (num_tokens < 0) {
    num_tokens = config_.seq_len * batch_size;
  }
  if (batched && num_tokens != config_.seq_len * batch_size) {
    return nullptr;
  }
  for (const auto& bucket : buckets_) {
    if (bucket->batch_size >= batch_size && bucket->num_tokens >= num_tokens) {
      return bucket.get();
    }
  }
  return nullptr;
}

bool PiecewiseRunner::can_run(int batch_size, int64_t num_tokens) const {
  return find(batch_size, num_tokens) != nullptr;
}

NamedTensors PiecewiseRunner::run(const NamedTensors& static_inputs,
                                  std::span<const RequestHandle> request_ids,
                                  std::span<const int64_t> seq_lens) {
  const int batch_size = static_cast<int>(request_ids.size());
  int64_t num_tokens = 0;
  for (const int64_t seq_len : seq_lens) {
    num_tokens += seq_len;
  }
  Bucket* bucket = find(batch_size, num_tokens);
  MSTAR_CHECK(
      bucket != nullptr, "region ", config_.label, " x", batch_size, " tokens ", num_tokens);
  for (const auto& [name, list] : bucket->inputs) {
    const TensorList& given = static_inputs.at(name);
    MSTAR_CHECK(given.size() == list.size(), "static input ", name);
    for (size_t index = 0; index < list.size(); ++index) {
      fill_static(given[index], list[index], name);
    }
  }

  // The real head is what moves on; padding rows are dummies that only fill the shape.
  std::vector<RequestHandle> ids(request_ids.begin(), request_ids.end());
  std::vector<int64_t> lens(seq_lens.begin(), seq_lens.end());
  const bool batched = config_.capture_token_lengths.empty();
  for (int row = batch_size; row < bucket->batch_size; ++row) {
    ids.push_back(environment_.dummies[row]);
    lens.push_back(batched ? config_.seq_len : 0);
  }
  SubmoduleStep step;
  StepContext context;
  context.request_ids = ids;
  context.num_real = batch_size;
  context.lease = bucket->context.lease;
  StepRunner& runner = environment_.step_runner;
  const bool declared = config_.declare_step && config_.declare_step(ids, lens, step);
  if (declared) {
    const AdmitOutcome outcome = runner.admit(step, context);
    if (!outcome) {
      throw Error(ErrorCode::kResourceExhausted,
                  str_cat("[piecewise] \"", config_.label, "\": ", to_string(outcome.reason)));
    }
    runner.plan(step, context);
    runner.stage(environment_.stream, step, context);
  }
  bucket->graph->replay();
  if (declared) {
    runner.commit(step, context);
    runner.finish(step, context);
    for (size_t row = request_ids.size(); row < ids.size(); ++row) {
      runner.reset_request(ids[row], false);  // padding rows do not grow
    }
  }

  NamedTensors outputs;
  for (const auto& [name, list] : bucket->outputs) {
    TensorList copies;
    for (const Tensor& tensor : list) {
      int64_t rows = tensor.dim(0);
      if (rows == bucket->num_tokens) {
        rows = num_tokens;
      } else if (rows == bucket->batch_size) {
        rows = batch_size;
      }
      copies.push_back(tensor.slice(0, 0, rows).copy(environment_.stream.allocator()));
    }
    outputs.set(name, std::move(copies));
  }
  return outputs;
}

}  // namespace mstar

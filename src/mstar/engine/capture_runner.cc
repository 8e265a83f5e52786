#include "mstar/engine/capture_runner.h"

#include <algorithm>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

// One recorded step and everything its replay needs at fixed addresses.
struct CaptureRunner::Bucket {
  const CaptureConfig* config = nullptr;
  BucketKey key;
  int slot = 0;
  std::vector<std::unique_ptr<NodeInputs>> templates;  // [bs]
  std::vector<RequestHandle> ids;                      // [bs] dummies it was recorded with
  std::vector<const CurrentForwardPassInfo*> infos;    // [bs]
  CurrentForwardPassInfo info;                         // of every dummy row
  SubmoduleStep step;
  StepContext context;
  ForwardArgs args;           // static inputs
  BatchedModelOutput output;  // static outputs
  std::unique_ptr<CapturedGraph> graph;
};

namespace {

// Copies `source` over the front of `target`: a replay may bring fewer rows than were recorded.
void copy_front(const Tensor& source, const Tensor& target, std::string_view name) {
  bool fits = source.dtype() == target.dtype() && source.num_dims() == target.num_dims() &&
              source.is_contiguous() && target.is_contiguous();
  int first_shorter = 0;
  for (int dim = 0; fits && dim < source.num_dims(); ++dim) {
    fits = source.dim(dim) <= target.dim(dim);
    first_shorter += dim == first_shorter && source.dim(dim) == target.dim(dim) ? 1 : 0;
  }
  if (!fits) {
    throw Error(ErrorCode::kInternal,
                str_cat("[capture] static input \"",
                        name,
                        "\" is ",
                        target.to_string(),
                        ", the batch brings ",
                        source.to_string()));
  }
  if (source.shape() == target.shape() || first_shorter == 0) {
    if (source.size_bytes() > 0) {
      std::memcpy(target.bytes(), source.bytes(), static_cast<size_t>(source.size_bytes()));
    }
    return;
  }
  // The shorter dim is an inner one (positions [3, tokens]): copy run by run.
  int64_t outer = 1;
  for (int dim = 0; dim < first_shorter; ++dim) {
    outer *= source.dim(dim);
  }
  const int64_t from = outer == 0 ? 0 : source.size_bytes() / outer;
  const int64_t to = outer == 0 ? 0 : target.size_bytes() / outer;
  for (int64_t run = 0; run < outer; ++run) {
    std::memcpy(target.bytes() + run * to, source.bytes() + run * from, static_cast<size_t>(from));
  }
}

// Padding rows that keep their pages from one step to the next.
int num_kept_rows(const CaptureConfig& config) {
  const auto& sizes = config.capture_batch_sizes;
  return config.lazy || sizes.empty() ? 0 : std::ranges::max(sizes);
}

int64_t bucket_tokens(const CaptureConfig& config, int bs, int64_t packed_tokens) {
  return config.kind == CaptureConfig::Kind::kBatched ? config.seq_len * bs : packed_tokens;
}

// Tokens of row `row` while a packed bucket is recorded: an even split, the rest on the first row.
int64_t recorded_row_tokens(const CaptureConfig& config, int bs, int64_t num_tokens, int row) {
  if (config.kind == CaptureConfig::Kind::kBatched) {
    return config.seq_len;
  }
  return num_tokens / bs + (row == 0 ? num_tokens % bs : 0);
}

}  // namespace

CaptureRunner::CaptureRunner(CaptureEnvironment environment,
                             std::vector<CaptureConfig> configs,
                             int num_slots)
    : environment_(std::move(environment)), configs_(std::move(configs)), num_slots_(num_slots) {}

CaptureRunner::~CaptureRunner() = default;

CaptureLimits CaptureRunner::limits() const {
  CaptureLimits limits;
  for (const CaptureConfig& config : configs_) {
    for (const int bs : config.capture_batch_sizes) {
      limits.max_bs = std::max(limits.max_bs, bs);
      const int64_t longest =
          config.capture_token_lengths.empty() ? 0 : std::ranges::max(config.capture_token_lengths);
      limits.max_num_tokens = std::max(
          limits.max_num_tokens,
          static_cast<int32_t>(config.tokens_multiplier * bucket_tokens(config, bs, longest)));
    }
  }
  return limits;
}

int CaptureRunner::eager_batch_cap(std::string_view graph_walk) const {
  int cap = 0;
  for (const CaptureConfig& config : configs_) {
    const bool serves =
        config.capture_graph_walk == graph_walk ||
        std::ranges::find(config.replay_graph_walks, graph_walk) != config.replay_graph_walks.end();
    if (serves && config.caps_eager_batch_size && !config.capture_batch_sizes.empty()) {
      cap = std::max(cap, std::ranges::max(config.capture_batch_sizes));
    }
  }
  return cap;
}

void CaptureRunner::capture_all(bool require_all) {
  std::vector<Wanted> wanted;
  for (const CaptureConfig& config : configs_) {
    if (config.lazy) {
      continue;
    }
    for (const int bs : config.capture_batch_sizes) {
      if (config.kind == CaptureConfig::Kind::kBatched) {
        wanted.push_back({&config, bs, config.seq_len * bs});
        continue;
      }
      for (const int64_t tokens : config.capture_token_lengths) {
        if (tokens >= bs) {
          wanted.push_back({&config, bs, tokens});
        }
      }
    }
  }
  // Largest first: the shared memory grows once.
  std::ranges::sort(wanted, [](const Wanted& a, const Wanted& b) {
    return std::pair(a.num_tokens, a.bs) > std::pair(b.num_tokens, b.bs);
  });
  for (const Wanted& one : wanted) {
    try {
      try_record(one);
    } catch (const Error& error) {
      if (require_all) {
        throw;
      }
      note_failure(one, error);
    }
  }
}

// All slots of the bucket.
void CaptureRunner::try_record(const Wanted& wanted) {
  for (int slot = 0; slot < num_slots_; ++slot) {
    buckets_.push_back(record(*wanted.config, wanted.bs, wanted.num_tokens, slot));
  }
  std::ranges::stable_sort(buckets_, [](const auto& a, const auto& b) {
    return std::tuple(a->key.num_tokens, a->key.bs, a->slot) <
           std::tuple(b->key.num_tokens, b->key.bs, b->slot);
  });
  num_buckets_.store(static_cast<int>(buckets_.size()), std::memory_order_relaxed);
}

void CaptureRunner::note_failure(const Wanted& wanted, const Error& error) {
  failures_.push_back(str_cat(wanted.config->capture_graph_walk,
                              " x",
                              wanted.bs,
                              ", ",
                              wanted.num_tokens,
                              " tokens: ",
                              error.what()));
}

std::unique_ptr<CaptureRunner::Bucket> CaptureRunner::record(const CaptureConfig& config,
                                                             int bs,
                                                             int64_t num_tokens,
                                                             int slot) {
  auto bucket = std::make_unique<Bucket>();
  const WalkId walk = environment_.walk_names.get(config.capture_graph_walk);
  bucket->config = &config;
  bucket->slot = slot;
  bucket->key = {walk, bs, static_cast<int32_t>(num_tokens), config.capture_key};
  bucket->info.graph_walk = config.capture_graph_walk;
  MSTAR_CHECK(bs <= environment_.dummies.size(), "bs=", bs);
  std::vector<const NodeInputs*> inputs;
  std::vector<NodeInputs*> mutable_inputs;
  for (int row = 0; row < bs; ++row) {
    bucket->ids.push_back(environment_.dummies[row]);
    bucket->infos.push_back(&bucket->info);
    bucket->templates.push_back(
        config.make_node_input(recorded_row_tokens(config, bs, num_tokens, row)));
    inputs.push_back(bucket->templates.back().get());
    mutable_inputs.push_back(bucket->templates.back().get());
  }

  NodeSubmodule& submodule = environment_.submodule;
  const SlotLease lease{slot, bucket->key};
  const bool declared = submodule.declare_step(
      config.capture_graph_walk, bucket->ids, inputs, &lease, {}, bucket->step);
  if (declared && !(bucket->step.capture_key == config.capture_key)) {
    throw Error(ErrorCode::kInternal,
                str_cat("[capture] the step declares key ",
                        to_string(bucket->step.capture_key),
                        ", its configuration ",
                        to_string(config.capture_key)));
  }
  bucket->context.request_ids = bucket->ids;
  bucket->context.num_real = 0;
  bucket->context.graph_walk = walk;
  bucket->context.slot = slot;
  bucket->context.lease = lease;
  bucket->context.capture = true;
  if (declared) {
    const AdmitOutcome outcome = environment_.step_runner.admit(bucket->step, bucket->context);
    if (!outcome) {
      throw Error(ErrorCode::kResourceExhausted,
                  str_cat("[capture] no room for ", bs, " rows: ", to_string(outcome.reason)));
    }
    environment_.step_runner.plan(bucket->step, bucket->context);
    environment_.step_runner.stage(environment_.stream, bucket->step, bucket->context);
  }

  ModelInputsFromEngine engine_inputs;
  engine_inputs.request_ids = bucket->ids;
  engine_inputs.per_request_info = bucket->infos;
  engine_inputs.resources = &environment_.resources;
  engine_inputs.per_request_states = LazyRequestStates(&submodule, bucket->ids);
  engine_inputs.step = declared ? &bucket->step : nullptr;
  engine_inputs.context = &bucket->context;
  engine_inputs.captured = true;
  engine_inputs.stream = &environment_.stream;
  bucket->args = submodule.preprocess(config.capture_graph_walk, engine_inputs, mutable_inputs);
  for (auto& [name, list] : bucket->args.tensors) {
    for (Tensor& tensor : list) {
      tensor = tensor.copy();  // the graph's own: nothing else may move or free it
    }
  }

  Stream& stream = environment_.stream;
  ForwardArgs recorded = bucket->args;
  stream.begin_capture(environment_.graph_memory);
  try {
    bucket->output = submodule.forward_batched(config.capture_graph_walk, engine_inputs, recorded);
  } catch (...) {
    stream.end_capture();
    forget_rows(declared, *bucket);
    throw;
  }
  bucket->graph = stream.end_capture();
  forget_rows(declared, *bucket);
  return bucket;
}

bool CaptureRunner::serves(const CaptureConfig& config, WalkId walk) const {
  const std::string& name = environment_.walk_names.name(walk);
  return config.capture_graph_walk == name ||
         std::ranges::find(config.replay_graph_walks, name) != config.replay_graph_walks.end();
}

// What recording left in the resources. Rows of buckets made at warm-up keep their pages.
void CaptureRunner::forget_rows(bool declared, Bucket& bucket) {
  if (declared) {
    int num_kept = 0;
    for (const CaptureConfig& config : configs_) {
      num_kept = std::max(num_kept, num_kept_rows(config));
    }
    environment_.step_runner.rollback(bucket.step, bucket.context);
    for (size_t row = 0; row < bucket.ids.size(); ++row) {
      const bool free = bucket.config->lazy && static_cast<int>(row) >= num_kept;
      environment_.step_runner.reset_request(bucket.ids[row], free);
    }
  }
}

const SlotLease* CaptureRunner::find(WalkId walk,
                                     int bs,
                                     int64_t num_tokens,
                                     const CaptureKey& key) {
  for (const auto& bucket : buckets_) {
    const CaptureConfig& config = *bucket->config;
    if (!serves(config, walk) || !(bucket->key.key == key) || !config.fills(bs, bucket->key.bs) ||
        bucket->slot != next_slot_) {
      continue;
    }
    // A batched bucket's padding rows are as long as real ones.
    const bool holds = config.kind == CaptureConfig::Kind::kBatched
                           ? num_tokens == config.seq_len * bs
                           : num_tokens <= bucket->key.num_tokens;
    if (holds) {
      lease_ = {bucket->slot, bucket->key};
      next_slot_ = (next_slot_ + 1) % num_slots_;
      return &lease_;
    }
  }
  return nullptr;
}

// The smallest bucket of a lazy configuration that is recorded for such a batch; 0 when none is.
int CaptureRunner::lazy_bucket(const CaptureConfig& config, int bs) const {
  int best = 0;
  for (const int bucket_bs : config.capture_batch_sizes) {
    const bool fits = config.least_fill > 0.0 ? config.fills(bs, bucket_bs) : bs == bucket_bs;
    if (fits && (best == 0 || bucket_bs < best)) {
      best = bucket_bs;
    }
  }
  return best;
}

// True when a bucket for this batch was recorded. One for which there is no room now may be tried
// again.
bool CaptureRunner::record_lazily(WalkId walk, int bs, int64_t num_tokens, const CaptureKey& key) {
  for (const CaptureConfig& config : configs_) {
    if (!config.lazy || !serves(config, walk) || !(config.capture_key == key) ||
        num_tokens != config.seq_len * bs) {
      continue;
    }
    const int bucket_bs = lazy_bucket(config, bs);
    const std::pair<const CaptureConfig*, int> one{&config, bucket_bs};
    if (bucket_bs == 0 || std::ranges::find(given_up_, one) != given_up_.end()) {
      continue;
    }
    const Wanted wanted{&config, bucket_bs, config.seq_len * bucket_bs};
    try {
      try_record(wanted);
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kResourceExhausted) {
        given_up_.push_back(one);
        note_failure(wanted, error);
      }
    }
  }
  return false;
}

bool CaptureRunner::is_lazy(const SlotLease& lease) const {
  return bucket_of(lease).config->lazy;
}

const SlotLease* CaptureRunner::reserve(WalkId walk,
                                        int bs,
                                        int64_t num_tokens,
                                        const CaptureKey& key) {
  const SlotLease* known = find(walk, bs, num_tokens, key);
  if (known == nullptr && record_lazily(walk, bs, num_tokens, key)) {
    known = find(walk, bs, num_tokens, key);
  }
  return known;
}

CaptureRunner::Bucket& CaptureRunner::bucket_of(const SlotLease& lease) const {
  for (const auto& bucket : buckets_) {
    if (bucket->slot == lease.slot && bucket->key == lease.bucket) {
      return *bucket;
    }
  }
  MSTAR_CHECK(false, "no bucket for lease ", to_string(lease.bucket));
  __builtin_unreachable();
}

NodeInputs& CaptureRunner::template_inputs(const SlotLease& lease, int row) {
  Bucket& bucket = bucket_of(lease);
  return *bucket.templates[static_cast<size_t>(row)];
}

std::span<const RequestHandle> CaptureRunner::recorded_ids(const SlotLease& lease) const {
  return bucket_of(lease).ids;
}

const BatchedModelOutput& CaptureRunner::replay(const SlotLease& lease, const ForwardArgs& args) {
  Bucket& bucket = bucket_of(lease);
  for (const auto& [name, list] : bucket.args.tensors) {
    const TensorList& given = args.tensors.at(name);
    if (given.size() != list.size()) {
      throw Error(ErrorCode::kInternal,
                  str_cat("[capture] static input \"",
                          name,
                          "\" has ",
                          list.size(),
                          " tensors, the batch brings ",
                          given.size()));
    }
    for (size_t index = 0; index < list.size(); ++index) {
      copy_front(given[index], list[index], name);
    }
  }
  bucket.graph->replay();
  return bucket.output;
}

}  // namespace mstar

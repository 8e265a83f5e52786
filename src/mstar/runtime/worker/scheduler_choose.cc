#include <algorithm>
#include <limits>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/runtime/worker/scheduler.h"
#include "mstar/runtime/worker/scheduler_internal.h"

namespace mstar {

using graph::NodeId;
using graph::Signal;
using graph::SignalKind;
using internal::for_each_node;
using internal::node_bit;

// ---- choosing what runs

Scheduler::Share& Scheduler::share_of(uint16_t model_node, uint16_t walk) {
  Share& share = shares_[{model_node, walk}];
  if (share.total.node.empty()) {
    share.total.node = model_.nodes[model_node];
    share.total.walk = model_.walks[walk].name;
  }
  return share;
}

void Scheduler::collect(ActiveRequest& request) {
  if (request.removing || request.paused || request.handle < 0) {
    return;
  }
  for (WalkRun& run : request.runs) {
    if (!run.active || run.blocked > 0) {
      continue;
    }
    if (run.held != 0 && run.held_epoch < epoch_) {
      run.held = 0;
    }
    for_each_node(run.state.ready() & ~run.held, [&](NodeId node) {
      if (run.ready_order[node] == 0) {
        run.ready_order[node] = next_ready_order_++;
      }
      candidates_.push_back({&request,
                             &run,
                             node,
                             run.walk->nodes[node].model_node,
                             run.walk_index,
                             run.ready_order[node]});
    });
  }
}

bool Scheduler::try_make_batch(StepBatch& batch) {
  candidates_.clear();
  for (auto& [key, request] : requests_) {
    collect(*request);
  }
  if (candidates_.empty()) {
    return false;
  }
  // Whose turn: the least served among the ready. One that was idle does not bring savings.
  double floor = std::numeric_limits<double>::infinity();
  for (const auto& [key, share] : shares_) {
    if (share.active) {
      floor = std::min(floor, share.used);
    }
  }
  for (auto& [key, share] : shares_) {
    share.active = false;
  }
  Share* best = nullptr;
  const Candidate* chosen = nullptr;
  const Candidate* last = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (last != nullptr && candidate.is_like(*last)) {
      continue;
    }
    last = &candidate;
    Share& share = share_of(candidate.model_node, candidate.walk_index);
    if (!share.active) {
      share.active = true;
      if (floor < std::numeric_limits<double>::infinity()) {
        share.used = std::max(share.used, floor);
      }
    }
    if (best == nullptr || share.used < best->used) {
      best = &share;
      chosen = &candidate;
    }
  }
  const Candidate like = *chosen;
  std::erase_if(candidates_, [&](const Candidate& candidate) { return !candidate.is_like(like); });
  std::ranges::sort(candidates_, {}, &Candidate::order);

  batch.node = model_.nodes[like.model_node];
  batch.graph_walk = model_.walks[like.walk_index].name;
  const std::string key = policy_.split_key(batch.node, *candidates_.front().run->info);
  if (!key.empty()) {
    std::erase_if(candidates_, [&](const Candidate& candidate) {
      return policy_.split_key(batch.node, *candidate.run->info) != key;
    });
  }
  size_t max_rows =
      static_cast<size_t>(std::max(1, policy_.max_batch_size(batch.node, batch.graph_walk)));
  int64_t row_tokens = 0;
  if (policy_.supports_chunked_prefill(batch.node, batch.graph_walk)) {
    constexpr int64_t kSmallestChunk = 64;
    max_rows = std::min(
        max_rows,
        static_cast<size_t>(std::max<int64_t>(1, options_.max_batch_tokens / kSmallestChunk)));
    row_tokens =
        options_.max_batch_tokens / static_cast<int64_t>(std::min(max_rows, candidates_.size()));
  }
  const size_t num_rows = std::min(candidates_.size(), max_rows);
  batch.rows.resize(num_rows);
  for (size_t row = 0; row < num_rows; ++row) {
    add_row(candidates_[row], batch.rows[row]);
    batch.rows[row].max_tokens = row_tokens;
  }
  return true;
}

void Scheduler::add_row(const Candidate& candidate, BatchRow& row) {
  ActiveRequest& request = *candidate.request;
  WalkRun& run = *candidate.run;
  const graph::CompiledNode& node = run.walk->nodes[candidate.node];
  row.request = request.handle;
  row.info = run.info.get();
  row.tag = static_cast<uint64_t>(run.partition) << 16 | candidate.node;
  const auto ports = run.walk->ports_of(candidate.node);
  signals_.assign(ports.size(), {});
  run.state.begin(candidate.node, signals_);
  for (size_t port = 0; port < ports.size(); ++port) {
    if (signals_[port].kind == SignalKind::kTensors) {
      row.inputs.set(ports[port].name, payloads_.get(signals_[port].payload));
    } else if (signals_[port].kind == SignalKind::kTrigger) {
      row.inputs.set(ports[port].name, TensorList());
    }
  }
  for (graph::LoopId loop = node.scope; loop != graph::kWalkScope;
       loop = run.walk->loops[loop].parent) {
    row.metadata.dynamic_loop_iter_counts.emplace_back(run.walk->loops[loop].name,
                                                       run.state.iteration(loop));
  }
  row.metadata.stream_chunks = run.chunks;
  ++request.in_flight;
}

Scheduler::Work Scheduler::next() {
  std::unique_lock lock(mutex_);
  while (true) {
    flush(lock);
    if (!commands_.empty()) {
      ExecutorCommand command = std::move(commands_.front());
      commands_.erase(commands_.begin());
      return command;
    }
    if (stop_ && requests_.empty()) {
      return std::monostate();
    }
    if (try_make_batch(spare_batch_)) {
      running_ = true;
      flush(lock);
      return std::move(spare_batch_);
    }
    break_deadlock();
    if (!commands_.empty() || !pending_events_.empty()) {
      continue;
    }
    changed_.wait(lock);
  }
}

// When every request waits for room that only another of them could give, the last comer loses.
void Scheduler::break_deadlock() {
  ActiveRequest* youngest = nullptr;
  std::string why;
  for (auto& [key, request] : requests_) {
    if (std::ranges::find(waiting_opens_, key, &ExecutorCommand::request) != waiting_opens_.end()) {
      continue;  // holds nothing that could be given back
    }
    if (request->removing || request->handle < 0) {
      return;  // something will be given back
    }
    bool held = false;
    bool waits_for_conductor = true;
    for (const WalkRun& run : request->runs) {
      held = held || (run.active && run.held != 0);
      waits_for_conductor = waits_for_conductor && !run.active;
    }
    if (waits_for_conductor) {
      return;
    }
    if (held && (youngest == nullptr || key > youngest->key)) {
      youngest = request.get();
    }
  }
  if (youngest != nullptr) {
    fail(*youngest,
         ErrorCode::kResourceExhausted,
         str_cat("[scheduler] no memory left for this request and nothing to wait for: ",
                 youngest->refusal));
  }
}

}  // namespace mstar

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

void Scheduler::collect(ActiveRequest& request, std::vector<Candidate>& candidates) {
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
      candidates.push_back({&request, &run, node, run.ready_order[node]});
    });
  }
}

bool Scheduler::try_make_batch(StepBatch& batch) {
  std::vector<Candidate> candidates;
  for (auto& [key, request] : requests_) {
    collect(*request, candidates);
  }
  if (candidates.empty()) {
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
  std::pair<uint16_t, uint16_t> best_key;
  for (const Candidate& candidate : candidates) {
    const uint16_t model_node = candidate.run->walk->nodes[candidate.node].model_node;
    Share& share = share_of(model_node, candidate.run->walk_index);
    if (!share.active) {
      share.active = true;
      if (floor < std::numeric_limits<double>::infinity()) {
        share.used = std::max(share.used, floor);
      }
    }
    if (best == nullptr || share.used < best->used) {
      best = &share;
      best_key = {model_node, candidate.run->walk_index};
    }
  }
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return std::pair(candidate.run->walk->nodes[candidate.node].model_node,
                     candidate.run->walk_index) != best_key;
  });
  std::ranges::sort(candidates, {}, &Candidate::order);

  const graph::CompiledWalk& walk = model_.walks[best_key.second];
  batch.node = model_.nodes[best_key.first];
  batch.graph_walk = walk.name;
  const std::string key = policy_.split_key(batch.node, *candidates.front().run->info);
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return policy_.split_key(batch.node, *candidate.run->info) != key;
  });
  size_t max_rows =
      static_cast<size_t>(std::max(1, policy_.max_batch_size(batch.node, batch.graph_walk)));
  int64_t row_tokens = 0;
  if (policy_.supports_chunked_prefill(batch.node, batch.graph_walk)) {
    constexpr int64_t kSmallestChunk = 64;
    max_rows = std::min(
        max_rows,
        static_cast<size_t>(std::max<int64_t>(1, options_.max_batch_tokens / kSmallestChunk)));
    row_tokens =
        options_.max_batch_tokens / static_cast<int64_t>(std::min(max_rows, candidates.size()));
  }
  candidates.resize(std::min(candidates.size(), max_rows));
  for (const Candidate& candidate : candidates) {
    add_row(candidate, batch);
    batch.rows.back().max_tokens = row_tokens;
  }
  return true;
}

void Scheduler::add_row(const Candidate& candidate, StepBatch& batch) {
  ActiveRequest& request = *candidate.request;
  WalkRun& run = *candidate.run;
  const graph::CompiledNode& node = run.walk->nodes[candidate.node];
  BatchRow& row = batch.rows.emplace_back();
  row.request = request.handle;
  row.info = run.info.get();
  row.tag = static_cast<uint64_t>(run.partition) << 16 | candidate.node;
  const auto ports = run.walk->ports_of(candidate.node);
  std::vector<Signal> signals(ports.size());
  run.state.begin(candidate.node, signals);
  for (size_t port = 0; port < ports.size(); ++port) {
    if (signals[port].kind == SignalKind::kTensors) {
      const auto tensors = payloads_.get(signals[port].payload);
      row.inputs.set(ports[port].name, TensorList(tensors.begin(), tensors.end()));
    } else if (signals[port].kind == SignalKind::kTrigger) {
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
    StepBatch batch;
    if (try_make_batch(batch)) {
      running_ = true;
      flush(lock);
      return batch;
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

#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "mstar/runtime/worker/active_request.h"

// What the files of the scheduler share; nobody else includes this.
namespace mstar {

// Time a (node, walk) has had, and what it did with it.
struct Scheduler::Share {
  double used = 0.0;  // seconds, in step with the others
  bool active = false;
  Stats::NodeTime total;
};

struct Scheduler::Candidate {
  ActiveRequest* request;
  WalkRun* run;
  graph::NodeId node;
  uint16_t model_node;
  uint16_t walk_index;
  uint64_t order;

  // They can run together.
  bool is_like(const Candidate& other) const {
    return model_node == other.model_node && walk_index == other.walk_index;
  }
};

namespace internal {

inline uint64_t node_bit(graph::NodeId node) {
  return uint64_t{1} << node;
}

// Calls function(node) for every set bit.
template <typename Function>
void for_each_node(uint64_t mask, Function&& function) {
  while (mask != 0) {
    function(static_cast<graph::NodeId>(std::countr_zero(mask)));
    mask &= mask - 1;
  }
}

}  // namespace internal
}  // namespace mstar

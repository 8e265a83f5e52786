#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mstar/engine/model.h"

namespace mstar {

// Bytes a new process may take: what the machine has available, or less where a control group
// (a container) limits it. 0 when neither can be read.
int64_t available_memory();

// "29.1 GB", or "4.2 MB" below one.
std::string gigabytes(int64_t bytes);

// What the nodes of one worker take: the model's plan and the KV caches' pools, as the deployment's
// `overrides` (by resource key) make them. No nodes: all. Throws what apply_overrides() throws.
std::vector<MemoryItem> plan_memory(const Model& model,
                                    const std::vector<std::string>& nodes,
                                    const LoadContext& context,
                                    const std::map<std::string, Json>& overrides);

int64_t total_bytes(const std::vector<MemoryItem>& plan);

// Throws Error(kUnavailable) when the plan needs more than `available`: "needs 29.1 GB, have
// 24.0 GB", its largest items and what helps. 0 checks nothing.
void check_memory(const std::vector<MemoryItem>& plan, int64_t available);

}  // namespace mstar

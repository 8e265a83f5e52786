#include "mstar/resources/cache_stream.h"

#include <algorithm>

#include "mstar/base/check.h"

namespace mstar {

int64_t CacheStream::num_releasable_pages(int64_t page_size) const {
  if (!has_retention) {
    return 0;
  }
  const int64_t excess = resident_len() - retention.protected_prefix - retention.context_budget;
  const int64_t num_whole = resident_len() / page_size - num_protected_pages(page_size);
  return std::max<int64_t>(0, std::min(excess / page_size, num_whole));
}

void CacheStream::reset() {
  pages.clear();
  undo_pages.clear();
  undo_span = -1;
  undo_chain = 0;
  stored_len = 0;
  released = 0;
  has_retention = false;
  retention = {};
  keys.clear();
  num_prompt_keys = 0;
  chain.clear();
  offloaded = false;
  host_pages.clear();
}

RequestStreams& StreamTable::open(RequestHandle request) {
  MSTAR_CHECK(request >= 0, "request=", request);
  while (requests_.size() <= static_cast<size_t>(request)) {
    requests_.emplace_back();
  }
  RequestStreams& streams = requests_[static_cast<size_t>(request)];
  MSTAR_CHECK(!streams.open, "request ", request, " is open already");
  streams.open = true;
  return streams;
}

void StreamTable::close(RequestHandle request) {
  RequestStreams& streams = get(request);
  MSTAR_CHECK(streams.num_in_flight == 0, "request ", request, " is in a step");
  streams = RequestStreams();
}

RequestStreams* StreamTable::find(RequestHandle request) {
  if (request < 0 || static_cast<size_t>(request) >= requests_.size()) {
    return nullptr;
  }
  RequestStreams& streams = requests_[static_cast<size_t>(request)];
  return streams.open ? &streams : nullptr;
}

const RequestStreams* StreamTable::find(RequestHandle request) const {
  return const_cast<StreamTable*>(this)->find(request);
}

RequestStreams& StreamTable::get(RequestHandle request) {
  RequestStreams* streams = find(request);
  MSTAR_CHECK(streams != nullptr, "request ", request, " is not open");
  return *streams;
}

CacheStream* StreamTable::find(RequestHandle request, LabelId label) {
  RequestStreams* streams = find(request);
  return streams == nullptr ? nullptr : streams->find(label);
}

const CacheStream* StreamTable::find(RequestHandle request, LabelId label) const {
  return const_cast<StreamTable*>(this)->find(request, label);
}

CacheStream& StreamTable::get_or_add(RequestHandle request, LabelId label) {
  RequestStreams& streams = get(request);
  CacheStream* known = streams.find(label);
  if (known != nullptr) {
    return *known;
  }
  CacheStream& added = streams.streams.emplace_back(pool_, label);
  added.generation = next_generation();
  return added;
}

}  // namespace mstar

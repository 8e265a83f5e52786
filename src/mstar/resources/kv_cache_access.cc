// What others read of the cache, and what moves whole streams: prefix reuse and offload.

#include <algorithm>
#include <map>

#include "mstar/base/check.h"
#include "mstar/resources/kv_cache.h"

namespace mstar {

std::span<const KvGroupPlan> KvCache::groups(const StepContext& context) const {
  return slot(context).plan.groups;
}

const KvGroupPlan& KvCache::group(const StepContext& context, LabelId plan_label) const {
  const KvGroupPlan* found = slot(context).plan.find(plan_label);
  MSTAR_CHECK(
      found != nullptr, "resource '", key(), "': the step plans nothing for label ", plan_label);
  return *found;
}

PagedKv KvCache::paged_kv(const AttentionContext& context) const {
  const KvGroupPlan& plan = group(*context.step, context.label);
  return {.pages = memory_.layer_view(context.layer),
          .paged_kv_indptr = plan.paged_kv_indptr,
          .paged_kv_indices = plan.paged_kv_indices,
          .paged_kv_last_page_len = plan.paged_kv_last_page_len};
}

void KvCache::write_kv(Stream& stream,
                       const AttentionContext& context,
                       const Tensor& k,
                       const Tensor& v) {
  const KvGroupPlan& plan = group(*context.step, context.label);
  const int64_t num_rows = k.dim(0);
  MSTAR_CHECK(num_rows <= plan.token_to_page.dim(0) && num_rows >= plan.num_tokens,
              "resource '",
              key(),
              "': ",
              num_rows,
              " rows, the step has ",
              plan.num_tokens);
  Tensor pages = memory_.layer_view(context.layer);
  ops::write_paged_kv(stream,
                      k,
                      v,
                      plan.token_to_page.slice(0, 0, num_rows),
                      plan.token_to_slot.slice(0, 0, num_rows),
                      pages);
}

int64_t KvCache::resolve_cached_prefix(RequestHandle request, LabelId label) const {
  const CacheStream* stream = streams_.find(request, label);
  if (stream == nullptr || stream->stored_len > 0 || stream->keys.empty()) {
    return 0;
  }
  return index_.count_match(stream->keys) * spec_.page_size;
}

int64_t KvCache::apply_cached_prefix(RequestHandle request, LabelId label) {
  if (resolve_cached_prefix(request, label) == 0) {
    return 0;
  }
  CacheStream& stream = *streams_.find(request, label);
  MSTAR_CHECK(streams_.get(request).num_in_flight == 0, "request ", request, " is in a step");
  stream.pages.clear();
  match_scratch_.clear();
  index_.match(stream.keys, match_scratch_);
  for (const PrefixIndex::Node node : match_scratch_) {
    stream.pages.push_back(pool_.share(index_.page(node)));
    stream.chain.push_back(node);
  }
  stream.stored_len = static_cast<int64_t>(match_scratch_.size()) * spec_.page_size;
  stream.generation = streams_.next_generation();
  num_prefix_hits_ += stream.stored_len;
  return stream.stored_len;
}

void KvCache::extend_prefix_keys(RequestHandle request,
                                 LabelId label,
                                 std::span<const uint64_t> keys) {
  CacheStream* stream = streams_.find(request, label);
  // A stream without keys up to its end takes no part: what came before is not known.
  if (spec_.prefix_cache && stream != nullptr && !stream->keys.empty() &&
      stream->keys.size() >= static_cast<size_t>(stream->stored_len)) {
    stream->keys.insert(stream->keys.end(), keys.begin(), keys.end());
  }
}

int64_t KvCache::offload(RequestHandle request) {
  RequestStreams* streams = streams_.find(request);
  if (streams == nullptr || streams->num_in_flight > 0 || is_offloaded(request)) {
    return 0;
  }
  int64_t num_needed = 0;
  for (const CacheStream& stream : streams->streams) {
    num_needed += pages_for(stream.resident_len());
  }
  if (num_needed == 0 || num_needed > static_cast<int64_t>(free_host_pages_.size())) {
    return 0;
  }
  const int32_t free_before = pool_.num_free();
  for (CacheStream& stream : streams->streams) {
    make_final(stream);
    for (int64_t page = 0; page < pages_for(stream.resident_len()); ++page) {
      const int32_t host_page = free_host_pages_.back();
      free_host_pages_.pop_back();
      memory_.copy_out(stream.pages[static_cast<int32_t>(page)],
                       host_pool_.select(0, host_page).bytes());
      stream.host_pages.push_back(host_page);
    }
    stream.pages.clear();
    stream.offloaded = true;
  }
  return pool_.num_free() - free_before;
}

bool KvCache::reload(RequestHandle request) {
  RequestStreams* streams = streams_.find(request);
  if (streams == nullptr || !is_offloaded(request)) {
    return streams != nullptr;
  }
  int64_t num_needed = 0;
  for (const CacheStream& stream : streams->streams) {
    num_needed += static_cast<int64_t>(stream.host_pages.size());
  }
  if (num_needed > pool_.num_free()) {
    index_.evict(static_cast<int32_t>(num_needed - pool_.num_free()));
  }
  if (num_needed > pool_.num_free()) {
    return false;
  }
  for (CacheStream& stream : streams->streams) {
    MSTAR_CHECK(stream.pages.try_grow(static_cast<int32_t>(stream.host_pages.size())));
    for (size_t page = 0; page < stream.host_pages.size(); ++page) {
      memory_.copy_in(host_pool_.select(0, stream.host_pages[page]).bytes(),
                      stream.pages[static_cast<int32_t>(page)]);
    }
    free_host_pages_.insert(
        free_host_pages_.end(), stream.host_pages.begin(), stream.host_pages.end());
    stream.host_pages.clear();
    stream.offloaded = false;
    stream.generation = streams_.next_generation();
  }
  return true;
}

bool KvCache::is_offloaded(RequestHandle request) const {
  const RequestStreams* streams = streams_.find(request);
  return streams != nullptr &&
         std::any_of(streams->streams.begin(),
                     streams->streams.end(),
                     [](const CacheStream& stream) { return stream.offloaded; });
}

RequestHandle KvCache::offload_victim(std::span<const RequestHandle> keep) const {
  RequestHandle victim = -1;
  uint64_t oldest = UINT64_MAX;
  for (size_t index = 0; index < streams_.requests().size(); ++index) {
    const RequestStreams& streams = streams_.requests()[index];
    const auto request = static_cast<RequestHandle>(index);
    if (streams.open && streams.num_in_flight == 0 && streams.last_use < oldest &&
        streams.last_use > 0 && !is_offloaded(request) &&
        std::find(keep.begin(), keep.end(), request) == keep.end()) {
      victim = request;
      oldest = streams.last_use;
    }
  }
  return victim;
}

KvStats KvCache::stats() const {
  KvStats stats{.num_pages = pool_.num_pages() - 1,
                .num_free = pool_.num_free(),
                .num_listed = index_.num_pages(),
                .num_host_free = static_cast<int64_t>(free_host_pages_.size()),
                .num_prefix_hits = num_prefix_hits_,
                .num_page_copies = num_page_copies_};
  for (const RequestStreams& streams : streams_.requests()) {
    stats.num_open_requests += streams.open ? 1 : 0;
  }
  return stats;
}

void KvCache::clear_prefix_index() {
  index_.clear();
}

void KvCache::check_invariants() const {
  std::map<int32_t, int32_t> handles;  // by page
  const auto count = [&](const PageList& pages) {
    for (const int32_t page : pages.ids()) {
      ++handles[page];
    }
  };
  size_t num_host = free_host_pages_.size();
  for (const RequestStreams& request : streams_.requests()) {
    MSTAR_CHECK(request.open || request.streams.empty());
    MSTAR_CHECK(request.num_in_flight >= 0, "in flight: ", request.num_in_flight);
    for (const CacheStream& stream : request.streams) {
      count(stream.pages);
      count(stream.undo_pages);
      num_host += stream.host_pages.size();
      MSTAR_CHECK(stream.released >= 0 && stream.released % spec_.page_size == 0);
      const auto num_held =
          stream.offloaded ? static_cast<int64_t>(stream.host_pages.size()) : stream.pages.size();
      MSTAR_CHECK(stream.resident_len() >= 0 && stream.resident_len() <= num_held * spec_.page_size,
                  stream.resident_len(),
                  " tokens in ",
                  num_held,
                  " pages");
    }
  }
  for (const auto& slot : slots_) {
    count(slot->reserved);
    MSTAR_CHECK(slot->admitted || slot->reserved.empty());
  }
  for (const int32_t page : index_.listed_pages()) {
    ++handles[page];
  }
  MSTAR_CHECK(static_cast<int64_t>(handles.size()) + pool_.num_free() + 1 == pool_.num_pages(),
              handles.size(),
              " pages held, ",
              pool_.num_free(),
              " free, of ",
              pool_.num_pages());
  for (const auto& [page, num_handles] : handles) {
    MSTAR_CHECK(page != PagePool::kSinkPage && pool_.num_users(page) == num_handles,
                "page ",
                page,
                " has ",
                num_handles,
                " handles, counted ",
                pool_.num_users(page));
  }
  MSTAR_CHECK(static_cast<int64_t>(num_host) == spec_.cpu_offload_pages, "host pages: ", num_host);
}

}  // namespace mstar

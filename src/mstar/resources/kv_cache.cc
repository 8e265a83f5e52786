#include "mstar/resources/kv_cache.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

const RetentionPolicy* retention_of(const KVStep& step, LabelId label) {
  for (const LabelRetention& retention : step.retentions) {
    if (retention.label == label) {
      return &retention.policy;
    }
  }
  return nullptr;
}

int32_t checked_num_pages(const KVSpec& spec, const std::string& key) {
  if (spec.max_num_pages < 2 || spec.max_num_pages > INT32_MAX || spec.page_size < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[resource '",
                        key,
                        "'] max_num_pages ",
                        spec.max_num_pages,
                        ", page_size ",
                        spec.page_size,
                        "; expected at least 2 pages (one is the sink) of at least 1 token"));
  }
  return static_cast<int32_t>(spec.max_num_pages);
}

std::string index_salt(const KVSpec& spec) {
  return str_cat(spec.prefix_cache_salt,
                 "/",
                 spec.num_layers,
                 "/",
                 spec.num_kv_heads,
                 "/",
                 spec.head_dim,
                 "/",
                 spec.page_size,
                 "/",
                 to_string(spec.dtype));
}

// Streams that the promise counts: those asked for. "main" is always there, but holds nothing when
// it is not among them.
int64_t num_promised(const KVRequestConfig& kv) {
  return std::max<int64_t>(static_cast<int64_t>(kv.needed_labels.size()), 1);
}

}  // namespace

KvCache::KvCache(ResourceId id,
                 const std::string& key,
                 const KVSpec& spec,
                 const ResourceBuildInfo& info)
    : Resource(id, key),
      spec_(spec),
      pool_(checked_num_pages(spec, key)),
      memory_(spec, spec.max_num_pages),
      streams_(pool_),
      index_(pool_, spec.page_size, index_salt(spec)),
      gate_(spec.admission, spec.page_size) {
  for (int32_t index = 0; index < info.num_slots; ++index) {
    slots_.push_back(std::make_unique<Slot>(pool_));
  }
  if (spec.cpu_offload_pages > 0) {
    host_pool_ = Tensor::empty({spec.cpu_offload_pages, memory_.page_bytes()}, DType::kU8);
    for (int64_t page = spec.cpu_offload_pages - 1; page >= 0; --page) {
      free_host_pages_.push_back(static_cast<int32_t>(page));
    }
  }
}

KvCache::~KvCache() {
  for (RequestStreams& request : streams_.requests()) {
    request.streams.clear();
  }
  for (auto& slot : slots_) {
    slot->reserved.clear();
  }
  index_.clear();
}

KvCache::Slot& KvCache::slot(const StepContext& context) {
  MSTAR_CHECK(context.slot >= 0 && static_cast<size_t>(context.slot) < slots_.size(),
              "slot ",
              context.slot,
              " of ",
              slots_.size());
  return *slots_[static_cast<size_t>(context.slot)];
}

const KvCache::Slot& KvCache::slot(const StepContext& context) const {
  return const_cast<KvCache*>(this)->slot(context);
}

void KvCache::ingest_request(RequestHandle request, const RequestResourceConfig& config) {
  static const KVRequestConfig kDefaults;
  const auto* given = std::get_if<KVRequestConfig>(&config);
  const KVRequestConfig& kv = given == nullptr ? kDefaults : *given;
  if (spec_.max_seq_len > 0 && kv.max_tokens > spec_.max_seq_len) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[resource '",
                        key(),
                        "'] the request may reach ",
                        kv.max_tokens,
                        " tokens, the limit is ",
                        spec_.max_seq_len,
                        "; shorten the prompt or ask for fewer new tokens"));
  }
  RequestStreams& streams = streams_.open(request);
  streams.max_tokens = kv.max_tokens;
  streams.num_promised = num_promised(kv);
  streams.publish_labels = kv.publish_labels;
  streams_.get_or_add(request, kMainLabel);
  for (const LabelId label : kv.needed_labels) {
    streams_.get_or_add(request, label);
  }
  int64_t prompt_tokens = 0;
  for (const PrefixKeys& keys : kv.prefix_keys) {
    prompt_tokens = std::max(prompt_tokens, static_cast<int64_t>(keys.keys.size()));
    if (spec_.prefix_cache) {
      CacheStream& stream = streams_.get_or_add(request, keys.label);
      stream.keys = keys.keys;
      stream.num_prompt_keys = keys.keys.size();
    }
  }
  if (kv.max_tokens > 0) {
    gate_.enqueue(request,
                  {.prompt_tokens = std::min(prompt_tokens, kv.max_tokens),
                   .max_tokens = kv.max_tokens,
                   .num_streams = num_promised(kv)});
  }
}

void KvCache::remove_request(RequestHandle request) {
  RequestStreams* streams = streams_.find(request);
  if (streams == nullptr) {
    return;
  }
  for (CacheStream& stream : streams->streams) {
    free_host_pages_.insert(
        free_host_pages_.end(), stream.host_pages.begin(), stream.host_pages.end());
  }
  streams_.close(request);
  gate_.remove(request);
}

AdmitOutcome KvCache::admit_request(RequestHandle request) {
  const AdmitReason reason = gate_.try_admit(request, gate_capacity());
  AdmitOutcome outcome = refuse(reason, {request, -1, 0});
  outcome.ok = reason == AdmitReason::kNone;
  if (reason == AdmitReason::kRuntimeError) {
    const RequestStreams& streams = streams_.get(request);
    outcome.message = str_cat("[resource '",
                              key(),
                              "'] the request needs ",
                              streams.num_promised * pages_for(streams.max_tokens),
                              " pages of ",
                              spec_.page_size,
                              " tokens (",
                              streams.num_promised,
                              streams.num_promised == 1 ? " stream" : " streams",
                              " of up to ",
                              streams.max_tokens,
                              " tokens), there are ",
                              gate_capacity(),
                              "; ask for less, or have the server started with a larger "
                              "max_num_pages");
  }
  return outcome;
}

// Pages that promises may count on: all but the sink and those of requests that made none.
int64_t KvCache::gate_capacity() const {
  int64_t capacity = pool_.num_pages() - 1;
  for (const RequestStreams& request : streams_.requests()) {
    if (request.open && request.max_tokens == 0) {
      for (const CacheStream& stream : request.streams) {
        capacity -= stream.pages.size();
      }
    }
  }
  return capacity;
}

AdmitOutcome KvCache::refuse(AdmitReason reason, const Segment& segment) const {
  return {.ok = false,
          .ready = true,
          .reason = reason,
          .resource = id(),
          .request = segment.request,
          .label = segment.label,
          .pages_short = 0,
          .message = {}};
}

AdmitOutcome KvCache::wait_for_reload(const Segment& segment) const {
  AdmitOutcome outcome = refuse(AdmitReason::kRequestOffloading, segment);
  outcome.ok = true;
  outcome.ready = false;
  return outcome;
}

// Forks share pages, so their source must have some.
AdmitOutcome KvCache::check_forks(const std::vector<Fork>& forks) const {
  for (const Fork& fork : forks) {
    const CacheStream* source = streams_.find(fork.request, fork.from);
    if (source != nullptr && source->offloaded) {
      return wait_for_reload({fork.request, fork.from, 0});
    }
  }
  return {};
}

// The stream whose tokens `segment` will see: its own, or through the step's pre-forks another's.
const CacheStream* KvCache::source_of(const KVStep& step,
                                      const Segment& segment,
                                      bool* forked) const {
  LabelId label = segment.label;
  *forked = false;
  for (auto fork = step.pre_forks.rbegin(); fork != step.pre_forks.rend(); ++fork) {
    if (fork->request == segment.request && fork->to == label) {
      label = fork->from;
      *forked = true;
    }
  }
  return streams_.find(segment.request, label);
}

AdmitOutcome KvCache::check_segment(const KVStep& step, const Segment& segment) const {
  MSTAR_CHECK(segment.span >= 0 && streams_.find(segment.request) != nullptr,
              "resource '",
              key(),
              "': request ",
              segment.request,
              " span ",
              segment.span);
  bool forked = false;
  const CacheStream* stream = source_of(step, segment, &forked);
  if (stream == nullptr) {
    return {};
  }
  if (stream->offloaded) {
    return wait_for_reload(segment);
  }
  const int64_t len = stream->resident_len() + segment.span;
  if (spec_.max_seq_len > 0 && len > spec_.max_seq_len) {
    AdmitOutcome outcome = refuse(AdmitReason::kRuntimeError, segment);
    outcome.message = str_cat("[resource '",
                              key(),
                              "'] the stream would hold ",
                              len,
                              " tokens, the limit is ",
                              spec_.max_seq_len,
                              "; ask for fewer tokens");
    return outcome;
  }
  return {};
}

// Upper bound: of several streams that share a page and write on it, the last keeps it.
int64_t KvCache::pages_needed(const KVStep& step, const Segment& segment) const {
  if (segment.span == 0) {
    return 0;
  }
  bool forked = false;
  const CacheStream* stream = source_of(step, segment, &forked);
  const int64_t resident = stream == nullptr ? 0 : stream->resident_len();
  const int64_t held =
      stream == nullptr ? 0 : (forked ? pages_for(resident) : stream->pages.size());
  const int64_t wanted = pages_for(resident + segment.span);
  int64_t needed = std::max<int64_t>(0, wanted - held);
  const bool is_source =
      std::any_of(step.pre_forks.begin(), step.pre_forks.end(), [&](const Fork& fork) {
        return fork.request == segment.request && fork.from == segment.label;
      });
  for (int64_t page = resident / spec_.page_size; page < std::min(wanted, held); ++page) {
    const bool becomes_shared = page < pages_for(resident) && (forked || is_source);
    if (becomes_shared || !stream->pages.is_sole_owner(static_cast<int32_t>(page))) {
      ++needed;
    }
  }
  return needed;
}

void KvCache::make_final(CacheStream& stream) {
  stream.undo_span = -1;
  stream.undo_pages.clear();
}

AdmitOutcome KvCache::admit(const SubmoduleStep& step, const StepContext& context) {
  const KVStep* kv = step.kv.find(id());
  if (kv == nullptr) {
    return {};
  }
  Slot& to = slot(context);
  MSTAR_CHECK(!to.admitted, "slot ", context.slot, " holds another step");
  for (const std::vector<Fork>* forks : {&kv->pre_forks, &kv->post_forks}) {
    AdmitOutcome outcome = check_forks(*forks);
    if (!outcome) {
      return outcome;
    }
  }
  // Steps of many requests that each add a token are the usual ones: the next two say at one look
  // that there is nothing to check, and that no page is needed.
  const bool no_forks = kv->pre_forks.empty();
  const auto is_plain = [&](const CacheStream* stream, const Segment& segment) {
    return no_forks && stream != nullptr && segment.span >= 0 && !stream->offloaded &&
           (spec_.max_seq_len == 0 || stream->resident_len() + segment.span <= spec_.max_seq_len);
  };
  const auto fits_its_last_page = [&](const CacheStream* stream, const Segment& segment) {
    const int64_t resident = stream != nullptr ? stream->resident_len() : 0;
    const int64_t page = resident / spec_.page_size;
    return no_forks && stream != nullptr && segment.span > 0 && page < stream->pages.size() &&
           (resident + segment.span - 1) / spec_.page_size == page &&
           stream->pages.is_sole_owner(static_cast<int32_t>(page));
  };
  const std::vector<Segment>& segments = step.segments_of(*kv);
  for (const Segment& segment : segments) {
    CacheStream* stream = streams_.find(segment.request, segment.label);
    if (!is_plain(stream, segment)) {
      AdmitOutcome outcome = check_segment(*kv, segment);
      if (!outcome) {
        return outcome;
      }
    }
    if (stream != nullptr) {
      make_final(*stream);
    }
  }
  int64_t needed = 0;
  const Segment* first_short = nullptr;
  for (const Segment& segment : segments) {
    if (fits_its_last_page(streams_.find(segment.request, segment.label), segment)) {
      continue;
    }
    needed += pages_needed(*kv, segment);
    if (first_short == nullptr && needed > pool_.num_free()) {
      first_short = &segment;
    }
  }
  if (first_short != nullptr) {
    index_.evict(static_cast<int32_t>(needed - pool_.num_free()));
  }
  if (!to.reserved.try_grow(static_cast<int32_t>(needed))) {
    AdmitOutcome outcome = refuse(AdmitReason::kAllocationFailed, *first_short);
    outcome.pages_short = needed - pool_.num_free();
    return outcome;
  }
  for (const Segment& segment : segments) {
    ++streams_.get(segment.request).num_in_flight;
  }
  to.admitted = true;
  return {};
}

void KvCache::rollback(const SubmoduleStep& step, const StepContext& context) {
  const KVStep* kv = step.kv.find(id());
  Slot& from = slot(context);
  if (kv == nullptr || !from.admitted) {
    return;
  }
  from.reserved.clear();
  for (const Segment& segment : step.segments_of(*kv)) {
    --streams_.get(segment.request).num_in_flight;
  }
  from.admitted = false;
}

void KvCache::fork(const Fork& fork) {
  CacheStream& target = streams_.get_or_add(fork.request, fork.to);
  const CacheStream& source = streams_.get_or_add(fork.request, fork.from);
  MSTAR_CHECK(
      &target != &source && !source.offloaded, "fork of label ", fork.from, " to ", fork.to);
  free_host_pages_.insert(
      free_host_pages_.end(), target.host_pages.begin(), target.host_pages.end());
  target.reset();
  target.pages.share(source.pages, static_cast<int32_t>(pages_for(source.resident_len())));
  target.stored_len = source.stored_len;
  target.released = source.released;
  target.retention = source.retention;
  target.has_retention = source.has_retention;
  target.chain = source.chain;
  target.keys.assign(
      source.keys.begin(),
      source.keys.begin() + static_cast<int64_t>(std::min(source.keys.size(),
                                                          static_cast<size_t>(source.stored_len))));
  target.num_prompt_keys = target.keys.size();
  target.generation = streams_.next_generation();
}

void KvCache::grow(CacheStream& stream, int64_t span, Slot& to) {
  const int64_t resident = stream.resident_len();
  const int64_t wanted = pages_for(resident + span);
  for (int64_t page = resident / spec_.page_size;
       span > 0 && page < std::min<int64_t>(wanted, stream.pages.size());
       ++page) {
    const auto index = static_cast<int32_t>(page);
    if (stream.pages.is_sole_owner(index)) {
      continue;
    }
    Page own = to.reserved.pop_back();
    const int64_t num_rows = std::max<int64_t>(0, resident - page * spec_.page_size);
    if (num_rows > 0) {
      to.copies.push_back({stream.pages[index], own.id(), static_cast<int32_t>(num_rows)});
      ++num_page_copies_;
    }
    stream.pages.replace(index, std::move(own));
  }
  while (stream.pages.size() < wanted) {
    stream.pages.push_back(to.reserved.pop_back());
  }
}

void KvCache::plan(const SubmoduleStep& step, const StepContext& context) {
  const KVStep* kv = step.kv.find(id());
  if (kv == nullptr) {
    return;
  }
  Slot& to = slot(context);
  MSTAR_CHECK(to.admitted, "plan without admit, slot ", context.slot);
  for (const Fork& pre_fork : kv->pre_forks) {
    fork(pre_fork);
  }
  const std::vector<Segment>& segments = step.segments_of(*kv);
  group_by_plan_label(segments, kv->combined, to.plan_groups, to.order);
  to.copies.clear();
  to.plan.begin(segments.size(), context.leased());
  ++step_number_;
  for (const PlanGroup& group : to.plan_groups) {
    plan_group(group, segments, to);
  }
  to.reserved.clear();
}

void KvCache::plan_group(const PlanGroup& group, const std::vector<Segment>& segments, Slot& to) {
  const size_t first_view = to.plan.views.size();
  int64_t num_tokens = 0;
  int64_t num_pages = 0;
  for (int32_t packed = group.first; packed < group.first + group.count; ++packed) {
    const int32_t index = to.order[static_cast<size_t>(packed)];
    const Segment& segment = segments[static_cast<size_t>(index)];
    CacheStream& stream = streams_.get_or_add(segment.request, segment.label);
    streams_.get(segment.request).last_use = step_number_;
    grow(stream, segment.span, to);
    to.plan.views.push_back({.request = segment.request,
                             .label = segment.label,
                             .segment = index,
                             .num_new = segment.span,
                             .first_row = num_tokens,
                             .prefix_len = stream.resident_len(),
                             .kv_len = stream.resident_len() + segment.span,
                             .start = stream.stored_len,
                             .generation = stream.generation});
    num_tokens += segment.span;
    num_pages += pages_for(to.plan.views.back().kv_len);
  }
  KvArrays& arrays = to.plan.next_arrays(group.plan_label);
  int32_t* indptr = arrays.indptr.prepare(group.count + 1);
  int32_t* indices = arrays.indices.prepare(num_pages);
  int32_t* last_page_len = arrays.last_page_len.prepare(group.count);
  int32_t* token_to_page = arrays.token_to_page.prepare(num_tokens);
  int32_t* token_to_slot = arrays.token_to_slot.prepare(num_tokens);
  indptr[0] = 0;
  const auto page_size = spec_.page_size;
  for (int32_t row = 0; row < group.count; ++row) {
    const SequenceView& view = to.plan.views[first_view + static_cast<size_t>(row)];
    const PageList& pages = streams_.find(view.request, view.label)->pages;
    const int64_t num_used = pages_for(view.kv_len);
    std::copy_n(pages.ids().begin(), num_used, indices + indptr[row]);
    indptr[row + 1] = indptr[row] + static_cast<int32_t>(num_used);
    last_page_len[row] =
        static_cast<int32_t>(num_used == 0 ? 0 : view.kv_len - (num_used - 1) * page_size);
    fill_write_addresses(pages.ids(),
                         view.prefix_len,
                         view.kv_len,
                         page_size,
                         token_to_page + view.first_row,
                         token_to_slot + view.first_row);
  }
  arrays.indptr.fill_rest(group.count + 1, indptr[group.count]);
  const bool whole = to.plan.leased;  // a captured graph sees the buffers, not this step's part
  to.plan.groups.push_back(
      {.plan_label = group.plan_label,
       .num_tokens = num_tokens,
       .sequences = {to.plan.views.data() + first_view, static_cast<size_t>(group.count)},
       .paged_kv_indptr = arrays.indptr.view(group.count + 1),
       .paged_kv_indices = arrays.indices.view(whole ? arrays.indices.capacity() : num_pages),
       .paged_kv_last_page_len = arrays.last_page_len.view(group.count),
       .token_to_page =
           arrays.token_to_page.view(whole ? arrays.token_to_page.capacity() : num_tokens),
       .token_to_slot =
           arrays.token_to_slot.view(whole ? arrays.token_to_slot.capacity() : num_tokens)});
}

void KvCache::stage(Stream& stream, const StepContext& context) {
  for (const PageCopy& copy : slot(context).copies) {
    memory_.copy_rows(stream, copy.from, copy.to, copy.num_rows);
  }
}

void KvCache::apply_retention(CacheStream& stream) {
  const int64_t num_pages = stream.num_releasable_pages(spec_.page_size);
  if (num_pages > 0) {
    stream.pages.move_range(static_cast<int32_t>(stream.num_protected_pages(spec_.page_size)),
                            static_cast<int32_t>(num_pages),
                            stream.undo_pages);
    stream.released += num_pages * spec_.page_size;
  }
}

// Keys and values behind a released token depend on what was released: such pages are not listed.
void KvCache::list_full_pages(CacheStream& stream) {
  const auto page_size = static_cast<size_t>(spec_.page_size);
  const size_t num_known = std::min(static_cast<size_t>(stream.stored_len), stream.keys.size());
  while (stream.released == 0 && (stream.chain.size() + 1) * page_size <= num_known) {
    const size_t page = stream.chain.size();
    const PrefixIndex::Node node =
        index_.insert(page == 0 ? PrefixIndex::kRoot : stream.chain.back(),
                      std::span(stream.keys).subspan(page * page_size, page_size),
                      stream.pages[static_cast<int32_t>(page)]);
    if (node == PrefixIndex::kNone) {  // what it hangs on has left: this stream is done listing
      stream.keys.clear();
      return;
    }
    stream.chain.push_back(node);
  }
}

void KvCache::commit(const SubmoduleStep& step, const StepContext& context) {
  const KVStep* kv = step.kv.find(id());
  if (kv == nullptr) {
    return;
  }
  Slot& from = slot(context);
  MSTAR_CHECK(from.admitted, "commit without admit, slot ", context.slot);
  for (const Segment& segment : step.segments_of(*kv)) {
    --streams_.get(segment.request).num_in_flight;
    CacheStream& stream = *streams_.find(segment.request, segment.label);
    if (!kv->commit) {
      if (kv->returns_scratch) {
        stream.pages.truncate(static_cast<int32_t>(pages_for(stream.resident_len())));
      }
      continue;
    }
    stream.undo_span = segment.span;
    stream.undo_chain = stream.chain.size();
    stream.stored_len += segment.span;
    if (const RetentionPolicy* policy = retention_of(*kv, segment.label)) {
      stream.retention = *policy;
      stream.has_retention = true;
    }
    list_full_pages(stream);
    apply_retention(stream);
    if (segment.span > 0 || !stream.undo_pages.empty()) {
      stream.generation = streams_.next_generation();
    }
    MSTAR_DCHECK(stream.resident_len() <= stream.pages.size() * spec_.page_size);
    note_progress(segment.request);
  }
  for (const Fork& post_fork : kv->post_forks) {
    fork(post_fork);
  }
  from.admitted = false;
}

void KvCache::note_progress(RequestHandle request) {
  const RequestStreams& streams = streams_.get(request);
  if (streams.max_tokens > 0 && spec_.admission.fit == AdmissionFit::kPeak) {
    int64_t longest = 0;
    for (const CacheStream& stream : streams.streams) {
      longest = std::max(longest, stream.stored_len);
    }
    gate_.set_progress(request, longest);
  }
}

void KvCache::discard(const SubmoduleStep& step,
                      const StepContext& /*context*/,
                      RequestHandle request,
                      bool poisoned) {
  const KVStep* kv = step.kv.find(id());
  if (kv == nullptr || !kv->commit) {
    return;
  }
  for (const Segment& segment : step.segments_of(*kv)) {
    CacheStream* stream = streams_.find(segment.request, segment.label);
    if (segment.request != request || stream == nullptr || stream->undo_span < 0) {
      continue;
    }
    MSTAR_CHECK(stream->undo_span == segment.span,
                "not the last step: ",
                stream->undo_span,
                " tokens were committed after");
    stream->stored_len -= stream->undo_span;
    stream->released -= stream->undo_pages.size() * spec_.page_size;
    if (!stream->undo_pages.empty()) {
      stream->pages.insert_all(static_cast<int32_t>(stream->num_protected_pages(spec_.page_size)),
                               stream->undo_pages);
    }
    for (size_t page = stream->undo_chain; poisoned && page < stream->chain.size(); ++page) {
      index_.hide(stream->chain[page]);
    }
    stream->chain.resize(std::min(stream->chain.size(), stream->undo_chain));
    stream->keys.resize(
        std::min(stream->keys.size(),
                 std::max(stream->num_prompt_keys, static_cast<size_t>(stream->stored_len))));
    stream->generation = streams_.next_generation();
    stream->undo_span = -1;
  }
}

void KvCache::publish(RequestHandle request, PublishedInfo& info) const {
  const RequestStreams* streams = streams_.find(request);
  if (streams == nullptr) {
    return;
  }
  for (const CacheStream& stream : streams->streams) {
    const std::vector<LabelId>& labels = streams->publish_labels;
    if (labels.empty() || std::find(labels.begin(), labels.end(), stream.label) != labels.end()) {
      info.stream(stream.label).stored_len = stream.stored_len;
    }
  }
}

void KvCache::reset_request(RequestHandle request, bool free) {
  for (CacheStream& stream : streams_.get(request).streams) {
    make_final(stream);
    stream.stored_len = 0;
    stream.released = 0;
    stream.has_retention = false;
    stream.chain.clear();
    stream.generation = streams_.next_generation();
    if (free) {
      stream.pages.clear();
    }
  }
}

void KvCache::build_capture_buffers(const CaptureLimits& limits) {
  const int64_t max_rows = limits.max_bs * CombinedLabels::kMaxSources;
  int64_t num_pages = limits.max_pages;
  if (num_pages == 0) {
    int64_t per_stream = spec_.max_num_pages - 1;
    if (spec_.max_seq_len > 0) {
      per_stream = std::min(per_stream, pages_for(spec_.max_seq_len));
    }
    num_pages = per_stream * max_rows;
  }
  for (auto& slot : slots_) {
    for (const LabelId label : limits.labels) {
      slot->plan.reserve_leased(label, max_rows, limits.max_num_tokens, num_pages);
    }
  }
}

const CacheStream* KvCache::find_stream(RequestHandle request, LabelId label) const {
  return streams_.find(request, label);
}

}  // namespace mstar

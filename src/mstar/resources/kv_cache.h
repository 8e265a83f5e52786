#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mstar/resources/admission_gate.h"
#include "mstar/resources/attention.h"
#include "mstar/resources/cache_stream.h"
#include "mstar/resources/kv_memory.h"
#include "mstar/resources/kv_plan.h"
#include "mstar/resources/page_pool.h"
#include "mstar/resources/prefix_index.h"

namespace mstar {

struct KvStats {
  int64_t num_pages = 0;        // without the sink
  int64_t num_free = 0;         // in nobody's hands
  int64_t num_listed = 0;       // in the prefix index (and perhaps in use too)
  int64_t num_host_free = 0;    // of the offload pool
  int64_t num_prefix_hits = 0;  // tokens taken from the index instead of computed
  int64_t num_page_copies = 0;  // shared pages copied because somebody wrote on them
  int64_t num_open_requests = 0;
};

// Paged keys and values of all requests: streams per (request, label), pages from one pool, the
// memory behind them. Produces the packing (plan groups) that attention and positions follow.
//
//   admit    makes sure that every segment's growth has pages: it sets them aside
//   plan     applies pre-forks, gives the pages to their streams, builds index arrays
//   stage    copies pages that are shared and about to be written
//   commit   streams have grown; retention; full pages go to the prefix index; post-forks
//   discard  one request's commit is taken back, released pages return
//
// With commit off the same happens behind the stored tokens, again and again on the same pages.
// A fork shares all pages of its source; who writes first on a shared page gets a copy of it.
// Threads as in Resource: write_kv and what it reads belong to the executor, all else to the step
// loop.
class KvCache : public Resource {
 public:
  // Throws Error(kInvalidArgument) when the spec is wrong.
  KvCache(ResourceId id, const std::string& key, const KVSpec& spec, const ResourceBuildInfo& info);
  ~KvCache() override;

  void ingest_request(RequestHandle request, const RequestResourceConfig& config) override;
  void remove_request(RequestHandle request) override;
  AdmitOutcome admit(const SubmoduleStep& step, const StepContext& context) override;
  void rollback(const SubmoduleStep& step, const StepContext& context) override;
  void plan(const SubmoduleStep& step, const StepContext& context) override;
  void stage(Stream& stream, const StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override;
  void discard(const SubmoduleStep& step,
               const StepContext& context,
               RequestHandle request,
               bool poisoned) override;
  void publish(RequestHandle request, PublishedInfo& info) const override;
  void reset_request(RequestHandle request, bool free) override;
  void build_capture_buffers(const CaptureLimits& limits) override;

  // Whether the request may start, by its promise (KVRequestConfig::max_tokens). Requests without
  // one are always admitted.
  AdmitOutcome admit_request(RequestHandle request);

  // The plan of one label in this step; a check that there is one.
  const KvGroupPlan& group(const StepContext& context, LabelId plan_label) const;

  // All groups of the step, in packing order.
  std::span<const KvGroupPlan> groups(const StepContext& context) const;

  // Pages and index arrays of one label and layer, as kernels take them.
  PagedKv paged_kv(const AttentionContext& context) const;

  // Executor: writes the step's rows of one layer. k, v [tokens, num_kv_heads, head_dim].
  void write_kv(Stream& stream, const AttentionContext& context, const Tensor& k, const Tensor& v);

  // Tokens of the prompt that could be taken from the prefix index instead of being computed.
  int64_t resolve_cached_prefix(RequestHandle request, LabelId label) const;

  // Takes them: the stream, empty so far, now holds that many tokens. Returns how many.
  int64_t apply_cached_prefix(RequestHandle request, LabelId label);

  // Says what the next tokens of the stream are, behind its keys so far; call before the step that
  // commits them.
  void extend_prefix_keys(RequestHandle request, LabelId label, std::span<const uint64_t> keys);

  // Moves all streams of a request to the host pool. Returns the pages freed; 0 when the request is
  // in a step, holds nothing, or does not fit whole. No step that touches it may be running.
  int64_t offload(RequestHandle request);

  // Back again, whole or not at all.
  bool reload(RequestHandle request);

  bool is_offloaded(RequestHandle request) const;

  // The request whose last step is longest ago, of those not in a step, not offloaded and not in
  // `keep`; -1 when there is none.
  RequestHandle offload_victim(std::span<const RequestHandle> keep) const;

  // Null when the stream does not exist.
  const CacheStream* find_stream(RequestHandle request, LabelId label) const;

  const KVSpec& spec() const { return spec_; }

  KvMemory& memory() { return memory_; }

  const KvMemory& memory() const { return memory_; }

  KvStats stats() const;

  // Frees the pages that only the prefix index holds.
  void clear_prefix_index();

  // Checks that every page is free, the sink's, or accounted for by exactly the handles that are
  // counted, and that no stream claims more tokens than its pages hold. Slow: for tests and debug
  // builds.
  void check_invariants() const;

 private:
  struct PageCopy {
    int32_t from = 0;
    int32_t to = 0;
    int32_t num_rows = 0;
  };

  struct Slot {
    explicit Slot(PagePool& pool) : reserved(pool) {}

    bool admitted = false;
    PageList reserved;  // set aside by admit, handed out by plan
    KvPlan plan;
    std::vector<PageCopy> copies;
    std::vector<PlanGroup> plan_groups;
    std::vector<int32_t> order;
  };

  int64_t pages_for(int64_t num_tokens) const {
    return (num_tokens + spec_.page_size - 1) / spec_.page_size;
  }

  Slot& slot(const StepContext& context);
  const Slot& slot(const StepContext& context) const;
  AdmitOutcome refuse(AdmitReason reason, const Segment& segment) const;
  AdmitOutcome wait_for_reload(const Segment& segment) const;
  AdmitOutcome check_forks(const std::vector<Fork>& forks) const;
  AdmitOutcome check_segment(const KVStep& step, const Segment& segment) const;
  int64_t pages_needed(const KVStep& step, const Segment& segment) const;
  const CacheStream* source_of(const KVStep& step, const Segment& segment, bool* forked) const;
  void make_final(CacheStream& stream);
  void fork(const Fork& fork);
  void grow(CacheStream& stream, int64_t span, Slot& to);
  void plan_group(const PlanGroup& group, const std::vector<Segment>& segments, Slot& to);
  void apply_retention(CacheStream& stream);
  void list_full_pages(CacheStream& stream);
  int64_t gate_capacity() const;
  void note_progress(RequestHandle request);

  KVSpec spec_;
  PagePool pool_;
  KvMemory memory_;
  StreamTable streams_;
  PrefixIndex index_;
  AdmissionGate gate_;
  std::vector<std::unique_ptr<Slot>> slots_;
  Tensor host_pool_;  // [cpu_offload_pages, page_bytes] u8
  std::vector<int32_t> free_host_pages_;
  std::vector<PrefixIndex::Node> match_scratch_;
  uint64_t step_number_ = 0;
  int64_t num_prefix_hits_ = 0;
  int64_t num_page_copies_ = 0;
};

}  // namespace mstar

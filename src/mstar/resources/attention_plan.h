#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "mstar/resources/attention.h"
#include "mstar/resources/kv_cache.h"
#include "mstar/resources/static_array.h"

namespace mstar {

// Query rows of one plan label in one step.
struct AttentionGroup {
  LabelId plan_label = -1;
  int64_t num_rows = 0;  // real ones; padding may follow
  Tensor qo_indptr;      // [num_seqs + 1] i32
  Tensor last_rows;      // [num_seqs] i32
};

// What all kinds of attention plan: whose rows are where. With a KV resource the rows follow its
// plan groups (segment i of the attention step reads the stream of segment i of the KV step),
// without one the step's segments grouped by label. Threads as in Resource.
class PlannedAttention : public AttentionResource {
 public:
  // `kv` may be null.
  PlannedAttention(ResourceId id,
                   const std::string& key,
                   const AttentionSpec& spec,
                   const ResourceBuildInfo& info,
                   KvCache* kv);

  std::vector<ResourceId> depends_on() const override;

  void ingest_request(RequestHandle /*request*/, const RequestResourceConfig& /*config*/) override {
  }

  void remove_request(RequestHandle /*request*/) override {}

  void plan(const SubmoduleStep& step, const StepContext& context) override;
  void build_capture_buffers(const CaptureLimits& limits) override;
  const Tensor& qo_indptr(const AttentionContext& context) const override;
  const Tensor& last_rows(const AttentionContext& context) const override;

 protected:
  // Options of this step: the spec's, with the step's causal flag.
  AttentionOptions options(const AttentionContext& context) const;

  const AttentionGroup& group(const AttentionContext& context) const;

  KvCache* kv_;
  AttentionSpec spec_;

 private:
  struct Arrays {
    LabelId plan_label = -1;
    StaticArray<int32_t> qo_indptr;
    StaticArray<int32_t> last_rows;
  };

  struct Slot {
    bool causal = true;
    std::vector<AttentionGroup> groups;
    std::deque<Arrays> leased;
    std::deque<Arrays> eager;
    std::vector<PlanGroup> plan_groups;
    std::vector<int32_t> order;
  };

  Slot& slot(const StepContext& context);
  const Slot& slot(const StepContext& context) const;
  Arrays& arrays_for(Slot& to, LabelId label, bool leased);

  template <typename RowsOf>
  void add_group(Slot& to, LabelId label, bool leased, int64_t num_seqs, RowsOf rows_of);

  std::vector<Slot> slots_;
};

// Rows are written to pages first, then read with all that came before: decode, prefill, denoise
// steps on scratch pages.
class PagedAttention : public PlannedAttention {
 public:
  using PlannedAttention::PlannedAttention;

  void attend(Stream& stream,
              const AttentionContext& context,
              const Tensor& q,
              const Tensor& k,
              const Tensor& v,
              Tensor& out) override;
};

// Rows read a context stream of another KV resource: written by write_context() in the step whose
// KV segments have a span, only read in all later ones.
class CrossAttentionResource : public PlannedAttention {
 public:
  using PlannedAttention::PlannedAttention;

  void attend(Stream& stream,
              const AttentionContext& context,
              const Tensor& q,
              const Tensor& k,
              const Tensor& v,
              Tensor& out) override;
  void write_context(Stream& stream,
                     const AttentionContext& context,
                     const Tensor& k,
                     const Tensor& v) override;
  bool has_context_growth(const AttentionContext& context) const override;
};

// Rows of a segment see each other and nothing else: encoders.
class RaggedAttention : public PlannedAttention {
 public:
  using PlannedAttention::PlannedAttention;

  void attend(Stream& stream,
              const AttentionContext& context,
              const Tensor& q,
              const Tensor& k,
              const Tensor& v,
              Tensor& out) override;
};

}  // namespace mstar

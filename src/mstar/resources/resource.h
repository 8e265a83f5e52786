#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mstar/resources/spec.h"
#include "mstar/resources/step.h"
#include "mstar/tensor/stream.h"

namespace mstar {

// Outward state of one stream, for the conductor and for other workers.
struct PublishedStream {
  LabelId label = kMainLabel;
  int64_t stored_len = -1;  // tokens committed; -1: not this resource's to say
  int64_t position = -1;    // next position; -1: likewise

  friend bool operator==(const PublishedStream&, const PublishedStream&) = default;
};

struct PublishedInfo {
  std::vector<PublishedStream> streams;

  PublishedStream& stream(LabelId label);  // adds it when missing
  // Counters only grow: the larger of both sides. Labels of either.
  void merge(const PublishedInfo& other);
};

// Upper bounds of all captures that will read a resource's static buffers.
struct CaptureLimits {
  int32_t max_bs = 0;           // requests; rows of a combination are so many times its labels
  int32_t max_num_tokens = 0;   // packed, over all rows of one plan label
  int32_t max_draws = 1;        // of one row and sampler in one step
  int32_t max_pages = 0;        // page table entries over all rows; 0: derived from the pool
  std::vector<LabelId> labels;  // plan labels that captures use
};

// Engine-owned state with phases: reserve, plan, commit. One step of a submodule goes through
//   admit (all resources) -> plan (all) -> stage -> forward -> commit (all) [-> discard]
// driven by StepRunner in dependency order.
//
// Two threads. *Step loop*: the one thread that admits, plans and commits; all methods here are
// its own unless marked. *Executor*: the thread that owns the stream and runs stage() and what
// layers call (attend, apply_qk, sample); it reads the buffers of one slot, which the step loop
// does not touch until that step has run. Handing the step over is the synchronisation.
class Resource {
 public:
  Resource(ResourceId id, std::string key) : id_(id), key_(std::move(key)) {}

  virtual ~Resource() = default;

  Resource(const Resource&) = delete;
  Resource& operator=(const Resource&) = delete;

  ResourceId id() const { return id_; }

  const std::string& key() const { return key_; }

  // Resources whose plan this one reads: they are planned and committed first.
  virtual std::vector<ResourceId> depends_on() const { return {}; }

  // Opens the request's state. Throws Error(kInvalidArgument) when `config` asks for what this
  // resource cannot do; then nothing is opened.
  virtual void ingest_request(RequestHandle request, const RequestResourceConfig& config) = 0;

  // Drops it. No step of the request may be between admit and commit. Unknown handles are ignored.
  virtual void remove_request(RequestHandle request) = 0;

  // Reserves what the step needs, or says why not and changes nothing.
  virtual AdmitOutcome admit(const SubmoduleStep& step, const StepContext& context) {
    (void)step, (void)context;
    return {};
  }

  // Takes back an admit of this slot that will not be committed.
  virtual void rollback(const SubmoduleStep& step, const StepContext& context) {
    (void)step, (void)context;
  }

  // Builds the step's index arrays into the slot's buffers: under a lease fixed addresses, with
  // padding neutralised.
  virtual void plan(const SubmoduleStep& step, const StepContext& context) {
    (void)step, (void)context;
  }

  // Executor. Device work of the plan, enqueued before the forward: page copies, rope tables,
  // new rows of resident state.
  virtual void stage(Stream& stream, const StepContext& context) { (void)stream, (void)context; }

  // Records that the step was submitted: counters and tables move, host bookkeeping only.
  virtual void commit(const SubmoduleStep& step, const StepContext& context) {
    (void)step, (void)context;
  }

  // Takes one request's part of the last committed step back (a late stop, a failed forward). Only
  // before the request's next admit. `poisoned`: the forward did not run to its end.
  virtual void discard(const SubmoduleStep& step,
                       const StepContext& context,
                       RequestHandle request,
                       bool poisoned) {
    (void)step, (void)context, (void)request, (void)poisoned;
  }

  // The forward of the slot's step has run: what the slot kept alive for it may go.
  virtual void finish(const StepContext& context) { (void)context; }

  // The stream starts with `num_tokens` tokens that came from the prefix index: counters move on
  // as if they had been committed. Asked only when all resources are prefix_skip_safe().
  virtual bool prefix_skip_safe() const { return true; }

  virtual void skip_prefix(RequestHandle request, LabelId label, int64_t num_tokens) {
    (void)request, (void)label, (void)num_tokens;
  }

  // Adds the request's outward state.
  virtual void publish(RequestHandle request, PublishedInfo& info) const {
    (void)request, (void)info;
  }

  // Back to the state after ingest. With free off it keeps what it holds (padding rows of a
  // capture keep their pages).
  virtual void reset_request(RequestHandle request, bool free) { (void)request, (void)free; }

  // Static buffers of every slot, before the first capture. May be called again with larger limits
  // until then: buffers only grow. Throws Error(kInvalidArgument) when they cannot be met.
  virtual void build_capture_buffers(const CaptureLimits& limits) { (void)limits; }

  // Whether a step may be planned while the one before it still runs.
  virtual bool supports_preplan() const { return true; }

 private:
  ResourceId id_;
  std::string key_;
};

struct ResourceBuildInfo {
  const LabelTable* labels = nullptr;
  const std::vector<Resource*>* resources = nullptr;  // by id, null where not built yet
  const NameTable* resource_names = nullptr;          // keys by id
  int32_t num_slots = 2;                              // steps in flight at the same time
  int32_t max_num_requests = 64;                      // handles are below this; state that is
                                                      // resident per row is sized by it
};

// One resource from its spec. Resources it depends on must be there already. Throws
// Error(kInvalidArgument) naming the key when the spec is wrong.
std::unique_ptr<Resource> build_resource(ResourceId id,
                                         const std::string& key,
                                         const ResourceSpec& spec,
                                         const ResourceBuildInfo& info);

}  // namespace mstar

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mstar/kernels/ops/sampling.h"
#include "mstar/resources/sampler.h"

namespace mstar {

// The samplers of one node. Each request has parameters and a step count per named sampler; the
// step loop writes them into the slot's rows, the ops read those rows when they run, so that a
// replayed step samples with new parameters. What penalties need (which tokens were seen, how
// often) stays resident per request and sampler and is updated in place by the executor. Token
// rules follow the drawn tokens there too: before a step they are told of the last one and fill the
// row's mask, an input of the step like its parameters.
// Threads as in Resource; sample() is the executor's.
class Sampling : public SamplerResource {
 public:
  static constexpr int64_t kMaxLogitBias = 1024;  // entries of one request

  Sampling(ResourceId id,
           const std::string& key,
           const SamplerSpec& spec,
           const ResourceBuildInfo& info);

  void ingest_request(RequestHandle request, const RequestResourceConfig& config) override;
  void remove_request(RequestHandle request) override;
  void plan(const SubmoduleStep& step, const StepContext& context) override;
  void stage(Stream& stream, const StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override;
  void discard(const SubmoduleStep& step,
               const StepContext& context,
               RequestHandle request,
               bool poisoned) override;
  void reset_request(RequestHandle request, bool free) override;
  void build_capture_buffers(const CaptureLimits& limits) override;

  void sample(Stream& stream,
              const StepContext& context,
              int32_t sampler,
              int32_t draw,
              Tensor& logits,
              Tensor& tokens,
              Tensor& probs) override;

  void set_rules(RequestHandle request,
                 int32_t sampler,
                 const std::shared_ptr<const TokenRulesSource>& rules) override;

  // Draws so far: the step of the request's next random number.
  uint64_t num_draws(RequestHandle request, int32_t sampler) const;

 private:
  // What apply_penalties and track_tokens read of one row; written by plan().
  struct PenaltyRow {
    int32_t resident = -1;  // row of the resident arrays; -1: nothing to do
    float repetition_penalty = 1.0F;
    float presence_penalty = 0.0F;
    float frequency_penalty = 0.0F;
    int32_t num_bias = 0;
    int32_t masked = 0;  // 1: only tokens of the row's mask
  };

  // The rules of one row, and how many of its tokens they were told. The executor's.
  struct Guide {
    std::unique_ptr<TokenRules> rules;
    uint64_t num_accepted = 0;
  };

  // One request's state of one named sampler.
  struct RowState {
    SamplingParams params;
    uint64_t step = 0;
    uint64_t undo = 0;               // draws of the last commit
    bool fresh = true;               // the resident row holds another request's marks
    std::shared_ptr<Guide> guide{};  // null: no token rules
    bool penalized() const;

    bool needs_resident() const {
      return penalized() || !params.logit_bias.empty() || guide != nullptr;
    }
  };

  struct Request {
    bool open = false;
    uint64_t seed = 0;
    std::vector<RowState> rows;  // [samplers]
  };

  // Rows of one named sampler in one slot.
  struct Rows {
    int64_t capacity = 0;   // rows
    int64_t num_draws = 0;  // capacity in draws
    int64_t num_rows = 0;
    bool planned = false;
    bool live = false;  // some row has penalties or bias
    Tensor sampling;    // u8 [draws * capacity, sizeof(SamplingRow)]
    Tensor penalties;   // u8 [capacity, sizeof(PenaltyRow)]
    Tensor masks;       // i32 [capacity, ceil(vocab / 32)]; undefined where nothing is resident
  };

  struct Reset {
    int32_t resident = -1;
    std::vector<std::pair<int32_t, float>> logit_bias;
  };

  struct Marks {
    int32_t resident = -1;
    std::vector<int32_t> tokens;
  };

  // A mask to fill before the step, for the answer's token `step`.
  struct Guided {
    std::shared_ptr<Guide> guide;
    int32_t resident = -1;
    uint64_t step = 0;
    uint32_t* mask = nullptr;
  };

  struct Slot {
    std::vector<Rows> leased;  // [samplers]
    std::vector<Rows> eager;
    std::vector<Reset> resets;  // resident rows to start anew before the step
    size_t num_resets = 0;
    std::vector<int32_t> undo_rows;  // resident rows whose last mark goes
    std::vector<Marks> marks;        // prompt tokens to mark
    size_t num_marks = 0;
    std::vector<Guided> guided;
  };

  struct Penalties;  // kernel parameters

  Slot& slot(const StepContext& context);
  Request& request_of(RequestHandle request);
  void validate(const SamplingParams& params) const;
  int32_t resident_row(RequestHandle request, int32_t sampler) const;
  void reserve(Rows& rows, int64_t num_rows, int64_t num_draws, bool fixed);
  void plan_entry(const SubmoduleStep& step, const SamplerStep& own, bool leased, Slot& to);
  void plan_marks(const SamplerStep& own, Slot& to);
  void write_bias(const Reset& reset);
  void fill_mask(const Guided& guided);

  SamplerSpec spec_;
  int32_t max_num_requests_;
  bool has_penalties_;                // any capability is on
  std::vector<uint64_t> stream_ids_;  // [samplers]
  std::deque<Request> requests_;
  std::vector<int32_t> undos_;  // for the next plan
  std::vector<Slot> slots_;

  // Executor's, by resident row = request * samplers + sampler.
  Tensor seen_;         // [resident, ceil(vocab / 32)] i32 bit sets
  Tensor counts_;       // [resident, vocab] i32
  Tensor last_;         // [resident, 2] i32: last token marked, whether its bit was new
  Tensor bias_tokens_;  // [resident, kMaxLogitBias] i32
  Tensor bias_values_;  // likewise f32
};

}  // namespace mstar

#include "mstar/resources/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

namespace {

// FNV-1a: a sampler's name keys its random numbers.
uint64_t hash_name(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char character : name) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3ULL;
  }
  return hash;
}

bool has_bit(const int32_t* bits, int64_t token) {
  return ((static_cast<uint32_t>(bits[token / 32]) >> (token % 32)) & 1U) != 0;
}

void flip_bit(int32_t* bits, int64_t token) {
  bits[token / 32] =
      static_cast<int32_t>(static_cast<uint32_t>(bits[token / 32]) ^ (1U << (token % 32)));
}

}  // namespace

// Pointers of the resident arrays are null where the capability is off.
struct Sampling::Penalties {
  const PenaltyRow* rows;
  int64_t num_rows;
  int64_t vocab;
  int64_t num_words;
  float* logits;
  const int32_t* tokens;
  int32_t* seen;
  int32_t* counts;
  int32_t* last;
  const int32_t* bias_tokens;
  const float* bias_values;
  const int32_t* masks;

  static void apply(const Penalties& p, int task) {
    const PenaltyRow& row = p.rows[task];
    if (row.resident < 0) {
      return;
    }
    float* logits = p.logits + task * p.vocab;
    if (row.repetition_penalty != 1.0F) {
      const int32_t* bits = p.seen + row.resident * p.num_words;
      for (int64_t word = 0; word < p.num_words; ++word) {
        for (auto left = static_cast<uint32_t>(bits[word]); left != 0; left &= left - 1) {
          float& logit = logits[word * 32 + __builtin_ctz(left)];
          logit = logit > 0.0F ? logit / row.repetition_penalty : logit * row.repetition_penalty;
        }
      }
    }
    if (row.presence_penalty != 0.0F || row.frequency_penalty != 0.0F) {
      const int32_t* counts = p.counts + row.resident * p.vocab;
      for (int64_t token = 0; token < p.vocab; ++token) {
        if (counts[token] > 0) {
          logits[token] -=
              row.presence_penalty + row.frequency_penalty * static_cast<float>(counts[token]);
        }
      }
    }
    for (int32_t entry = 0; entry < row.num_bias; ++entry) {
      const int64_t at = row.resident * kMaxLogitBias + entry;
      logits[p.bias_tokens[at]] += p.bias_values[at];
    }
    if (row.masked != 0) {
      mask_out(p.masks + task * p.num_words, p.vocab, logits);
    }
  }

  // Tokens whose bit is not set cannot be drawn.
  static void mask_out(const int32_t* mask, int64_t vocab, float* logits) {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    for (int64_t begin = 0; begin < vocab; begin += 32) {
      const auto bits = static_cast<uint32_t>(mask[begin / 32]);
      const int64_t end = std::min<int64_t>(vocab, begin + 32);
      if (bits == 0) {
        std::fill(logits + begin, logits + end, kNever);
      } else if (bits != 0xFFFFFFFFU) {
        for (int64_t token = begin; token < end; ++token) {
          logits[token] = (bits >> (token - begin) & 1U) != 0 ? logits[token] : kNever;
        }
      }
    }
  }

  static void track(const Penalties& p, int /*task*/) {
    for (int64_t index = 0; index < p.num_rows; ++index) {
      const int32_t resident = p.rows[index].resident;
      const int32_t token = p.tokens[index];
      if (resident < 0 || token < 0 || token >= p.vocab) {
        continue;
      }
      bool is_new = false;
      if (p.seen != nullptr) {
        int32_t* bits = p.seen + resident * p.num_words;
        is_new = !has_bit(bits, token);
        if (is_new) {
          flip_bit(bits, token);
        }
      }
      if (p.counts != nullptr) {
        ++p.counts[resident * p.vocab + token];
      }
      p.last[2 * resident] = token;
      p.last[2 * resident + 1] = is_new ? 1 : 0;
    }
  }
};

bool Sampling::RowState::penalized() const {
  return params.repetition_penalty != 1.0F || params.presence_penalty != 0.0F ||
         params.frequency_penalty != 0.0F;
}

Sampling::Sampling(ResourceId id,
                   const std::string& key,
                   const SamplerSpec& spec,
                   const ResourceBuildInfo& info)
    : SamplerResource(id, key),
      spec_(spec),
      max_num_requests_(info.max_num_requests),
      has_penalties_(spec.enable_repetition_penalty || spec.enable_count_penalty ||
                     spec.enable_logit_bias),
      slots_(static_cast<size_t>(info.num_slots)) {
  if (spec_.samplers.empty() || spec_.vocab_size <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[resource '",
                        key,
                        "'] ",
                        spec_.samplers.size(),
                        " samplers over ",
                        spec_.vocab_size,
                        " tokens; expected at least one of each"));
  }
  for (const std::string& name : spec_.samplers) {
    stream_ids_.push_back(hash_name(name));
  }
  for (Slot& to : slots_) {
    to.leased.resize(spec_.samplers.size());
    to.eager.resize(spec_.samplers.size());
  }
  const int64_t num_resident = max_num_requests_ * static_cast<int64_t>(spec_.samplers.size());
  if (spec_.enable_repetition_penalty) {
    seen_ = Tensor::zeros({num_resident, (spec_.vocab_size + 31) / 32}, DType::kI32);
  }
  if (spec_.enable_count_penalty) {
    counts_ = Tensor::zeros({num_resident, spec_.vocab_size}, DType::kI32);
  }
  if (has_penalties_) {
    last_ = Tensor::zeros({num_resident, 2}, DType::kI32);
  }
  if (spec_.enable_logit_bias) {
    bias_tokens_ = Tensor::zeros({num_resident, kMaxLogitBias}, DType::kI32);
    bias_values_ = Tensor::zeros({num_resident, kMaxLogitBias}, DType::kF32);
  }
}

void Sampling::validate(const SamplingParams& params) const {
  const auto fail = [&](ErrorCode code, const std::string& what) {
    throw Error(code, str_cat("[resource '", key(), "'] ", what));
  };
  const auto in_range = [&](const char* name, float value, float low, float high) {
    if (!(value >= low && value <= high)) {
      fail(ErrorCode::kInvalidArgument,
           str_cat(name, " is ", value, ", expected ", low, " to ", high));
    }
  };
  in_range("temperature", params.temperature, 0.0F, 100.0F);
  in_range("top_p", params.top_p, 0.0F, 1.0F);
  in_range("min_p", params.min_p, 0.0F, 1.0F);
  in_range("repetition_penalty", params.repetition_penalty, 1e-3F, 1e3F);
  in_range("presence_penalty", params.presence_penalty, -100.0F, 100.0F);
  in_range("frequency_penalty", params.frequency_penalty, -100.0F, 100.0F);
  if (params.top_k < 0) {
    fail(ErrorCode::kInvalidArgument, str_cat("top_k is ", params.top_k, ", expected 0 or more"));
  }
  if (params.repetition_penalty != 1.0F && !spec_.enable_repetition_penalty) {
    fail(ErrorCode::kUnsupported, "this model has no repetition penalty; leave it out");
  }
  if ((params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F) &&
      !spec_.enable_count_penalty) {
    fail(ErrorCode::kUnsupported,
         "this model has no presence or frequency penalty; leave them out");
  }
  if (!params.logit_bias.empty() && !spec_.enable_logit_bias) {
    fail(ErrorCode::kUnsupported, "this model has no logit bias; leave it out");
  }
  if (static_cast<int64_t>(params.logit_bias.size()) > kMaxLogitBias) {
    fail(
        ErrorCode::kInvalidArgument,
        str_cat(
            "logit_bias has ", params.logit_bias.size(), " entries, the limit is ", kMaxLogitBias));
  }
  for (const auto& [token, value] : params.logit_bias) {
    in_range("logit_bias", value, -1000.0F, 1000.0F);
    if (token < 0 || token >= spec_.vocab_size) {
      fail(ErrorCode::kInvalidArgument,
           str_cat("logit_bias names token ", token, ", the vocabulary has ", spec_.vocab_size));
    }
  }
}

void Sampling::ingest_request(RequestHandle request, const RequestResourceConfig& config) {
  MSTAR_CHECK(
      request >= 0 && request < max_num_requests_, "request ", request, " of ", max_num_requests_);
  static const SamplingRequestConfig kDefaults;
  const auto* given = std::get_if<SamplingRequestConfig>(&config);
  const SamplingRequestConfig& sampling = given == nullptr ? kDefaults : *given;
  for (const SamplingParams& params : sampling.params) {
    validate(params);
  }
  while (requests_.size() <= static_cast<size_t>(request)) {
    requests_.emplace_back();
  }
  Request& added = requests_[static_cast<size_t>(request)];
  MSTAR_CHECK(!added.open, "request ", request, " is open already");
  added.open = true;
  added.seed = sampling.seed;
  added.rows.clear();
  for (size_t sampler = 0; sampler < spec_.samplers.size(); ++sampler) {
    RowState& row = added.rows.emplace_back();
    if (!sampling.params.empty()) {
      row.params = sampling.params[sampler < sampling.params.size() ? sampler : 0];
    }
  }
}

void Sampling::remove_request(RequestHandle request) {
  if (request < 0 || static_cast<size_t>(request) >= requests_.size()) {
    return;
  }
  requests_[static_cast<size_t>(request)] = Request();
  const auto num_samplers = static_cast<int32_t>(spec_.samplers.size());
  std::erase_if(undos_, [&](int32_t resident) { return resident / num_samplers == request; });
}

Sampling::Request& Sampling::request_of(RequestHandle request) {
  MSTAR_CHECK(request >= 0 && static_cast<size_t>(request) < requests_.size() &&
                  requests_[static_cast<size_t>(request)].open,
              "resource '",
              key(),
              "': request ",
              request,
              " is not open");
  return requests_[static_cast<size_t>(request)];
}

void Sampling::set_rules(RequestHandle request,
                         int32_t sampler,
                         const std::shared_ptr<const TokenRulesSource>& rules) {
  RowState& row = request_of(request).rows.at(static_cast<size_t>(sampler));
  if (row.guide != nullptr) {
    return;
  }
  if (!has_penalties_) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[resource '", key(), "'] answers of this model cannot be constrained"));
  }
  MSTAR_CHECK(row.step == 0, "token rules behind ", row.step, " tokens");
  auto guide = std::make_shared<Guide>();
  guide->rules = rules->start();
  row.guide = std::move(guide);
}

uint64_t Sampling::num_draws(RequestHandle request, int32_t sampler) const {
  return const_cast<Sampling*>(this)->request_of(request).rows[static_cast<size_t>(sampler)].step;
}

Sampling::Slot& Sampling::slot(const StepContext& context) {
  MSTAR_CHECK(context.slot >= 0 && static_cast<size_t>(context.slot) < slots_.size(),
              "slot ",
              context.slot,
              " of ",
              slots_.size());
  return slots_[static_cast<size_t>(context.slot)];
}

int32_t Sampling::resident_row(RequestHandle request, int32_t sampler) const {
  return request * static_cast<int32_t>(spec_.samplers.size()) + sampler;
}

void Sampling::reserve(Rows& rows, int64_t num_rows, int64_t num_draws, bool fixed) {
  if (num_rows <= rows.capacity && num_draws <= rows.num_draws) {
    return;
  }
  MSTAR_CHECK(!fixed,
              "a leased step draws ",
              num_draws,
              " times for ",
              num_rows,
              " rows, its buffers hold ",
              rows.num_draws,
              " and ",
              rows.capacity);
  rows.capacity = std::max(num_rows, rows.capacity);
  rows.num_draws = std::max(num_draws, rows.num_draws);
  rows.sampling = Tensor::zeros(
      {rows.capacity * rows.num_draws, static_cast<int64_t>(sizeof(SamplingRow))}, DType::kU8);
  rows.penalties =
      Tensor::zeros({rows.capacity, static_cast<int64_t>(sizeof(PenaltyRow))}, DType::kU8);
  if (has_penalties_) {
    rows.masks = Tensor::zeros({rows.capacity, (spec_.vocab_size + 31) / 32}, DType::kI32);
  }
}

void Sampling::plan(const SubmoduleStep& step, const StepContext& context) {
  Slot& to = slot(context);
  to.num_resets = 0;
  to.num_marks = 0;
  to.guided.clear();
  to.undo_rows.assign(undos_.begin(), undos_.end());
  undos_.clear();
  for (Rows& rows : context.leased() ? to.leased : to.eager) {
    rows.planned = false;
  }
  for (const SamplerStep& own : step.sampler) {
    if (own.resource == id()) {
      plan_entry(step, own, context.leased(), to);
      plan_marks(own, to);
    }
  }
}

void Sampling::plan_entry(const SubmoduleStep& step,
                          const SamplerStep& own,
                          bool leased,
                          Slot& to) {
  const auto index = static_cast<size_t>(own.sampler);
  MSTAR_CHECK(own.sampler >= 0 && index < spec_.samplers.size() && own.num_draws >= 1,
              "resource '",
              key(),
              "': sampler ",
              own.sampler,
              ", draws ",
              own.num_draws);
  const std::vector<Segment>& segments = step.segments_of(own);
  Rows& rows = (leased ? to.leased : to.eager)[index];
  const auto num_rows = static_cast<int64_t>(segments.size());
  const bool too_many = num_rows > rows.capacity && !leased;
  reserve(
      rows, too_many ? std::max<int64_t>(num_rows * 3 / 2, 8) : num_rows, own.num_draws, leased);
  rows.planned = true;
  rows.num_rows = num_rows;
  rows.live = false;
  auto* sampling = reinterpret_cast<SamplingRow*>(rows.sampling.bytes());
  auto* penalties = reinterpret_cast<PenaltyRow*>(rows.penalties.bytes());
  for (int64_t row_index = 0; row_index < num_rows; ++row_index) {
    const RequestHandle request = segments[static_cast<size_t>(row_index)].request;
    Request& from = request_of(request);
    RowState& row = from.rows[index];
    const int32_t resident = resident_row(request, own.sampler);
    PenaltyRow& penalty = penalties[row_index];
    penalty = PenaltyRow();
    if (has_penalties_ && row.needs_resident()) {
      rows.live = true;
      penalty.resident = resident;
      if (own.apply_penalty) {
        penalty.repetition_penalty = row.params.repetition_penalty;
        penalty.presence_penalty = row.params.presence_penalty;
        penalty.frequency_penalty = row.params.frequency_penalty;
      }
      penalty.num_bias = static_cast<int32_t>(row.params.logit_bias.size());
      if (row.guide != nullptr) {
        MSTAR_CHECK(own.num_draws == 1, "token rules with ", own.num_draws, " draws a step");
        penalty.masked = 1;
        const int64_t num_words = rows.masks.dim(1);
        to.guided.push_back(
            {row.guide,
             resident,
             row.step,
             reinterpret_cast<uint32_t*>(rows.masks.data<int32_t>()) + row_index * num_words});
      }
      if (row.fresh) {
        if (to.num_resets == to.resets.size()) {
          to.resets.emplace_back();
        }
        Reset& reset = to.resets[to.num_resets++];
        reset.resident = resident;
        reset.logit_bias = row.params.logit_bias;
      }
    }
    for (int32_t draw = 0; draw < own.num_draws; ++draw) {
      sampling[draw * rows.capacity + row_index] = {.temperature = row.params.temperature,
                                                    .top_p = row.params.top_p,
                                                    .min_p = row.params.min_p,
                                                    .top_k = row.params.top_k,
                                                    .seed = from.seed,
                                                    .stream = stream_ids_[index],
                                                    .step = row.step + static_cast<uint64_t>(draw)};
    }
  }
}

void Sampling::plan_marks(const SamplerStep& own, Slot& to) {
  for (const TrackedTokens& tracked : own.prefill_tracked_tokens) {
    const RowState& row = request_of(tracked.request).rows[static_cast<size_t>(own.sampler)];
    if (!spec_.enable_repetition_penalty || !row.needs_resident()) {
      continue;
    }
    if (to.num_marks == to.marks.size()) {
      to.marks.emplace_back();
    }
    Marks& marks = to.marks[to.num_marks++];
    marks.resident = resident_row(tracked.request, own.sampler);
    marks.tokens.clear();
    for (int64_t index = 0; index < tracked.ids.num_elements(); ++index) {
      marks.tokens.push_back(tracked.ids.dtype() == DType::kI64
                                 ? static_cast<int32_t>(tracked.ids.data<int64_t>()[index])
                                 : tracked.ids.data<int32_t>()[index]);
    }
  }
}

void Sampling::write_bias(const Reset& reset) {
  for (size_t entry = 0; entry < reset.logit_bias.size(); ++entry) {
    const auto at = reset.resident * kMaxLogitBias + static_cast<int64_t>(entry);
    bias_tokens_.data<int32_t>()[at] = reset.logit_bias[entry].first;
    bias_values_.data<float>()[at] = reset.logit_bias[entry].second;
  }
}

// Rules hear of a token when the next one is drawn: what was taken back they never hear of.
void Sampling::fill_mask(const Guided& guided) {
  Guide& guide = *guided.guide;
  if (guided.step == 0) {
    guide.rules->reset();
    guide.num_accepted = 0;
  }
  if (guide.num_accepted < guided.step) {
    guide.rules->accept(last_.data<int32_t>()[2 * guided.resident]);
    ++guide.num_accepted;
  }
  MSTAR_CHECK(guide.num_accepted == guided.step,
              "token rules were told ",
              guide.num_accepted,
              " tokens of ",
              guided.step);
  guide.rules->fill_mask({guided.mask, static_cast<size_t>((spec_.vocab_size + 31) / 32)});
}

// Rare and small host work on host memory, between two steps: done in place, not enqueued.
void Sampling::stage(Stream& stream, const StepContext& context) {
  Slot& from = slot(context);
  if (from.num_resets == 0 && from.undo_rows.empty() && from.num_marks == 0 &&
      from.guided.empty()) {
    return;
  }
  stream.synchronize();
  const int64_t num_words = (spec_.vocab_size + 31) / 32;
  for (const int32_t resident : from.undo_rows) {
    int32_t* last = last_.data<int32_t>() + 2 * resident;
    if (seen_.defined() && last[1] != 0) {
      flip_bit(seen_.data<int32_t>() + resident * num_words, last[0]);
    }
    if (counts_.defined()) {
      --counts_.data<int32_t>()[resident * spec_.vocab_size + last[0]];
    }
  }
  for (size_t index = 0; index < from.num_resets; ++index) {
    const int32_t resident = from.resets[index].resident;
    if (seen_.defined()) {
      std::fill_n(seen_.data<int32_t>() + resident * num_words, num_words, 0);
    }
    if (counts_.defined()) {
      std::fill_n(counts_.data<int32_t>() + resident * spec_.vocab_size, spec_.vocab_size, 0);
    }
    if (bias_tokens_.defined()) {
      write_bias(from.resets[index]);
    }
  }
  for (size_t index = 0; index < from.num_marks; ++index) {
    int32_t* bits = seen_.data<int32_t>() + from.marks[index].resident * num_words;
    for (const int32_t token : from.marks[index].tokens) {
      if (token >= 0 && token < spec_.vocab_size && !has_bit(bits, token)) {
        flip_bit(bits, token);
      }
    }
  }
  for (const Guided& guided : from.guided) {
    fill_mask(guided);
  }
}

void Sampling::sample(Stream& stream,
                      const StepContext& context,
                      int32_t sampler,
                      int32_t draw,
                      Tensor& logits,
                      Tensor& tokens,
                      Tensor& probs) {
  Slot& from = slot(context);
  const Rows& rows = (context.leased() ? from.leased : from.eager)[static_cast<size_t>(sampler)];
  MSTAR_CHECK(rows.planned && draw < rows.num_draws && logits.dim(0) == rows.num_rows &&
                  logits.dim(1) == spec_.vocab_size,
              "resource '",
              key(),
              "': draw ",
              draw,
              " of sampler ",
              sampler,
              " on logits ",
              logits.to_string(),
              ", planned ",
              rows.num_rows,
              " rows");
  // A captured step may be replayed with penalties that this one has not.
  const bool penalize = has_penalties_ && (rows.live || context.leased());
  Tensor input = logits;
  Penalties params{};
  if (penalize) {
    if (logits.dtype() != DType::kF32) {
      input = stream.empty(logits.shape(), DType::kF32);
      ops::copy(stream, logits, input);
    }
    params = {.rows = reinterpret_cast<const PenaltyRow*>(rows.penalties.bytes()),
              .num_rows = rows.num_rows,
              .vocab = spec_.vocab_size,
              .num_words = (spec_.vocab_size + 31) / 32,
              .logits = input.data<float>(),
              .tokens = tokens.data<int32_t>(),
              .seen = seen_.defined() ? seen_.data<int32_t>() : nullptr,
              .counts = counts_.defined() ? counts_.data<int32_t>() : nullptr,
              .last = last_.data<int32_t>(),
              .bias_tokens = bias_tokens_.defined() ? bias_tokens_.data<int32_t>() : nullptr,
              .bias_values = bias_values_.defined() ? bias_values_.data<float>() : nullptr,
              .masks = rows.masks.defined() ? rows.masks.data<int32_t>() : nullptr};
    as_cpu(stream).enqueue(
        "apply_penalties", static_cast<int>(rows.num_rows), params, &Penalties::apply);
  }
  const int64_t first = draw * rows.capacity;
  ops::sample(stream,
              input,
              rows.sampling.slice(0, first, first + rows.num_rows),
              Tensor(),
              Tensor(),
              Tensor(),
              tokens,
              probs);
  if (penalize) {
    as_cpu(stream).enqueue("track_tokens", 1, params, &Penalties::track);
  }
}

void Sampling::commit(const SubmoduleStep& step, const StepContext& /*context*/) {
  for (const SamplerStep& own : step.sampler) {
    if (own.resource != id()) {
      continue;
    }
    for (const Segment& segment : step.segments_of(own)) {
      RowState& row = request_of(segment.request).rows[static_cast<size_t>(own.sampler)];
      row.undo = static_cast<uint64_t>(own.num_draws);
      row.step += row.undo;
      row.fresh = false;
    }
  }
}

// The step count goes back by the whole step, the marks by its last draw.
void Sampling::discard(const SubmoduleStep& step,
                       const StepContext& /*context*/,
                       RequestHandle request,
                       bool poisoned) {
  for (const SamplerStep& own : step.sampler) {
    if (own.resource != id()) {
      continue;
    }
    for (const Segment& segment : step.segments_of(own)) {
      RowState& row = request_of(segment.request).rows[static_cast<size_t>(own.sampler)];
      if (segment.request != request || row.undo == 0) {
        continue;
      }
      row.step -= row.undo;
      row.undo = 0;
      if (!poisoned && has_penalties_ && row.needs_resident()) {
        undos_.push_back(resident_row(request, own.sampler));
      }
    }
  }
}

void Sampling::reset_request(RequestHandle request, bool /*free*/) {
  for (RowState& row : request_of(request).rows) {
    row.step = 0;
    row.undo = 0;
    row.fresh = true;
  }
}

void Sampling::build_capture_buffers(const CaptureLimits& limits) {
  for (Slot& to : slots_) {
    for (Rows& rows : to.leased) {
      reserve(rows, limits.max_bs, limits.max_draws, false);
    }
  }
}

}  // namespace mstar

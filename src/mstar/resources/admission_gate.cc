#include "mstar/resources/admission_gate.h"

#include <algorithm>

namespace mstar {

int64_t AdmissionGate::pages(const Demand& demand, int64_t num_tokens) const {
  return demand.num_streams * ((num_tokens + page_size_ - 1) / page_size_);
}

void AdmissionGate::enqueue(RequestHandle request, const Demand& demand) {
  waiting_.push_back({request, demand, demand.prompt_tokens});
}

AdmitReason AdmissionGate::try_admit(RequestHandle request, int64_t capacity) {
  const auto entry = std::find_if(
      waiting_.begin(), waiting_.end(), [request](const Entry& e) { return e.request == request; });
  if (entry == waiting_.end()) {
    return AdmitReason::kNone;
  }
  if (worst_case_pages(entry->demand) > capacity) {
    return AdmitReason::kRuntimeError;
  }
  if (entry != waiting_.begin()) {
    const auto distance = entry - waiting_.begin();
    if (spec_.order == AdmissionOrder::kFifo || distance > spec_.backfill_window ||
        delays_head(*entry, capacity)) {
      return AdmitReason::kAdmitWaitBehind;
    }
  }
  if (!fits(*entry, capacity)) {
    return AdmitReason::kAdmitWait;
  }
  admitted_.push_back(*entry);
  waiting_.erase(entry);
  return AdmitReason::kNone;
}

void AdmissionGate::set_progress(RequestHandle request, int64_t num_tokens) {
  for (Entry& entry : admitted_) {
    if (entry.request == request) {
      entry.num_tokens = std::clamp(num_tokens, entry.num_tokens, entry.demand.max_tokens);
      return;
    }
  }
}

void AdmissionGate::remove(RequestHandle request) {
  const auto is_it = [request](const Entry& entry) { return entry.request == request; };
  std::erase_if(waiting_, is_it);
  std::erase_if(admitted_, is_it);
}

int64_t AdmissionGate::sum_of_promises() const {
  int64_t sum = 0;
  for (const Entry& entry : admitted_) {
    sum += worst_case_pages(entry.demand);
  }
  return sum;
}

// Every request grows by one token per step, so usage only drops when one ends: the peak stands
// right before some end.
int64_t AdmissionGate::peak_with(const Entry& candidate) const {
  scratch_.clear();
  scratch_.push_back(candidate.remaining());
  for (const Entry& entry : admitted_) {
    scratch_.push_back(entry.remaining());
  }
  int64_t peak = 0;
  for (const int64_t time : scratch_) {
    const auto usage_at = [&](const Entry& entry) {
      return entry.remaining() < time ? 0 : pages(entry.demand, entry.num_tokens + time);
    };
    int64_t usage = usage_at(candidate);
    for (const Entry& entry : admitted_) {
      usage += usage_at(entry);
    }
    peak = std::max(peak, usage);
  }
  return peak;
}

bool AdmissionGate::fits(const Entry& candidate, int64_t capacity) const {
  if (spec_.fit == AdmissionFit::kPeak) {
    return peak_with(candidate) <= capacity;
  }
  return sum_of_promises() + worst_case_pages(candidate.demand) <= capacity;
}

bool AdmissionGate::delays_head(const Entry& candidate, int64_t capacity) const {
  const Entry& head = waiting_.front();
  const int64_t head_pages = worst_case_pages(head.demand);
  // Ends of the admitted, soonest first: the first after which the head fits is when it starts.
  std::vector<const Entry*> ends;
  for (const Entry& entry : admitted_) {
    ends.push_back(&entry);
  }
  std::sort(ends.begin(), ends.end(), [](const Entry* a, const Entry* b) {
    return a->remaining() < b->remaining();
  });
  int64_t room = capacity - sum_of_promises();
  int64_t start = 0;
  for (const Entry* entry : ends) {
    if (room >= head_pages) {
      break;
    }
    room += worst_case_pages(entry->demand);
    start = entry->remaining();
  }
  return candidate.remaining() > start && worst_case_pages(candidate.demand) > room - head_pages;
}

}  // namespace mstar

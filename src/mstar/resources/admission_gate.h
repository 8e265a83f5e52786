#pragma once

#include <cstdint>
#include <vector>

#include "mstar/resources/spec.h"
#include "mstar/resources/step.h"

namespace mstar {

// Decides which requests may start, by what they promised to need at most, so that an admitted
// request never runs out of pages. Counts promises, holds no pages.
//
//   fit kSum     worst cases of all admitted requests fit side by side
//   fit kPeak    the highest point of their growth fits, as requests end and give back
//   order kFifo      nobody passes the first that waits
//   order kBackfill  a request within the window may pass if that does not delay the first (EASY
//                    backfilling: it ends before the first could start, or leaves it room)
//
// One thread: the step loop.
class AdmissionGate {
 public:
  struct Demand {
    int64_t prompt_tokens = 0;  // per stream, when it starts
    int64_t max_tokens = 0;     // per stream, when it ends
    int64_t num_streams = 1;
  };

  AdmissionGate(const AdmissionSpec& spec, int64_t page_size)
      : spec_(spec), page_size_(page_size) {}

  // The request waits at the end of the queue.
  void enqueue(RequestHandle request, const Demand& demand);

  // Admits the request if `capacity` pages allow it: kNone. Else kAdmitWait (not enough room),
  // kAdmitWaitBehind (an earlier one is first) or kRuntimeError (it could never fit). An admitted
  // or unknown request: kNone.
  AdmitReason try_admit(RequestHandle request, int64_t capacity);

  // What one stream of an admitted request holds by now.
  void set_progress(RequestHandle request, int64_t num_tokens);

  // The request has ended, admitted or not.
  void remove(RequestHandle request);

  int64_t worst_case_pages(const Demand& demand) const { return pages(demand, demand.max_tokens); }

  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }

  int64_t num_admitted() const { return static_cast<int64_t>(admitted_.size()); }

 private:
  struct Entry {
    RequestHandle request = -1;
    Demand demand;
    int64_t num_tokens = 0;  // now

    int64_t remaining() const { return demand.max_tokens - num_tokens; }
  };

  int64_t pages(const Demand& demand, int64_t num_tokens) const;
  int64_t sum_of_promises() const;
  int64_t peak_with(const Entry& candidate) const;
  bool fits(const Entry& candidate, int64_t capacity) const;
  bool delays_head(const Entry& candidate, int64_t capacity) const;

  AdmissionSpec spec_;
  int64_t page_size_;
  std::vector<Entry> waiting_;   // in order of arrival
  std::vector<Entry> admitted_;  // in order of admission
  mutable std::vector<int64_t> scratch_;
};

}  // namespace mstar

#include "mstar/resources/admission_gate.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace mstar {
namespace {

AdmissionGate::Demand demand(int64_t prompt, int64_t max) {
  return {.prompt_tokens = prompt, .max_tokens = max};
}

TEST(AdmissionGate, SumKeepsWorstCasesSideBySide) {
  AdmissionGate gate({}, 4);
  gate.enqueue(1, demand(4, 40));  // 10 pages
  gate.enqueue(2, demand(4, 37));  // 10 pages
  gate.enqueue(3, demand(1, 1));
  EXPECT_EQ(gate.try_admit(1, 19), AdmitReason::kNone);
  EXPECT_EQ(gate.try_admit(3, 19), AdmitReason::kAdmitWaitBehind);
  EXPECT_EQ(gate.try_admit(2, 19), AdmitReason::kAdmitWait);
  gate.remove(1);
  EXPECT_EQ(gate.try_admit(2, 19), AdmitReason::kNone);
  EXPECT_EQ(gate.try_admit(2, 19), AdmitReason::kNone) << "asking again changes nothing";
  EXPECT_EQ(gate.try_admit(3, 19), AdmitReason::kNone);
}

TEST(AdmissionGate, WhatNeverFitsIsTerminal) {
  AdmissionGate gate({}, 4);
  gate.enqueue(1, {.prompt_tokens = 1, .max_tokens = 40, .num_streams = 2});
  EXPECT_EQ(gate.try_admit(1, 19), AdmitReason::kRuntimeError);
  EXPECT_EQ(gate.try_admit(1, 20), AdmitReason::kNone);
}

TEST(AdmissionGate, PeakLetsGrowthAndEndsOverlap) {
  AdmissionGate gate({.fit = AdmissionFit::kPeak}, 1);
  gate.enqueue(1, demand(8, 10));
  gate.enqueue(2, demand(0, 9));
  gate.enqueue(3, demand(0, 9));
  EXPECT_EQ(gate.try_admit(1, 13), AdmitReason::kNone);
  // In two steps 1 ends at 10 while 2 has 2: 12. Then 2 alone grows to 9.
  EXPECT_EQ(gate.try_admit(2, 13), AdmitReason::kNone);
  EXPECT_EQ(gate.try_admit(3, 13), AdmitReason::kAdmitWait) << "2 and 3 end together at 18";
}

TEST(AdmissionGate, BackfillPassesOnlyWithoutDelay) {
  AdmissionGate gate({.order = AdmissionOrder::kBackfill, .backfill_window = 2}, 1);
  gate.enqueue(1, demand(0, 6));
  ASSERT_EQ(gate.try_admit(1, 10), AdmitReason::kNone);
  gate.enqueue(2, demand(0, 8));  // the head; starts when 1 ends, in 6 steps; leaves 2 pages then
  gate.enqueue(3, demand(0, 3));  // ends before
  gate.enqueue(4, demand(5, 12));
  gate.enqueue(5, demand(0, 1));  // beyond the window while 3 and 4 wait
  EXPECT_EQ(gate.try_admit(2, 10), AdmitReason::kAdmitWait);
  EXPECT_EQ(gate.try_admit(5, 10), AdmitReason::kAdmitWaitBehind);
  EXPECT_EQ(gate.try_admit(3, 10), AdmitReason::kNone);
  EXPECT_EQ(gate.try_admit(4, 12), AdmitReason::kAdmitWaitBehind) << "would delay the head";
  EXPECT_EQ(gate.try_admit(5, 10), AdmitReason::kNone);
}

// Whatever the order, admitted requests that grow step by step never need more than there is, and
// everybody gets in eventually.
TEST(AdmissionGate, NobodyRunsOutAndNobodyStarves) {
  for (const AdmissionFit fit : {AdmissionFit::kSum, AdmissionFit::kPeak}) {
    for (const AdmissionOrder order : {AdmissionOrder::kFifo, AdmissionOrder::kBackfill}) {
      std::mt19937 random(3);
      const int64_t capacity = 30;
      AdmissionGate gate({.fit = fit, .order = order}, 4);
      std::map<RequestHandle, AdmissionGate::Demand> waiting;
      std::map<RequestHandle, std::pair<AdmissionGate::Demand, int64_t>> running;
      for (RequestHandle request = 0; request < 60; ++request) {
        const int64_t prompt = random() % 40;
        waiting[request] = demand(prompt, prompt + 1 + static_cast<int64_t>(random() % 60));
        gate.enqueue(request, waiting[request]);
      }
      for (int step = 0; step < 10000 && (!waiting.empty() || !running.empty()); ++step) {
        for (auto candidate = waiting.begin(); candidate != waiting.end();) {
          if (gate.try_admit(candidate->first, capacity) == AdmitReason::kNone) {
            running[candidate->first] = {candidate->second, candidate->second.prompt_tokens};
            candidate = waiting.erase(candidate);
          } else {
            ++candidate;
          }
        }
        int64_t pages = 0;
        for (auto request = running.begin(); request != running.end();) {
          auto& [promise, num_tokens] = request->second;
          ++num_tokens;
          pages += (num_tokens + 3) / 4;
          gate.set_progress(request->first, num_tokens);
          if (num_tokens == promise.max_tokens) {
            gate.remove(request->first);
            request = running.erase(request);
          } else {
            ++request;
          }
        }
        ASSERT_LE(pages, capacity);
      }
      EXPECT_TRUE(waiting.empty());
      EXPECT_EQ(gate.num_admitted(), 0);
    }
  }
}

}  // namespace
}  // namespace mstar

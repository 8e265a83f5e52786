#include "mstar/resources/step_runner.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/resources/test_rig.h"

namespace mstar {
namespace {

// Writes down what it is asked.
class Recorder : public Resource {
 public:
  Recorder(ResourceId id,
           const std::string& key,
           std::vector<ResourceId> needs,
           std::vector<std::string>& log)
      : Resource(id, key), needs_(std::move(needs)), log_(log) {}

  std::vector<ResourceId> depends_on() const override { return needs_; }

  void ingest_request(RequestHandle, const RequestResourceConfig&) override {
    if (fail_ingest) {
      throw Error(ErrorCode::kInvalidArgument, "no");
    }
    note("open");
  }

  void remove_request(RequestHandle) override { note("close"); }

  AdmitOutcome admit(const SubmoduleStep&, const StepContext&) override {
    note("admit");
    return {.ok = !refuse, .reason = refuse ? AdmitReason::kAllocationFailed : AdmitReason::kNone};
  }

  void rollback(const SubmoduleStep&, const StepContext&) override { note("rollback"); }

  void plan(const SubmoduleStep&, const StepContext&) override {
    note("plan");
    if (fail_plan) {
      throw Error(ErrorCode::kInternal, "broken");
    }
  }

  void commit(const SubmoduleStep&, const StepContext&) override { note("commit"); }

  bool refuse = false;
  bool fail_plan = false;
  bool fail_ingest = false;

 private:
  void note(const char* what) { log_.push_back(str_cat(what, " ", key())); }

  std::vector<ResourceId> needs_;
  std::vector<std::string>& log_;
};

using Log = std::vector<std::string>;

class StepRunnerTest : public ::testing::Test {
 protected:
  StepRunnerTest()
      : a_(0, "a", {1}, log_),
        b_(1, "b", {}, log_),
        c_(2, "c", {}, log_),
        runner_({&a_, &b_, &c_}) {
    step_.plain.add(0);
    step_.plain.add(1);
  }

  Log log_;
  Recorder a_;
  Recorder b_;
  Recorder c_;
  StepRunner runner_;
  SubmoduleStep step_;
  StepContext context_;
};

TEST_F(StepRunnerTest, DependenciesFirstAndOnlyThoseInTheStep) {
  {
    Reservation reservation = runner_.reserve(step_, context_);
    ASSERT_TRUE(reservation);
    reservation.plan();
    reservation.commit();
  }
  EXPECT_EQ(log_, (Log{"admit b", "admit a", "plan b", "plan a", "commit b", "commit a"}));
}

TEST_F(StepRunnerTest, ARefusalRollsBackTheOthersAndNamesTheResource) {
  a_.refuse = true;
  const Reservation reservation = runner_.reserve(step_, context_);
  EXPECT_FALSE(reservation);
  EXPECT_EQ(reservation.outcome().resource, 0);
  EXPECT_EQ(log_, (Log{"admit b", "admit a", "rollback b"}));
}

TEST_F(StepRunnerTest, WhatIsNotCommittedIsRolledBack) {
  a_.fail_plan = true;
  try {
    Reservation reservation = runner_.reserve(step_, context_);
    reservation.plan();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[resource 'a'] broken");
  }
  EXPECT_EQ(log_, (Log{"admit b", "admit a", "plan b", "plan a", "rollback a", "rollback b"}));
}

TEST_F(StepRunnerTest, IngestIsAllOrNothing) {
  c_.fail_ingest = true;
  EXPECT_THROW(runner_.ingest_request(0, {}), Error);
  EXPECT_EQ(log_, (Log{"open b", "open a", "close a", "close b"}));
}

TEST_F(StepRunnerTest, CyclesAndStrangersAreErrors) {
  Recorder x(0, "x", {1}, log_);
  Recorder y(1, "y", {0}, log_);
  EXPECT_THROW(StepRunner({&x, &y}), Error);
  Recorder z(0, "z", {5}, log_);
  EXPECT_THROW(StepRunner({&z}), Error);
}

TEST(GroupByPlanLabel, CombinedFirstThenBatchOrder) {
  const std::vector<Segment> segments{{0, 3, 1}, {0, 0, 1}, {0, 1, 1}, {1, 0, 1}, {1, 1, 1}};
  const std::vector<CombinedLabels> combined{{9, 2, {1, 0}}};
  std::vector<PlanGroup> groups;
  std::vector<int32_t> order;
  group_by_plan_label(segments, combined, groups, order);
  EXPECT_EQ(order, (std::vector<int32_t>{2, 4, 1, 3, 0}));
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].plan_label, 9);
  EXPECT_EQ(groups[1].plan_label, 3);
  EXPECT_EQ(groups[1].first, 4);
}

TEST(CaptureKeys, CompareByValue) {
  EXPECT_EQ(CaptureKey(), CaptureKey({}));
  EXPECT_NE(CaptureKey(), CaptureKey(false));
  EXPECT_NE(CaptureKey(true), CaptureKey(false));
  EXPECT_EQ(to_string(CaptureKey({16, 60, 104})), "(16, 60, 104)");
  EXPECT_LT((BucketKey{.bs = 1}), (BucketKey{.bs = 2}));
}

TEST(NameTables, UnknownNamesListTheKnown) {
  LabelTable labels;
  EXPECT_EQ(labels.get("main"), kMainLabel);
  EXPECT_EQ(labels.intern("uncond"), 1);
  EXPECT_EQ(labels.intern("uncond"), 1);
  try {
    labels.get("unkond");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("main, uncond"), std::string::npos);
  }
}

}  // namespace
}  // namespace mstar

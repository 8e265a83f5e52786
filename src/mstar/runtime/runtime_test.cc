#include "mstar/runtime/runtime.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "mstar/base/str_cat.h"
#include "mstar/runtime/memory_check.h"
#include "mstar/runtime/service.h"
#include "mstar/runtime/testing/test_model.h"

namespace mstar {
namespace {

// Collects one answer and lets a test wait for its end.
class Answer : public ChunkSink {
 public:
  void on_chunk(OutputChunk chunk) override {
    const std::lock_guard lock(mutex_);
    text_ += chunk.data;
    changed_.notify_all();
  }

  void on_progress(std::string_view, int64_t, int64_t) override {
    const std::lock_guard lock(mutex_);
    ++num_progress_;
  }

  void on_done(const Completion& completion) override {
    const std::lock_guard lock(mutex_);
    completion_ = completion;
    done_ = true;
    changed_.notify_all();
  }

  void on_error(ErrorCode code, const std::string& message) override {
    const std::lock_guard lock(mutex_);
    code_ = code;
    error_ = message;
    done_ = true;
    changed_.notify_all();
  }

  // The text, or "error: …".
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return error_.empty() ? text_ : str_cat("error: ", error_);
  }

  void wait_for_text() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ || !text_.empty(); });
  }

  int num_progress() const { return num_progress_; }

  ErrorCode code() const { return code_; }

  int64_t num_tokens() const { return completion_.num_generated_tokens; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::string error_;
  ErrorCode code_ = ErrorCode::kInternal;
  Completion completion_;
  bool done_ = false;
  int num_progress_ = 0;
};

class RuntimeTest : public ::testing::Test {
 protected:
  void start(const Deployment& deployment = {}, RuntimeOptions options = {}) {
    options.num_threads = 2;
    runtime_ = std::make_unique<Runtime>(model_, deployment, options);
    service_ = std::make_unique<Service>(model_, runtime_->conductor());
  }

  std::shared_ptr<Answer> ask(const std::string& parameters, Service::Ticket* ticket = nullptr) {
    ModelRequest request;
    request.request_id = str_cat("r", ++num_asked_);
    request.parameters = Json::parse(parameters);
    request.output_modalities = {Modality::kTensor};
    auto answer = std::make_shared<Answer>();
    const Service::Ticket own = service_->submit(std::move(request), answer, true);
    if (ticket != nullptr) {
      *ticket = own;
    }
    return answer;
  }

  // Nothing of any request is left anywhere.
  void expect_empty() {
    ASSERT_TRUE(runtime_->conductor().drain(std::chrono::seconds(20)));
    for (const Scheduler::Stats& stats : runtime_->scheduler_stats()) {
      EXPECT_EQ(stats.num_requests, 0);
      EXPECT_EQ(stats.num_live_payloads, 0);
    }
    const Conductor::Stats stats = runtime_->conductor().stats();
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_queued, 0);
  }

  testing::TestModel model_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Service> service_;
  int num_asked_ = 0;
};

std::string flow_text(float value, int steps) {
  return str_cat("result=", testing::expected_flow(value, steps), ";");
}

Deployment two_workers() {
  return parse_deployment(R"(
node_groups:
  - node_names: [double, join, flow, counter]
    ranks: [0]
  - node_names: [square, decoder, summer]
    ranks: [1]
)",
                          "test.yaml");
}

TEST_F(RuntimeTest, BranchesLoopAndDecoder) {
  start();
  const auto answer = ask(R"({"value":3,"steps":5})");
  EXPECT_EQ(answer->wait(), flow_text(3, 5));
  EXPECT_EQ(answer->num_progress(), 5);
  expect_empty();
}

TEST_F(RuntimeTest, ManyRequestsOfDifferentLengthsAtOnce) {
  start();
  std::vector<std::shared_ptr<Answer>> answers;
  for (int index = 0; index < 40; ++index) {
    answers.push_back(ask(str_cat("{\"value\":", index % 5, ",\"steps\":", 1 + index % 9, "}")));
  }
  for (int index = 0; index < 40; ++index) {
    EXPECT_EQ(answers[static_cast<size_t>(index)]->wait(),
              flow_text(static_cast<float>(index % 5), 1 + index % 9));
  }
  expect_empty();
}

TEST_F(RuntimeTest, StreamsIntoTheOtherPartition) {
  start();
  // Seven items in chunks of three: the last chunk is the rest.
  EXPECT_EQ(ask(R"({"mode":"count","value":0,"steps":7})")->wait(),
            "value=1;value=2;value=3;value=4;value=5;value=6;value=7;sum=28;");
  // Six items: the end comes as an empty chunk.
  EXPECT_EQ(ask(R"({"mode":"count","value":0,"steps":6})")->wait(),
            "value=1;value=2;value=3;value=4;value=5;value=6;sum=21;");
  expect_empty();
}

TEST_F(RuntimeTest, AFullStreamHoldsItsProducerAndLetsItGoOn) {
  start();
  // Far more items than the stream holds, made faster than the consumer's walks come round.
  std::vector<std::shared_ptr<Answer>> answers;
  for (int index = 0; index < 4; ++index) {
    answers.push_back(ask(R"({"mode":"count","value":0,"steps":1000})"));
  }
  for (const auto& answer : answers) {
    EXPECT_TRUE(answer->wait().ends_with("value=1000;sum=500500;"));
  }
  expect_empty();
}

TEST_F(RuntimeTest, CheckStopEndsTheLoopWithoutAWastedStep) {
  start();
  const auto answer = ask(R"({"mode":"count","value":0,"steps":500,"stop_at":4})");
  EXPECT_EQ(answer->wait(), "value=1;value=2;value=3;value=4;sum=10;");
  EXPECT_EQ(answer->num_tokens(), 4);
  const Scheduler::Stats stats = runtime_->scheduler_stats().front();
  for (const auto& node : stats.nodes) {
    if (node.node == "counter") {
      EXPECT_EQ(node.num_steps, 4);
    }
  }
  expect_empty();
}

TEST_F(RuntimeTest, AFailureStaysItsOwn) {
  start();
  std::vector<std::shared_ptr<Answer>> good;
  std::vector<std::shared_ptr<Answer>> bad;
  for (int index = 0; index < 6; ++index) {
    good.push_back(ask(R"({"value":2,"steps":6})"));
    bad.push_back(ask(R"({"value":2,"steps":6,"fail":"join"})"));
  }
  for (const auto& answer : good) {
    EXPECT_EQ(answer->wait(), flow_text(2, 6));
  }
  for (const auto& answer : bad) {
    EXPECT_NE(answer->wait().find("node join of walk encode: [join] asked to fail"),
              std::string::npos);
    EXPECT_EQ(answer->code(), ErrorCode::kInvalidArgument);
  }
  expect_empty();
}

TEST_F(RuntimeTest, BadParametersAreTheClientsError) {
  start();
  const auto answer = ask(R"({"steps":0})");
  EXPECT_NE(answer->wait().find("\"steps\": found 0, expected 1 to 1000"), std::string::npos);
  expect_empty();
}

TEST_F(RuntimeTest, CancelAtAnyMomentGivesEverythingBack) {
  start();
  std::vector<std::shared_ptr<Answer>> answers;
  for (int index = 0; index < 60; ++index) {
    Service::Ticket ticket;
    const bool counts = index % 2 == 0;
    answers.push_back(ask(
        counts ? R"({"mode":"count","steps":1000,"slow_us":20})" : R"({"steps":1000,"slow_us":20})",
        &ticket));
    if (index % 3 == 0 && counts) {
      answers.back()->wait_for_text();
    }
    ticket.cancel();
  }
  for (const auto& answer : answers) {
    EXPECT_NE(answer->wait().find("cancelled"), std::string::npos);
    EXPECT_EQ(answer->code(), ErrorCode::kCancelled);
  }
  EXPECT_EQ(ask(R"({"value":3,"steps":5})")->wait(), flow_text(3, 5));
  expect_empty();
}

TEST_F(RuntimeTest, TwoWorkersGiveTheSameAnswers) {
  start(two_workers());
  ASSERT_EQ(runtime_->num_workers(), 2);
  std::vector<std::shared_ptr<Answer>> answers;
  for (int index = 0; index < 10; ++index) {
    answers.push_back(ask(str_cat("{\"value\":", index, ",\"steps\":", 1 + index, "}")));
    answers.push_back(ask(R"({"mode":"count","value":0,"steps":7})"));
  }
  for (int index = 0; index < 10; ++index) {
    EXPECT_EQ(answers[static_cast<size_t>(2 * index)]->wait(),
              flow_text(static_cast<float>(index), 1 + index));
    const std::string counted = answers[static_cast<size_t>(2 * index + 1)]->wait();
    EXPECT_NE(counted.find("sum=28;"), std::string::npos) << counted;
  }
  expect_empty();
}

TEST_F(RuntimeTest, TheQueueIsBoundedAndDrainingRefuses) {
  RuntimeOptions options;
  options.max_queued_requests = 2;
  Deployment deployment;
  deployment.max_concurrent_requests = 1;
  start(deployment, options);
  std::vector<std::shared_ptr<Answer>> answers;
  int refused = 0;
  for (int index = 0; index < 12; ++index) {
    answers.push_back(ask(R"({"steps":200,"slow_us":50})"));
  }
  for (const auto& answer : answers) {
    if (answer->wait().find("waiting already") != std::string::npos) {
      EXPECT_EQ(answer->code(), ErrorCode::kResourceExhausted);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 12);
  expect_empty();
  EXPECT_NE(ask("{}")->wait().find("shutting down"), std::string::npos);
}

TEST(MemoryPlan, CountsTheCachesAsTheDeploymentMakesThem) {
  const testing::TestModel model;
  ThreadPool pool(1);
  CpuStream stream(pool);
  const LoadContext context{.pool = pool, .stream = stream, .progress = {}};
  const auto pool_bytes = [&](const std::vector<std::string>& nodes, const char* overrides) {
    const std::map<std::string, Json> by_key = {{"kv", Json::parse(overrides)}};
    for (const MemoryItem& item : plan_memory(model, nodes, context, by_key)) {
      if (item.what == "kv pool") {
        return item.size_bytes;
      }
    }
    return int64_t{0};
  };
  EXPECT_EQ(pool_bytes({}, "{}"), 17 * 4 * 4 * 2 * 4);  // pages, tokens, head_dim, k and v, f32
  EXPECT_EQ(pool_bytes({"flow"}, R"({"dtype": "bf16"})"), 17 * 4 * 4 * 2 * 2);
  EXPECT_EQ(pool_bytes({}, R"({"max_num_pages": 5, "page_size": 8})"), 5 * 8 * 4 * 2 * 4);
  EXPECT_EQ(pool_bytes({"encoder"}, "{}"), 0);  // another worker hosts it
  EXPECT_THROW(pool_bytes({}, R"({"pages": 5})"), Error);
}

TEST(Deployment, NamesWhatIsWrong) {
  const auto message = [](const char* yaml) -> std::string {
    try {
      parse_deployment(yaml, "d.yaml");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("max_seq_len: 512\nresources:\n  kv: {page_size: 16}\n"), "");
  EXPECT_NE(message("max_seq_length: 512\n").find("did you mean \"max_seq_len\"?"),
            std::string::npos);
  EXPECT_NE(message("node_groups:\n  - node_names: [LLM]\n").find("\"ranks\": is missing"),
            std::string::npos);
  EXPECT_NE(message("model: [\n").find("not valid YAML"), std::string::npos);

  testing::TestModel model;
  const auto graph = graph::compile(model.get_graph_walk_graphs());
  Deployment unknown = two_workers();
  unknown.node_groups[0].node_names.push_back("dit");
  EXPECT_THROW(place(graph, unknown), Error);
  Deployment missing = two_workers();
  missing.node_groups.pop_back();
  EXPECT_THROW(place(graph, missing), Error);
}

}  // namespace
}  // namespace mstar

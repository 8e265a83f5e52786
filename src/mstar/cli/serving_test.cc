// Language models served in this process, from prompt to text, over the recorded tiny checkpoints:
// the same answers whoever shares the batch, whatever runs captured, in chunks or from the prefix
// cache, and nothing left of requests that end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/safetensors.h"
#include "mstar/cli/served_model.h"
#include "mstar/runtime/trace.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

using testing::Answer;
using testing::answered;
using testing::Deployed;
using testing::kVocabSize;
using testing::prompt_of;
using testing::Served;
using testing::words;

struct Question {
  std::string prompt;
  std::string parameters;
};

// Greedy and sampled, short and long, with and without penalties.
std::vector<Question> mixed_questions(int count) {
  const std::vector<std::string> sampling = {
      R"("temperature":0)",
      R"("temperature":1.0,"seed":11)",
      R"("temperature":0.7,"top_k":20,"top_p":0.9,"seed":12,"repetition_penalty":1.3)",
      R"("temperature":1.2,"min_p":0.02,"seed":13,"presence_penalty":0.5,"frequency_penalty":0.3)",
      R"("temperature":0,"repetition_penalty":1.5)",
      R"("temperature":0.9,"seed":14,"logit_bias":{"17":2.5,"40":-8})",
  };
  std::vector<Question> questions;
  for (int index = 0; index < count; ++index) {
    const int length = 1 + (index * 37) % 97;
    questions.push_back({prompt_of(length, static_cast<uint32_t>(index)),
                         str_cat("{\"ignore_eos\":true,\"max_tokens\":",
                                 1 + (index * 11) % 29,
                                 ",",
                                 sampling[static_cast<size_t>(index) % sampling.size()],
                                 "}")});
  }
  return questions;
}

// Each alone: nothing else is on the server.
std::vector<std::string> one_by_one(Served& served, const std::vector<Question>& questions) {
  std::vector<std::string> answers;
  for (const Question& question : questions) {
    answers.push_back(served.ask(question.prompt, question.parameters)->wait());
  }
  return answers;
}

std::vector<std::string> all_at_once(Served& served, const std::vector<Question>& questions) {
  std::vector<std::shared_ptr<Answer>> running;
  for (const Question& question : questions) {
    running.push_back(served.ask(question.prompt, question.parameters));
  }
  std::vector<std::string> answers;
  for (const auto& answer : running) {
    answers.push_back(answer->wait());
  }
  return answers;
}

class ServingTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ServingTest, AnswersAreTheRecordedOnes) {
  Served served({.checkpoint = GetParam()});
  const auto truth = SafetensorsFile::open(
      (Served::golden_folder() / str_cat(GetParam(), ".safetensors")).string());
  for (int index = 0; index < 3; ++index) {
    const auto prompt = truth->get(str_cat("prompt", index)).to_ints();
    const auto greedy = truth->get(str_cat("greedy", index)).to_ints();
    const std::string parameters =
        str_cat(R"({"temperature":0,"ignore_eos":true,"max_tokens":)", greedy.size(), "}");
    const auto answer = served.ask(words(prompt), parameters);
    EXPECT_EQ(answer->wait(), answered(greedy));
    EXPECT_EQ(answer->completion().finish_reason, "length");
    EXPECT_EQ(answer->completion().num_prompt_tokens, static_cast<int64_t>(prompt.size()));
    EXPECT_EQ(answer->completion().num_generated_tokens, static_cast<int64_t>(greedy.size()));
  }
  served.expect_empty();
}

TEST_P(ServingTest, BatchEqualsSinglesWhileRequestsComeAndGo) {
  Served served({.checkpoint = GetParam()});
  const std::vector<Question> questions = mixed_questions(24);
  const std::vector<std::string> alone = one_by_one(served, questions);
  std::vector<std::shared_ptr<Answer>> running;
  std::vector<Service::Ticket> leaving;
  for (size_t index = 0; index < questions.size(); ++index) {
    // Somebody joins who will not stay.
    Service::Ticket ticket;
    const auto guest = served.ask(prompt_of(9, 1000 + static_cast<uint32_t>(index)),
                                  R"({"ignore_eos":true,"max_tokens":100})",
                                  &ticket);
    running.push_back(served.ask(questions[index].prompt, questions[index].parameters));
    leaving.push_back(ticket);
    if (index % 4 == 3) {
      running[index - 1]->wait_for_tokens(3);
      guest->wait_for_tokens(2);
      for (Service::Ticket& gone : leaving) {
        gone.cancel();
      }
      leaving.clear();
    }
  }
  for (size_t index = 0; index < questions.size(); ++index) {
    EXPECT_EQ(running[index]->wait(), alone[index]) << questions[index].parameters;
  }
  served.expect_empty();
}

INSTANTIATE_TEST_SUITE_P(Checkpoints,
                         ServingTest,
                         ::testing::Values("llama_untied",
                                           "llama_tied_rope31",
                                           "llama_sharded_bf16",
                                           "qwen2",
                                           "qwen3",
                                           "qwen3_moe",
                                           "qwen2_moe",
                                           "gemma"),
                         [](const auto& name) { return std::string(name.param); });

TEST(Serving, CapturedReplayEqualsEager) {
  Served captured({});
  Served eager({.graph_capture = false});
  const std::vector<Question> questions = mixed_questions(20);
  EXPECT_EQ(all_at_once(captured, questions), all_at_once(eager, questions));
  EXPECT_GT(captured.stats().num_captured_steps, 0);
  EXPECT_EQ(eager.stats().num_captured_steps, 0);
}

// Counts the steps of so many rows that a capture may be recorded for them on the way.
class CrowdCounter : public RuntimeListener {
 public:
  void on_step(const StepRecord& step) override {
    if (step.requests.size() >= 24) {
      ++(step.captured ? num_captured : num_eager);
    }
  }

  std::atomic<int> num_captured = 0;
  std::atomic<int> num_eager = 0;
};

// On a busy machine requests of a crowd may come one after the other: it is asked anew then.
constexpr int kMostCrowds = 20;

// All of one length, so that they stay together.
std::vector<Question> crowd_questions(int count, int num_tokens) {
  std::vector<Question> questions = mixed_questions(count);
  for (int index = 0; index < count; ++index) {
    Question& question = questions[static_cast<size_t>(index)];
    question.prompt = prompt_of(2, 100 + static_cast<uint32_t>(index));
    const size_t at = question.parameters.find("max_tokens");
    question.parameters.replace(
        at, question.parameters.find(',', at) - at, str_cat("max_tokens\":", num_tokens));
  }
  return questions;
}

TEST(Serving, ACrowdIsReplayedToo) {
  const char* kv = R"({"page_size":16,"max_num_pages":700})";
  CrowdCounter counter;
  Served captured({.kv = kv, .max_concurrent_requests = 64, .listeners = {&counter}});
  Served eager({.kv = kv, .graph_capture = false, .max_concurrent_requests = 64});
  constexpr int kCounts[] = {64, 50, 26};
  for (int crowd = 0; crowd < 3 || (counter.num_captured <= 20 && crowd < kMostCrowds); ++crowd) {
    const std::vector<Question> questions = crowd_questions(kCounts[crowd % 3], 40);
    const std::vector<std::string> answers = all_at_once(captured, questions);
    EXPECT_EQ(answers, all_at_once(eager, questions));
    EXPECT_EQ(answers.back(), one_by_one(captured, {questions.back()}).front());
  }
  EXPECT_GT(counter.num_captured, 20);
  captured.expect_empty();
}

// Padding needs pages too. Where there are none, the step runs eagerly and nobody waits.
TEST(Serving, NobodyWaitsForPadding) {
  CrowdCounter counter;
  // The sink, the rows of the captures made at warm-up, and two pages for each of 26: from their
  // second page on there is none left.
  Served tight({.kv = R"({"page_size":64,"max_num_pages":69})", .listeners = {&counter}});
  Served large({.graph_capture = false});
  const std::vector<Question> questions = crowd_questions(26, 124);
  const std::vector<std::string> answers = all_at_once(large, questions);
  for (int crowd = 0; counter.num_eager == 0 && crowd < kMostCrowds; ++crowd) {
    EXPECT_EQ(all_at_once(tight, questions), answers);
  }
  EXPECT_GT(counter.num_captured, 0);
  EXPECT_GT(counter.num_eager, 0);
  EXPECT_EQ(tight.stats().num_deferred_rows, 0);
  tight.expect_empty();
}

// They are of the model's own distribution, so penalties and bias change the drawn token only; and
// they change no answer, whoever shares the batch.
TEST(Serving, LogprobsAreToldWhereAskedFor) {
  Served served({});
  const std::vector<Question> questions = mixed_questions(8);
  const std::vector<std::string> plain = one_by_one(served, questions);
  std::vector<std::shared_ptr<Answer>> running;
  for (size_t index = 0; index < questions.size(); ++index) {
    std::string parameters = questions[index].parameters;
    if (index % 2 == 0) {
      parameters.insert(1, R"("logprobs":3,)");
    }
    running.push_back(served.ask(questions[index].prompt, parameters));
  }
  for (size_t index = 0; index < questions.size(); ++index) {
    EXPECT_EQ(running[index]->wait(), plain[index]);
    const std::vector<TokenLogprob>& told = running[index]->logprobs();
    if (index % 2 != 0) {
      EXPECT_TRUE(told.empty());
      continue;
    }
    ASSERT_EQ(static_cast<int64_t>(told.size()), running[index]->completion().num_generated_tokens);
    std::string text;
    for (const TokenLogprob& token : told) {
      text += token.token.bytes;
      ASSERT_EQ(token.top.size(), 3U);
      EXPECT_GE(token.top[0].logprob, token.top[1].logprob);
      EXPECT_GE(token.top[0].logprob, token.token.logprob);
      double sum = 0.0;
      for (const TokenLogprob::Candidate& candidate : token.top) {
        sum += std::exp(candidate.logprob);
      }
      EXPECT_LE(sum, 1.0 + 1e-6);
    }
    EXPECT_EQ(text, plain[index]);
  }
  const auto greedy =
      served.ask(prompt_of(5, 3), R"({"temperature":0,"logprobs":1,"max_tokens":4})");
  greedy->wait();
  for (const TokenLogprob& token : greedy->logprobs()) {
    EXPECT_EQ(token.token.bytes, token.top.at(0).bytes);
    EXPECT_EQ(token.token.logprob, token.top.at(0).logprob);
  }
  served.expect_empty();
}

TEST(Serving, ValuesThatAreNotFiniteFailTheRequestAndNameNodeAndWalk) {
  Served served({.damaged_tensor = "model.layers.0.input_layernorm.weight"});
  for (const char* parameters : {R"({"max_tokens":3})", R"({"max_tokens":3,"temperature":0})"}) {
    const auto answer = served.ask(prompt_of(5, 3), parameters);
    EXPECT_NE(answer->wait().find("not finite"), std::string::npos) << answer->wait();
    EXPECT_NE(answer->wait().find("node LLM of walk prefill"), std::string::npos);
    EXPECT_EQ(answer->code(), ErrorCode::kInternal);
  }
  // Together it is everybody's fault and everybody's failure.
  std::vector<std::shared_ptr<Answer>> together;
  for (uint32_t index = 0; index < 5; ++index) {
    together.push_back(served.ask(prompt_of(5, index), R"({"max_tokens":3})"));
  }
  for (const auto& answer : together) {
    EXPECT_NE(answer->wait().find("node LLM of walk prefill"), std::string::npos) << answer->wait();
  }
  served.expect_empty();
}

// Counts what a listener hears.
class Counter : public RuntimeListener {
 public:
  void on_step(const StepRecord& step) override {
    const std::lock_guard lock(mutex_);
    num_tokens_ += step.num_tokens;
    for (const RequestKey request : step.requests) {
      ++rows_[request];
    }
  }

  void on_request(RequestKey request, const std::string& request_id, RequestPhase phase) override {
    const std::lock_guard lock(mutex_);
    phases_[request] += str_cat(request_id, " ", to_string(phase), ";");
  }

  std::mutex mutex_;
  int64_t num_tokens_ = 0;
  std::map<RequestKey, int64_t> rows_;
  std::map<RequestKey, std::string> phases_;
};

TEST(Serving, ListenersHearOfEveryStepAndRequest) {
  Counter counter;
  {
    Served served({.listeners = {&counter}});
    served.ask(prompt_of(5, 3), R"({"max_tokens":4,"ignore_eos":true})")->wait();
    Service::Ticket ticket;
    const auto gone =
        served.ask(prompt_of(5, 4), R"({"max_tokens":400,"ignore_eos":true})", &ticket);
    gone->wait_for_tokens(2);
    ticket.cancel();
    gone->wait();
    served.expect_empty();
  }
  EXPECT_EQ(counter.phases_[1], "r1 queued;r1 started;r1 done;");
  EXPECT_EQ(counter.phases_[2], "r2 queued;r2 started;r2 cancelled;");
  EXPECT_EQ(counter.rows_[1], 4);
  EXPECT_GE(counter.rows_[2], 2);
}

TEST(Serving, TraceIsADocumentWithARowForTheNode) {
  const fs::path path = fs::path(::testing::TempDir()) / str_cat("mstar_trace_", getpid(), ".json");
  {
    TraceWriter trace(path.string());
    Served served({.listeners = {&trace}});
    served.ask(prompt_of(5, 3), R"({"max_tokens":4,"ignore_eos":true})")->wait();
    served.expect_empty();
  }
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Json trace = Json::parse(text);
  int num_steps = 0;
  bool has_row = false;
  for (const Json& event : trace.get_array()) {
    num_steps += event.at("ph") == Json("X") ? 1 : 0;
    has_row = has_row || (event.at("name") == Json("thread_name") &&
                          event.at("args").at("name") == Json("LLM"));
  }
  EXPECT_EQ(num_steps, 4);
  EXPECT_TRUE(has_row);
  fs::remove(path);
}

TEST(Serving, PrefillInChunksEqualsWholePrefill) {
  Served whole({});
  const std::vector<Question> questions = mixed_questions(20);
  const std::vector<std::string> answers = one_by_one(whole, questions);
  for (const int64_t budget : {1, 7, 16}) {
    Served chunked({.max_batch_tokens = budget});
    EXPECT_EQ(one_by_one(chunked, questions), answers) << budget << " tokens a step, alone";
    EXPECT_EQ(all_at_once(chunked, questions), answers) << budget << " tokens a step, together";
    chunked.expect_empty();
  }
}

TEST(Serving, PrefixCacheHitEqualsMiss) {
  Served plain({});
  Served cached({.kv = R"({"prefix_cache":true,"page_size":16})"});
  // A shared beginning, whole pages and not, and the same prompt again.
  const std::string shared = prompt_of(64, 5);
  std::vector<Question> questions;
  for (const int tail : {0, 1, 16, 40}) {
    for (const char* sampling : {R"("temperature":0)",
                                 R"("temperature":0,"repetition_penalty":1.5)",
                                 R"("temperature":1.0,"seed":3,"repetition_penalty":1.3)"}) {
      questions.push_back({tail == 0 ? shared : str_cat(shared, " ", prompt_of(tail, 6)),
                           str_cat(R"({"ignore_eos":true,"max_tokens":20,)", sampling, "}")});
    }
  }
  const std::vector<std::string> answers = one_by_one(plain, questions);
  EXPECT_EQ(one_by_one(cached, questions), answers);
  const int64_t first = cached.num_tokens("prefill");
  EXPECT_EQ(all_at_once(cached, questions), answers);
  const int64_t second = cached.num_tokens("prefill") - first;
  EXPECT_LT(first, plain.num_tokens("prefill"));
  // The last token of a prompt is always computed; of whole pages, the last one.
  EXPECT_LE(second, 16 * static_cast<int64_t>(questions.size()));
  cached.expect_empty();
}

TEST(Serving, ALaterTurnTakesTheEarlierAnswerFromThePrefixCache) {
  Served plain({});
  Served cached({.kv = R"({"prefix_cache":true,"page_size":8})"});
  const char* parameters = R"({"temperature":0,"ignore_eos":true,"max_tokens":30})";
  std::vector<std::string> turns = {prompt_of(13, 5)};
  turns.push_back(cached.chat(turns, parameters)->wait());
  turns.push_back(prompt_of(5, 6));
  const int64_t before = cached.num_tokens("prefill");
  EXPECT_EQ(cached.chat(turns, parameters)->wait(), plain.chat(turns, parameters)->wait());
  // 13 + 30 + 5 tokens, of which the first 42 are known: the last token drawn was never read.
  EXPECT_EQ(cached.num_tokens("prefill") - before, 48 - 40);
  cached.expect_empty();
}

TEST(Serving, KeysAndValuesMayBeBf16) {
  Served served({.kv = R"({"dtype":"bf16"})"});
  const std::vector<Question> questions = mixed_questions(12);
  const std::vector<std::string> answers = one_by_one(served, questions);
  EXPECT_EQ(all_at_once(served, questions), answers);
  for (const std::string& answer : answers) {
    EXPECT_FALSE(answer.starts_with("error")) << answer;
  }
  EXPECT_THROW(Served({.kv = R"({"dtype":"f8"})"}), Error);
  served.expect_empty();
}

TEST(Serving, ActivationsMayBeBf16) {
  const std::string checkpoint = "llama_sharded_bf16";
  Served served({.checkpoint = checkpoint, .activation_dtype = DType::kBF16});
  const std::vector<Question> questions = mixed_questions(12);
  const std::vector<std::string> answers = one_by_one(served, questions);
  EXPECT_EQ(all_at_once(served, questions), answers);
  Served eager(
      {.checkpoint = checkpoint, .graph_capture = false, .activation_dtype = DType::kBF16});
  EXPECT_EQ(all_at_once(eager, questions), answers);
  for (const std::string& answer : answers) {
    EXPECT_FALSE(answer.starts_with("error")) << answer;
  }
  served.expect_empty();
}

TEST(Serving, ARequestThatTakesTooLongEndsAndSaysWhy) {
  // One at a time: the last waits for a hundred times its limit, on a fast machine too.
  Served served({.max_concurrent_requests = 1, .request_timeout = std::chrono::milliseconds(5)});
  std::vector<std::shared_ptr<Answer>> answers;
  for (int index = 0; index < 50; ++index) {
    answers.push_back(served.ask(prompt_of(5, 3), R"({"ignore_eos":true,"max_tokens":240})"));
  }
  const std::string last = answers.back()->wait();
  EXPECT_NE(last.find("longer than 0.005 s"), std::string::npos) << last;
  EXPECT_EQ(answers.back()->code(), ErrorCode::kUnavailable);
  for (const auto& answer : answers) {
    EXPECT_NE(answer->wait(), "hangs");
  }
  served.expect_empty();
}

TEST(Serving, EndsWhereItIsTold) {
  Served served({});
  const std::string prompt = prompt_of(12, 21);
  const auto full = served.ask(prompt, R"({"temperature":0,"ignore_eos":true,"max_tokens":24})");
  std::vector<std::string> tokens;
  std::istringstream stream(full->wait());
  for (std::string token; stream >> token;) {
    tokens.push_back(token);
  }
  ASSERT_EQ(tokens.size(), 24U);
  EXPECT_EQ(full->completion().finish_reason, "length");

  const auto one = served.ask(prompt, R"({"temperature":0,"ignore_eos":true,"max_tokens":1})");
  EXPECT_EQ(one->wait(), " " + tokens[0]);
  EXPECT_EQ(one->completion().num_generated_tokens, 1);

  // A stop string of two tokens is held back whole and not shown.
  const std::string stop = str_cat(tokens[9], " ", tokens[10]);
  const auto stopped = served.ask(
      prompt,
      str_cat(R"({"temperature":0,"ignore_eos":true,"max_tokens":24,"stop":[")", stop, "\"]}"));
  const std::string shown = stopped->wait();
  EXPECT_EQ(stopped->completion().finish_reason, "stop");
  EXPECT_EQ(full->wait().substr(0, shown.size()), shown);
  EXPECT_EQ(shown.find(stop), std::string::npos);
  EXPECT_LT(shown.size(), full->wait().size());

  // Told otherwise, nothing of it matters.
  EXPECT_EQ(served.ask(prompt, R"({"temperature":0,"ignore_eos":true,"max_tokens":24,"stop":"x"})")
                ->wait(),
            full->wait());
  served.expect_empty();
}

TEST(Serving, TheStopTokenEndsTheTextAndIsNotShown) {
  Served served({});
  // A bias makes the checkpoint's stop token (2) certain.
  const auto stopped =
      served.ask("t5 t6", R"({"temperature":0,"max_tokens":10,"logit_bias":{"2":100}})");
  EXPECT_EQ(stopped->wait(), "");
  EXPECT_EQ(stopped->completion().finish_reason, "stop");
  const auto ignored = served.ask(
      "t5 t6", R"({"temperature":0,"max_tokens":3,"ignore_eos":true,"logit_bias":{"2":100}})");
  EXPECT_EQ(ignored->wait(), " t2 t2 t2");
  EXPECT_EQ(ignored->completion().finish_reason, "length");
  served.expect_empty();
}

TEST(Serving, SeveralTurns) {
  Served served({.kv = R"({"prefix_cache":true,"page_size":16})"});
  Served plain({});
  const char* parameters = R"({"temperature":0,"ignore_eos":true,"max_tokens":20})";
  std::vector<std::string> turns = {prompt_of(20, 31)};
  for (int turn = 0; turn < 4; ++turn) {
    const std::string answer = served.chat(turns, parameters)->wait();
    EXPECT_EQ(answer, plain.chat(turns, parameters)->wait()) << "turn " << turn;
    turns.push_back(answer);
    turns.push_back(prompt_of(5, 40 + static_cast<uint32_t>(turn)));
  }
  served.expect_empty();
}

TEST(Serving, BadRequestsAreTheClientsError) {
  Served served({});
  const auto expect = [&](const std::string& prompt, const char* parameters, const char* part) {
    const auto answer = served.ask(prompt, parameters);
    EXPECT_NE(answer->wait().find(part), std::string::npos) << answer->wait();
    EXPECT_EQ(answer->code(), ErrorCode::kInvalidArgument) << answer->wait();
  };
  expect("t1", R"({"max_tokens":0})", "max_tokens");
  expect("t1", R"({"temperature":-1})", "temperature");
  expect("t1", R"({"logit_bias":{"320":1}})", "token 320");
  expect("t1", R"({"logit_bias":{"x":1}})", "\"x\"");
  expect("t1", R"({"stop":7})", "stop");
  expect("", "{}", "empty");
  expect(prompt_of(256, 1), "{}", "the prompt has 256 tokens");
  served.expect_empty();
}

// Requests that are ended at any moment leave nothing: afterwards one request finds room for
// every page of the pool, and as many run together as before.
TEST(Serving, AThousandKilledRequestsLeaveNothing) {
  // The rows of captures hold 16 pages; one request of the full length fills the other 16.
  const Deployed setup{.kv = R"({"page_size":16,"max_num_pages":33})",
                       .max_batch_tokens = 24,
                       .max_concurrent_requests = 8};
  const Question whole{prompt_of(100, 77), R"({"seed":5,"ignore_eos":true,"max_tokens":156})"};
  std::string fresh;
  {
    Served server(setup);
    fresh = server.ask(whole.prompt, whole.parameters)->wait();
  }
  const auto num_threads = [] {
    const fs::directory_iterator threads("/proc/self/task");
    return std::distance(begin(threads), end(threads));
  };
  Served served(setup);
  const auto threads_before = num_threads();
  std::mt19937 random(1);
  std::vector<std::pair<Service::Ticket, std::shared_ptr<Answer>>> running;
  const auto kill_some = [&](size_t left) {
    while (running.size() > left) {
      const size_t victim = random() % running.size();
      // Most die wherever they are: while one is waited for, the others come to their end.
      if (random() % 6 == 0) {
        running[victim].second->wait_for_tokens(static_cast<int64_t>(random() % 6));
      }
      running[victim].first.cancel();
      running[victim] = running.back();
      running.pop_back();
    }
  };
  std::vector<std::shared_ptr<Answer>> all;
  for (uint32_t index = 0; index < 1000; ++index) {
    Service::Ticket ticket;
    all.push_back(served.ask(prompt_of(1 + static_cast<int>(random() % 60), index),
                             R"({"ignore_eos":true,"max_tokens":100})",
                             &ticket));
    running.emplace_back(ticket, all.back());
    kill_some(random() % 16);
  }
  kill_some(0);
  int num_cancelled = 0;
  for (const auto& answer : all) {
    const std::string text = answer->wait();
    ASSERT_NE(text, "hangs");
    num_cancelled += text.starts_with("error: ") ? 1 : 0;
    if (text.starts_with("error: ")) {
      ASSERT_EQ(answer->code(), ErrorCode::kCancelled) << text;
    }
  }
  EXPECT_GT(num_cancelled, 500);
  EXPECT_EQ(served.ask(whole.prompt, whole.parameters)->wait(), fresh);
  std::vector<Question> together(8, {prompt_of(10, 3), R"({"temperature":0,"max_tokens":12})"});
  EXPECT_EQ(all_at_once(served, together), one_by_one(served, together));
  EXPECT_EQ(num_threads(), threads_before);
  served.expect_empty();
}

TEST(Serving, APoolTooSmallForAllMakesThemWait) {
  // Room for two of them at a time.
  Served small({.kv = R"({"page_size":16,"max_num_pages":9})", .graph_capture = false});
  Served large({});
  std::vector<Question> questions;
  for (uint32_t index = 0; index < 12; ++index) {
    questions.push_back({prompt_of(30, index), R"({"seed":1,"ignore_eos":true,"max_tokens":30})"});
  }
  EXPECT_EQ(all_at_once(small, questions), all_at_once(large, questions));
  // One that can never fit says so at once, and the others go on.
  const auto never = small.ask(prompt_of(100, 1), R"({"ignore_eos":true,"max_tokens":100})");
  const auto fits = small.ask(questions[0].prompt, questions[0].parameters);
  const std::string refusal = never->wait();
  EXPECT_TRUE(refusal.starts_with("error: ")) << refusal;
  EXPECT_EQ(never->code(), ErrorCode::kInvalidArgument) << "to retry would not help";
  EXPECT_NE(refusal.find("needs 13 pages of 16 tokens"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("there are 8"), std::string::npos) << refusal;
  EXPECT_EQ(fits->wait(), large.ask(questions[0].prompt, questions[0].parameters)->wait());
  small.expect_empty();
}

}  // namespace
}  // namespace mstar

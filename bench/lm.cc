#include "bench/lm.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/runtime.h"

#include "bench/arguments.h"
#include "bench/ceilings.h"

namespace mstar::bench {

namespace {

constexpr const char* kUsage =
    "usage: mstar_bench lm MODEL [--threads N] [--prompt N] [--tokens N] [--batch N,N,…]\n"
    "                      [--rounds N] [--quantization KIND] [--eager]\n";

struct LmOptions {
  std::string model;
  std::string quantization;
  int threads = 0;
  int64_t prompt = 512;
  int64_t tokens = 128;
  std::vector<int64_t> batches = {1, 8, 64};
  int rounds = 5;
  bool capture = true;
};

std::vector<int64_t> numbers(const std::string& list) {
  std::vector<int64_t> out;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    out.push_back(std::max(1L, std::atol(list.substr(begin, end - begin).c_str())));
    begin = end + 1;
  }
  return out;
}

LmOptions parse(const std::vector<std::string>& words) {
  LmOptions options;
  for (Arguments arguments(words); arguments.next();) {
    const std::string& word = arguments.word();
    if (word == "--threads") {
      options.threads = arguments.count();
    } else if (word == "--prompt") {
      options.prompt = arguments.number();
    } else if (word == "--tokens") {
      options.tokens = arguments.number();
    } else if (word == "--batch") {
      options.batches = numbers(arguments.value());
    } else if (word == "--rounds") {
      options.rounds = arguments.count();
    } else if (word == "--quantization") {
      const std::string& kind = arguments.value();
      options.quantization = kind == "none" ? "" : kind;
    } else if (word == "--eager") {
      options.capture = false;
    } else if (word.starts_with("--") || !options.model.empty()) {
      arguments.refuse(kUsage);
    } else {
      options.model = word;
    }
  }
  if (options.model.empty()) {
    throw Error(ErrorCode::kInvalidArgument, kUsage);
  }
  return options;
}

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

// Keeps the steps that run between clear() and a look at them.
class StepLog final : public RuntimeListener {
 public:
  struct Step {
    std::string_view walk;
    size_t num_rows = 0;
    Clock::time_point begin;
    double seconds = 0.0;
    double kernel_seconds = 0.0;
    int64_t num_tokens = 0;
  };

  StepLog() { steps_.reserve(1 << 16); }

  void on_step(const StepRecord& step) override {
    const std::lock_guard lock(mutex_);
    steps_.push_back({step.walk,
                      step.requests.size(),
                      step.begin,
                      step.seconds,
                      step.kernel_seconds,
                      step.num_tokens});
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    steps_.clear();
  }

  std::vector<Step> steps() const {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Step> steps_;
};

// Counts the ends of a group of requests; keeps the first failure.
class EndCounter final : public OutputSink {
 public:
  void on_output(OutputEvent event) override {
    if (event.kind != OutputEvent::Kind::kDone && event.kind != OutputEvent::Kind::kFailed) {
      return;
    }
    const std::lock_guard lock(mutex_);
    ++ended_;
    if (event.kind == OutputEvent::Kind::kFailed && failure_.empty()) {
      failure_ = event.message;
    }
    changed_.notify_all();
  }

  void wait(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= count; });
    if (!failure_.empty()) {
      throw Error(ErrorCode::kInternal, failure_);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t ended_ = 0;
  std::string failure_;
};

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0.0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Greedy, to the last token allowed, over `num_prompt` tokens that differ from request to request.
std::shared_ptr<PreparedRequest> make_request(const Model& model,
                                              int64_t index,
                                              int64_t num_prompt,
                                              int64_t num_tokens) {
  static constexpr const char* kWords[] = {
      " river", " stone", " clear", " night", " under", " seven", " garden", " letter"};
  ModelRequest request;
  request.request_id = str_cat("bench-", index);
  request.raw_prompt = true;
  request.output_modalities = {Modality::kText};
  request.parameters =
      Json::object({{"max_tokens", num_tokens}, {"ignore_eos", true}, {"temperature", Json(0.0)}});
  std::string text = "Notes";
  for (int64_t word = 0; word < num_prompt; ++word) {
    text += kWords[static_cast<size_t>((word * word + index) % 8)];
  }
  request.messages.push_back({"user", {{.text = text}}});
  auto prepared = std::make_shared<PreparedRequest>(model.process_prompt(request));
  const Tensor ids = prepared->inputs.tensor("text_inputs");
  if (ids.dim(0) < num_prompt) {
    throw Error(ErrorCode::kInternal, "[mstar_bench] the prompt came out too short");
  }
  prepared->inputs.set("text_inputs", ids.slice(0, 0, num_prompt));
  prepared->num_prompt_tokens = num_prompt;
  prepared->max_tokens = num_tokens;
  auto& kv = std::get<KVRequestConfig>(prepared->resource_configs.at("kv"));
  kv.max_tokens = num_prompt + num_tokens;
  kv.prefix_keys.clear();
  return prepared;
}

class LmBench {
 public:
  LmBench(const LmOptions& options, int64_t most_rows)
      : options_(options), model_(open_model(options.model, model_kwargs(options))) {
    Deployment deployment;
    deployment.max_concurrent_requests = most_rows;
    // Room for all sequences of a batch, whatever the model's own pool is.
    const int64_t pages = (options.tokens + 64) / 16 + 2;
    deployment.resources["kv"] = Json::object(
        {{"max_num_pages", std::max<int64_t>(most_rows * pages, options.prompt / 16 + 64)},
         {"page_size", 16}});
    RuntimeOptions runtime;
    runtime.engine.quantization = options.quantization;
    runtime.engine.graph_capture = options.capture;
    runtime.engine.max_num_requests =
        static_cast<int32_t>(std::max<int64_t>(runtime.engine.max_num_requests, most_rows));
    runtime.num_threads = options.threads;
    runtime.max_batch_tokens = std::max<int64_t>(512, options.prompt);
    runtime.listeners = {&log_};
    runtime_ = std::make_unique<Runtime>(*model_, deployment, runtime);
    const LoadContext context{.pool = runtime_->pool(), .stream = idle_, .progress = {}};
    for (const MemoryItem& item : model_->memory_plan({}, context)) {
      if (item.what == "weights") {
        weight_bytes_ = static_cast<double>(item.size_bytes);
      }
    }
  }

  // Steps of `count` requests that run together.
  std::vector<StepLog::Step> run(int64_t count, int64_t num_prompt, int64_t num_tokens) {
    const auto sink = std::make_shared<EndCounter>();
    std::vector<std::shared_ptr<PreparedRequest>> requests;
    for (int64_t index = 0; index < count; ++index) {
      requests.push_back(make_request(*model_, index, num_prompt, num_tokens));
    }
    log_.clear();
    for (const auto& request : requests) {
      runtime_->conductor().submit(request, sink, false);
    }
    sink->wait(count);
    return log_.steps();
  }

  double bandwidth() { return measure_ceilings(runtime_->pool()).bandwidth; }

  double weight_bytes() const { return weight_bytes_; }

  int num_threads() const { return runtime_->pool().num_threads(); }

  const Model& model() const { return *model_; }

 private:
  static Json model_kwargs(const LmOptions& options) {
    return Json::object(
        {{"max_model_len", std::max<int64_t>(options.prompt, 64) + options.tokens}});
  }

  const LmOptions& options_;
  StepLog log_;
  std::unique_ptr<Model> model_;
  ThreadPool one_{1};
  CpuStream idle_{one_};
  std::unique_ptr<Runtime> runtime_;
  double weight_bytes_ = 0.0;
};

struct Decode {
  double tokens_per_second = 0.0;
  double step_seconds = 0.0;      // from one step's begin to the next one's
  double overhead_seconds = 0.0;  // of it, outside the forward
  double engine_seconds = 0.0;    // of that, inside Engine::execute
};

// From the steps that all rows took part in.
Decode decode_of(const std::vector<StepLog::Step>& steps, size_t num_rows) {
  std::vector<double> wall;
  std::vector<double> overhead;
  std::vector<double> engine;
  for (size_t index = 0; index + 1 < steps.size(); ++index) {
    const StepLog::Step& step = steps[index];
    const StepLog::Step& next = steps[index + 1];
    if (step.walk != "decode" || next.walk != "decode" || step.num_rows != num_rows ||
        next.num_rows != num_rows) {
      continue;
    }
    wall.push_back(seconds(next.begin - step.begin));
    overhead.push_back(wall.back() - step.kernel_seconds);
    engine.push_back(step.seconds - step.kernel_seconds);
  }
  const double step = median(wall);
  return {step > 0.0 ? static_cast<double>(num_rows) / step : 0.0,
          step,
          median(overhead),
          median(engine)};
}

double prefill_seconds(const std::vector<StepLog::Step>& steps) {
  double total = 0.0;
  for (const StepLog::Step& step : steps) {
    total += step.walk == "prefill" ? step.seconds : 0.0;
  }
  return total;
}

void report_prefill(LmBench& bench, const LmOptions& options) {
  bench.run(1, options.prompt, 1);
  std::vector<double> rates;
  for (int round = 0; round < options.rounds; ++round) {
    rates.push_back(static_cast<double>(options.prompt) /
                    prefill_seconds(bench.run(1, options.prompt, 1)));
  }
  std::printf("prefill %5lld tokens %24.1f tokens/s\n",
              static_cast<long long>(options.prompt),
              median(rates));
}

void report_decode(LmBench& bench, const LmOptions& options, int64_t batch) {
  constexpr int64_t kPrompt = 8;
  std::vector<double> rates;
  std::vector<double> overheads;
  std::vector<double> engines;
  std::vector<double> bandwidths;
  bench.run(batch, kPrompt, 16);
  for (int round = 0; round < options.rounds; ++round) {
    bandwidths.push_back(bench.bandwidth());
    const Decode decode =
        decode_of(bench.run(batch, kPrompt, options.tokens), static_cast<size_t>(batch));
    rates.push_back(decode.tokens_per_second);
    overheads.push_back(decode.overhead_seconds);
    engines.push_back(decode.engine_seconds);
  }
  bandwidths.push_back(bench.bandwidth());
  const double rate = median(rates);
  const double passes = rate / static_cast<double>(batch);  // over the weights, a second
  std::printf(
      "decode  %5lld sequences %21.1f tokens/s  %6.2f ms a step  %5.1f %% of %.1f GB/s  "
      "beside the forward %.1f us (engine %.1f, scheduler %.1f)\n",
      static_cast<long long>(batch),
      rate,
      1e3 / passes,
      100.0 * passes * bench.weight_bytes() / median(bandwidths),
      median(bandwidths) / 1e9,
      1e6 * median(overheads),
      1e6 * median(engines),
      1e6 * (median(overheads) - median(engines)));
  std::fflush(stdout);
}

}  // namespace

int lm_command(const std::vector<std::string>& words) {
  const LmOptions options = parse(words);
  LmBench bench(options, *std::ranges::max_element(options.batches));
  std::printf("%s, %.1f MB of weights, %d threads\n",
              bench.model().description().name.c_str(),
              bench.weight_bytes() / 1e6,
              bench.num_threads());
  report_prefill(bench, options);
  for (const int64_t batch : options.batches) {
    report_decode(bench, options, batch);
  }
  return 0;
}

}  // namespace mstar::bench

// `mstar bench serve`: loads any server with the OpenAI API and measures what its clients see.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/commands.h"
#include "mstar/cli/flags.h"
#include "mstar/server/http/client.h"

namespace mstar {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

struct LoadOptions {
  HttpUrl url;
  std::string api_key;
  std::string model;
  std::string endpoint;  // chat or completions
  std::string mode;      // closed, waves or poisson
  int64_t concurrency = 8;
  int64_t num_requests = 64;
  double rate = 1.0;
  int64_t num_words = 64;
  int64_t max_tokens = 64;
  uint64_t seed = 0;
  double temperature = 0.0;
  bool ignore_eos = false;
};

// What one client saw.
struct Sample {
  bool ok = false;
  std::string error;
  double first_token = 0.0;  // seconds after the request was sent
  double end_to_end = 0.0;
  std::vector<double> gaps;  // between pieces
  int64_t num_prompt_tokens = 0;
  int64_t num_tokens = 0;  // as the server counts, else pieces
};

// Takes server-sent events apart as they come.
class EventReader {
 public:
  // Calls `handle` with the data of each complete event.
  template <typename Handle>
  void push(std::string_view data, const Handle& handle) {
    buffer_ += data;
    size_t end = 0;
    while ((end = buffer_.find('\n')) != std::string::npos) {
      const std::string_view line = trim(std::string_view(buffer_).substr(0, end));
      if (line.starts_with("data:")) {
        handle(trim(line.substr(5)));
      }
      buffer_.erase(0, end + 1);
    }
  }

 private:
  std::string buffer_;
};

std::string make_prompt(const LoadOptions& options, std::mt19937_64& random) {
  constexpr const char* kWords[] = {"the",
                                    "river",
                                    "walks",
                                    "slowly",
                                    "under",
                                    "a",
                                    "tall",
                                    "stone",
                                    "arch",
                                    "while",
                                    "people",
                                    "count",
                                    "red",
                                    "boats",
                                    "and",
                                    "sing"};
  std::string text;
  for (int64_t index = 0; index < options.num_words; ++index) {
    text += str_cat(index == 0 ? "" : " ", kWords[random() % std::size(kWords)]);
  }
  return text;
}

std::string make_body(const LoadOptions& options, uint64_t index) {
  std::mt19937_64 random(options.seed * 1'000'003 + index);
  const std::string prompt = make_prompt(options, random);
  Json body = Json::object({{"model", options.model},
                            {"max_tokens", options.max_tokens},
                            {"temperature", options.temperature},
                            {"stream", true},
                            {"stream_options", Json::object({{"include_usage", true}})}});
  if (options.ignore_eos) {
    body.set("ignore_eos", true);
  }
  if (options.endpoint == "chat") {
    body.set("messages", Json(Json::Array{Json::object({{"role", "user"}, {"content", prompt}})}));
  } else {
    body.set("prompt", prompt);
  }
  return body.dump();
}

bool has_text(const Json& event) {
  const Json* choices = event.find("choices");
  if (choices == nullptr || choices->size() == 0) {
    return false;
  }
  const Json& choice = (*choices)[0];
  const Json* text = choice.find("text");
  if (const Json* delta = choice.find("delta")) {
    text = delta->find("content");
  }
  return text != nullptr && text->is_string() && !text->get_string().empty();
}

// Notes one event of the stream.
void take_event(std::string_view data,
                Sample& sample,
                Clock::time_point begin,
                Clock::time_point& last) {
  if (data == "[DONE]") {
    sample.ok = sample.error.empty();
    return;
  }
  const Json event = Json::parse(data, "event");
  if (const Json* error = event.find("error")) {
    sample.error = error->dump();
    return;
  }
  if (has_text(event)) {
    const auto now = Clock::now();
    if (sample.first_token == 0.0) {
      sample.first_token = seconds_between(begin, now);
    } else {
      sample.gaps.push_back(seconds_between(last, now));
    }
    last = now;
  }
  const Json* usage = event.find("usage");
  if (usage != nullptr && usage->is_object()) {
    sample.num_prompt_tokens = usage->at("prompt_tokens").get_int();
    sample.num_tokens = usage->at("completion_tokens").get_int();
  }
}

Sample run_one(const LoadOptions& options, uint64_t index) {
  Sample sample;
  HttpCall call{.method = "POST",
                .path = options.endpoint == "chat" ? "/v1/chat/completions" : "/v1/completions",
                .headers = {{"Content-Type", "application/json"}},
                .body = make_body(options, index)};
  if (!options.api_key.empty()) {
    call.headers.add("Authorization", str_cat("Bearer ", options.api_key));
  }
  const auto begin = Clock::now();
  auto last = begin;
  EventReader events;
  call.on_data = [&](const HttpResponse& head, std::string_view data) {
    if (head.status != 200) {
      sample.error += data.substr(0, 300);
      return true;
    }
    events.push(data, [&](std::string_view event) { take_event(event, sample, begin, last); });
    return true;
  };
  try {
    const HttpResponse head = http_call(options.url, call);
    if (head.status != 200) {
      sample.error = str_cat("status ", head.status, ": ", sample.error);
    } else if (!sample.ok && sample.error.empty()) {
      sample.error = "the stream ended without [DONE]";
    }
  } catch (const Error& error) {
    sample.ok = false;
    sample.error = error.what();
  }
  sample.end_to_end = seconds_between(begin, Clock::now());
  if (sample.num_tokens == 0 && sample.first_token > 0.0) {
    sample.num_tokens = static_cast<int64_t>(sample.gaps.size()) + 1;
  }
  return sample;
}

// `concurrency` clients, each sending its next request when the last is answered.
void run_closed(const LoadOptions& options, std::vector<Sample>& samples) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> clients;
  for (int64_t client = 0; client < options.concurrency; ++client) {
    clients.emplace_back([&] {
      for (size_t index = next++; index < samples.size(); index = next++) {
        samples[index] = run_one(options, index);
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
}

// All of a wave at once; the next when the last answer is there.
void run_waves(const LoadOptions& options, std::vector<Sample>& samples) {
  for (size_t begin = 0; begin < samples.size();) {
    const size_t end = std::min(samples.size(), begin + static_cast<size_t>(options.concurrency));
    std::vector<std::thread> clients;
    for (size_t index = begin; index < end; ++index) {
      clients.emplace_back([&, index] { samples[index] = run_one(options, index); });
    }
    for (std::thread& client : clients) {
      client.join();
    }
    begin = end;
  }
}

// Requests at random moments, `rate` a second, whether or not the server keeps up.
void run_poisson(const LoadOptions& options, std::vector<Sample>& samples) {
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> gap(options.rate);
  auto when = Clock::now();
  std::vector<std::thread> clients;
  for (size_t index = 0; index < samples.size(); ++index) {
    std::this_thread::sleep_until(when);
    clients.emplace_back([&, index] { samples[index] = run_one(options, index); });
    when += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(gap(random)));
  }
  for (std::thread& client : clients) {
    client.join();
  }
}

Json percentiles(std::vector<double> values) {
  Json out = Json::object({{"count", static_cast<int64_t>(values.size())}});
  if (values.empty()) {
    return out;
  }
  std::ranges::sort(values);
  double sum = 0.0;
  for (const double value : values) {
    sum += value;
  }
  out.set("mean", sum / static_cast<double>(values.size()));
  for (const int percent : {50, 90, 99}) {
    const auto rank =
        static_cast<size_t>(std::ceil(static_cast<double>(values.size()) * percent / 100.0));
    out.set(str_cat("p", percent), values[std::max<size_t>(rank, 1) - 1]);
  }
  return out;
}

Json summarize(const LoadOptions& options, const std::vector<Sample>& samples, double seconds) {
  std::vector<double> first_token;
  std::vector<double> gaps;
  std::vector<double> end_to_end;
  int64_t num_tokens = 0;
  int64_t num_prompt_tokens = 0;
  int64_t num_failed = 0;
  std::string first_error;
  for (const Sample& sample : samples) {
    if (!sample.ok) {
      ++num_failed;
      first_error = first_error.empty() ? sample.error : first_error;
      continue;
    }
    if (sample.first_token > 0.0) {
      first_token.push_back(sample.first_token);
    }
    gaps.insert(gaps.end(), sample.gaps.begin(), sample.gaps.end());
    end_to_end.push_back(sample.end_to_end);
    num_tokens += sample.num_tokens;
    num_prompt_tokens += sample.num_prompt_tokens;
  }
  Json out =
      Json::object({{"mode", options.mode},
                    {"concurrency", options.concurrency},
                    {"requests", static_cast<int64_t>(samples.size())},
                    {"failed", num_failed},
                    {"seconds", seconds},
                    {"prompt_tokens", num_prompt_tokens},
                    {"generated_tokens", num_tokens},
                    {"requests_per_second", static_cast<double>(end_to_end.size()) / seconds},
                    {"tokens_per_second", static_cast<double>(num_tokens) / seconds},
                    {"time_to_first_token", percentiles(std::move(first_token))},
                    {"inter_token", percentiles(std::move(gaps))},
                    {"end_to_end", percentiles(std::move(end_to_end))}});
  if (!first_error.empty()) {
    out.set("first_error", first_error);
  }
  return out;
}

void print_summary(const Json& summary) {
  const auto number = [&](const char* name) { return summary.at(name).get_double(); };
  std::printf("%.0f requests, %.0f failed, %.2f s\n",
              number("requests"),
              number("failed"),
              number("seconds"));
  std::printf("%.2f requests/s, %.1f tokens/s (%.0f generated, %.0f prompt)\n",
              number("requests_per_second"),
              number("tokens_per_second"),
              number("generated_tokens"),
              number("prompt_tokens"));
  std::printf("%-22s %10s %10s %10s %10s\n", "milliseconds", "mean", "p50", "p90", "p99");
  for (const char* name : {"time_to_first_token", "inter_token", "end_to_end"}) {
    const Json& row = summary.at(name);
    if (!row.contains("mean")) {
      continue;
    }
    std::printf("%-22s %10.2f %10.2f %10.2f %10.2f\n",
                name,
                row.at("mean").get_double() * 1e3,
                row.at("p50").get_double() * 1e3,
                row.at("p90").get_double() * 1e3,
                row.at("p99").get_double() * 1e3);
  }
  if (const Json* error = summary.find("first_error")) {
    std::printf("first error: %s\n", error->get_string().c_str());
  }
}

std::vector<Flag> bench_flags() {
  return {
      {.name = "url", .value = "URL", .fallback = "http://127.0.0.1:8000", .help = "the server"},
      {.name = "api-key", .value = "KEY", .help = "sent with every request"},
      {.name = "model", .value = "NAME", .help = "default: the first of /v1/models"},
      {.name = "endpoint",
       .value = "NAME",
       .fallback = "completions",
       .help = "chat or completions"},
      {.name = "mode", .value = "MODE", .fallback = "closed", .help = "closed, waves or poisson"},
      {.name = "concurrency", .value = "N", .fallback = "8", .help = "clients, or a wave's size"},
      {.name = "requests", .value = "N", .fallback = "64", .help = "in all"},
      {.name = "rate", .value = "R", .fallback = "4", .help = "requests a second (poisson)"},
      {.name = "prompt-words", .value = "N", .fallback = "64", .help = "words of a prompt"},
      {.name = "max-tokens", .value = "N", .fallback = "64", .help = "tokens of an answer"},
      {.name = "temperature", .value = "T", .fallback = "0", .help = "of sampling"},
      {.name = "ignore-eos", .help = "always generate --max-tokens"},
      {.name = "seed", .value = "N", .fallback = "0", .help = "of prompts and arrivals"},
      {.name = "json", .help = "the summary as JSON"},
      {.name = "help", .help = "this text"},
  };
}

std::string first_model(const LoadOptions& options) {
  HttpCall call{.path = "/v1/models"};
  if (!options.api_key.empty()) {
    call.headers.add("Authorization", str_cat("Bearer ", options.api_key));
  }
  const HttpResponse response = http_call(options.url, call);
  const Json body = Json::parse(response.body, "/v1/models");
  const Json* data = body.find("data");
  if (response.status != 200 || data == nullptr || data->size() == 0) {
    throw Error(ErrorCode::kUnavailable,
                str_cat("[bench] /v1/models answered ", response.status, ": ", response.body));
  }
  return (*data)[0].at("id").get_string();
}

LoadOptions read_options(const Flags& flags) {
  LoadOptions options;
  options.url = HttpUrl::parse(flags.get("url"));
  options.api_key = flags.get("api-key");
  options.endpoint = flags.get("endpoint");
  options.mode = flags.get("mode");
  options.concurrency = flags.get_int("concurrency", 1, 4096);
  options.num_requests = flags.get_int("requests", 1, 1'000'000);
  options.rate = flags.get_double("rate", 0.001, 1e6);
  options.num_words = flags.get_int("prompt-words", 1, 1'000'000);
  options.max_tokens = flags.get_int("max-tokens", 1, 1'000'000);
  options.temperature = flags.get_double("temperature", 0.0, 100.0);
  options.ignore_eos = flags.get_bool("ignore-eos");
  options.seed = static_cast<uint64_t>(flags.get_int("seed", 0, INT64_MAX));
  if (options.endpoint != "chat" && options.endpoint != "completions") {
    throw Error(ErrorCode::kInvalidArgument, "[command line] --endpoint: chat or completions");
  }
  options.model = flags.has("model") ? flags.get("model") : first_model(options);
  return options;
}

}  // namespace

int bench_serve_command(const std::vector<std::string>& words) {
  Flags flags("bench serve", bench_flags());
  flags.parse(words);
  if (flags.get_bool("help")) {
    std::printf("mstar bench serve [options]\n\n%s", flags.help().c_str());
    return 0;
  }
  const LoadOptions options = read_options(flags);
  std::vector<Sample> samples(static_cast<size_t>(options.num_requests));
  const auto begin = Clock::now();
  if (options.mode == "closed") {
    run_closed(options, samples);
  } else if (options.mode == "waves") {
    run_waves(options, samples);
  } else if (options.mode == "poisson") {
    run_poisson(options, samples);
  } else {
    throw Error(ErrorCode::kInvalidArgument, "[command line] --mode: closed, waves or poisson");
  }
  const Json summary = summarize(options, samples, seconds_between(begin, Clock::now()));
  if (flags.get_bool("json")) {
    std::printf("%s\n", summary.dump(2).c_str());
  } else {
    print_summary(summary);
  }
  return summary.at("failed").get_int() == 0 ? 0 : 1;
}

}  // namespace mstar

// mstar_bench kernels: each kernel over model-shaped sizes as a share of what this machine can
// do, measured in the same run, with oneDNN's plain call and an earlier result beside it.
// mstar_bench models: the same for parts of models.
// mstar_bench lm, rounding: whole language models (bench/lm.h).

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/cpu/isa.h"

#include "bench/arguments.h"
#include "bench/ceilings.h"
#include "bench/kernels/families.h"
#include "bench/lm.h"
#include "bench/measure.h"
#include "bench/models/families.h"

namespace mstar::bench {
namespace {

constexpr const char* kUsage =
    "usage: mstar_bench kernels|models [--json] [--only PATTERN] [--threads N] [--rounds N]\n"
    "                           [--baseline FILE] [--no-peer] [--busy] [--list] [--on-demand]\n"
    "       mstar_bench lm MODEL …, mstar_bench rounding MODEL.gguf --text FILE …\n"
    "  --only      cases whose name contains PATTERN\n"
    "  --baseline  what an earlier --json printed; its times are shown beside\n"
    "  --busy      one thread's own processor time, for machines that others use too; no peer\n"
    "  --on-demand the first case alone: every line on standard input runs it once and is "
    "answered\n"
    "              with seconds, for scripts that alternate it with another program\n"
    "  MSTAR_ISA   portable, avx2, avx512 or avx512_bf16 instead of the machine's best\n";

struct Options {
  bool json = false;
  bool list = false;
  bool peer = true;
  bool busy = false;
  bool on_demand = false;
  std::string only;
  std::string baseline;
  int threads = 0;
  int rounds = 15;
};

Options parse_options(const std::vector<std::string>& words) {
  Options options;
  for (Arguments arguments(words); arguments.next();) {
    const std::string& flag = arguments.word();
    if (flag == "--json") {
      options.json = true;
    } else if (flag == "--list") {
      options.list = true;
    } else if (flag == "--no-peer") {
      options.peer = false;
    } else if (flag == "--busy") {
      options.busy = true;
      options.threads = 1;
      options.peer = false;
    } else if (flag == "--on-demand") {
      options.on_demand = true;
    } else if (flag == "--only") {
      options.only = arguments.value();
    } else if (flag == "--baseline") {
      options.baseline = arguments.value();
    } else if (flag == "--threads") {
      options.threads = arguments.count();
    } else if (flag == "--rounds") {
      options.rounds = arguments.count();
    } else {
      arguments.refuse(kUsage);
    }
  }
  return options;
}

Json read_baseline(const std::string& path) {
  if (path.empty()) {
    return {};
  }
  std::ifstream file(path);
  if (!file) {
    throw Error(ErrorCode::kNotFound, str_cat("[mstar_bench] cannot read ", path));
  }
  std::stringstream text;
  text << file.rdbuf();
  return Json::parse(text.str(), path);
}

double baseline_seconds(const Json& baseline, const std::string& name) {
  if (!baseline.is_object()) {
    return 0.0;
  }
  for (const Json& result : baseline.at("results").get_array()) {
    if (result.at("name").get_string() == name) {
      return result.at("seconds").get_double();
    }
  }
  return 0.0;
}

double peak_of(const Ceilings& ceilings, Peak peak) {
  switch (peak) {
    case Peak::kF32: return ceilings.f32_flops;
    case Peak::kBF16: return ceilings.bf16_flops;
    case Peak::kInt8: return ceilings.int8_ops;
  }
  return ceilings.f32_flops;
}

Json ceilings_json(const Ceilings& ceilings) {
  return Json::object({{"bandwidth", ceilings.bandwidth},
                       {"f32_flops", ceilings.f32_flops},
                       {"bf16_flops", ceilings.bf16_flops},
                       {"int8_ops", ceilings.int8_ops}});
}

void print_ceilings(const char* title, const Ceilings& ceilings) {
  std::printf("%-12s read %.1f GB/s   f32 %.1f   bf16 %.1f GFLOP/s   int8 %.1f GOP/s\n",
              title,
              ceilings.bandwidth / 1e9,
              ceilings.f32_flops / 1e9,
              ceilings.bf16_flops / 1e9,
              ceilings.int8_ops / 1e9);
}

struct Result {
  double seconds = 0.0;
  double peer_seconds = 0.0;  // 0: no peer
  double before_seconds = 0.0;
  double peak = 0.0;       // measured around it
  double bandwidth = 0.0;  // likewise
  double flops_share = 0.0;
  double bytes_share = 0.0;
};

Json result_json(const Case& item, const Result& result) {
  Json json = Json::object({{"name", item.name},
                            {"seconds", result.seconds},
                            {"flops_per_second", item.flops / result.seconds},
                            {"bytes_per_second", item.bytes / result.seconds},
                            {"peak_around", result.peak},
                            {"share_of_peak", result.flops_share},
                            {"bandwidth_around", result.bandwidth},
                            {"share_of_bandwidth", result.bytes_share}});
  if (result.peer_seconds > 0.0) {
    json.set("onednn_seconds", result.peer_seconds);
  }
  if (result.before_seconds > 0.0) {
    json.set("baseline_seconds", result.before_seconds);
  }
  return json;
}

std::string times(double other, double ours) {
  char text[16] = "-";
  if (other > 0.0) {
    std::snprintf(text, sizeof(text), "%.2fx", other / ours);
  }
  return text;
}

void print_result(const Case& item, const Result& result) {
  std::printf("%-36s %9.3f ms %8.1f GFLOP/s %5.1f %% %7.1f GB/s %5.1f %% %9s %9s\n",
              item.name.c_str(),
              result.seconds * 1e3,
              item.flops / result.seconds / 1e9,
              result.flops_share * 100.0,
              item.bytes / result.seconds / 1e9,
              result.bytes_share * 100.0,
              times(result.peer_seconds, result.seconds).c_str(),
              times(result.before_seconds, result.seconds).c_str());
  std::fflush(stdout);
}

// What the machine could do around each round, and a case's shares of it. Shared machines drift by
// a third within seconds: each round is held against what was measured right before and after it.
class Fence {
 public:
  Fence(const Case& item, ThreadPool& pool) : item_(item), pool_(pool) {}

  void operator()(std::optional<double> seconds) {
    const Ceilings now = glance_at_ceilings(pool_, item_.peak);
    if (seconds) {
      const double peak = 0.5 * (peak_of(before_, item_.peak) + peak_of(now, item_.peak));
      const double bandwidth = 0.5 * (before_.bandwidth + now.bandwidth);
      peaks_.push_back(peak);
      bandwidths_.push_back(bandwidth);
      flops_shares_.push_back(item_.flops / *seconds / peak);
      bytes_shares_.push_back(item_.bytes / *seconds / bandwidth);
    }
    before_ = now;
  }

  void put(Result& result) const {
    result.peak = median(peaks_);
    result.bandwidth = median(bandwidths_);
    result.flops_share = median(flops_shares_);
    result.bytes_share = median(bytes_shares_);
  }

 private:
  const Case& item_;
  ThreadPool& pool_;
  Ceilings before_;
  std::vector<double> peaks_, bandwidths_, flops_shares_, bytes_shares_;
};

Result run_case(const Case& item, CpuStream& stream, int rounds, bool with_peer) {
  const Case::Runs runs = item.prepare(stream);
  Fence fence(item, stream.pool());
  const Times measured =
      alternate(runs.ours, with_peer ? runs.peer : nullptr, rounds, std::ref(fence));
  Result result;
  result.seconds = measured.ours;
  result.peer_seconds = measured.peer;
  fence.put(result);
  return result;
}

// One case as a server of rounds: "ready", then seconds a line asked for, then at the end of the
// input what the machine could do, measured around every round.
int run_on_demand(const Case& item, CpuStream& stream) {
  const Case::Runs runs = item.prepare(stream);
  Fence fence(item, stream.pool());
  const auto timed = [&] {
    fence(std::nullopt);
    const double begin = now();
    runs.ours();
    const double seconds = now() - begin;
    fence(seconds);
    return seconds;
  };
  timed();
  std::printf("ready\n");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof(line), stdin) != nullptr) {
    std::printf("%.9f\n", timed());
    std::fflush(stdout);
  }
  Result result;
  fence.put(result);
  const Json document = Json::object({{"name", item.name},
                                      {"flops", item.flops},
                                      {"peak", result.peak},
                                      {"share_of_peak", result.flops_share}});
  std::printf("%s\n", document.dump().c_str());
  return 0;
}

int run_cases(const Cases& cases, const Options& options) {
  const Json baseline = read_baseline(options.baseline);
  if (options.list) {
    for (const Case& item : cases) {
      std::printf("%s\n", item.name.c_str());
    }
    return 0;
  }
  if (options.busy) {
    use_processor_time();
  }
  ThreadPool pool(options.threads);
  ThreadPool single(1);
  CpuStream stream(pool);
  const Ceilings one = measure_ceilings(single);
  const Ceilings all = measure_ceilings(pool);
  Json results = Json::array();
  if (!options.json && !options.on_demand) {
    std::printf("set %s, %d threads\n", to_string(active_isa()), pool.num_threads());
    print_ceilings("1 thread", one);
    print_ceilings("all threads", all);
    std::printf("%-36s %12s %16s %7s %12s %7s %9s %9s\n",
                "case",
                "median",
                "rate",
                "peak",
                "weights",
                "memory",
                "oneDNN",
                "before");
  }
  for (const Case& item : cases) {
    if (item.name.find(options.only) == std::string::npos) {
      continue;
    }
    if (options.on_demand) {
      return run_on_demand(item, stream);
    }
    Result result = run_case(item, stream, options.rounds, options.peer);
    result.before_seconds = baseline_seconds(baseline, item.name);
    if (options.json) {
      results.push_back(result_json(item, result));
    } else {
      print_result(item, result);
    }
  }
  if (options.json) {
    const Json document = Json::object({{"isa", to_string(active_isa())},
                                        {"threads", pool.num_threads()},
                                        {"ceilings_one_thread", ceilings_json(one)},
                                        {"ceilings", ceilings_json(all)},
                                        {"results", std::move(results)}});
    std::printf("%s\n", document.dump(2).c_str());
  }
  return 0;
}

int run(int argc, char** argv) {
  const std::string what = argc < 2 ? "" : argv[1];
  const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  if (what == "lm" || what == "rounding") {
    return what == "lm" ? lm_command(words) : rounding_command(words);
  }
  if (what != "kernels" && what != "models") {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const Options options = parse_options(words);
  return run_cases(what == "kernels" ? all_kernel_cases() : all_model_cases(), options);
}

}  // namespace
}  // namespace mstar::bench

int main(int argc, char** argv) {
  try {
    return mstar::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

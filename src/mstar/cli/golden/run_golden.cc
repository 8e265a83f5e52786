#include "mstar/cli/golden/run_golden.h"

#include <exception>
#include <memory>
#include <ostream>

#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/case_process.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/kernels/cpu/isa.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::golden {

namespace {

bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) {
    return name.empty();
  }
  if (pattern.front() == '*') {
    for (size_t skip = 0; skip <= name.size(); ++skip) {
      if (matches(name.substr(skip), pattern.substr(1))) {
        return true;
      }
    }
    return false;
  }
  return !name.empty() && name.front() == pattern.front() &&
         matches(name.substr(1), pattern.substr(1));
}

Outcome run_case(const Registry& registry, GoldenCase& golden, RunContext& context) {
  CaseResult result(golden);
  const auto runners = registry.find(golden);
  if (runners.empty()) {
    return {Verdict::kFail,
            str_cat("unknown kind of case",
                    golden.classes.empty() ? "" : ": class ",
                    str_join(golden.classes, ", "))};
  }
  // An error of one case fails that case only.
  try {
    const std::string file = golden.get_string("_file");
    if (file.ends_with(".safetensors")) {
      open_data(golden, file);
    }
    for (const auto& [variant, runner] : runners) {
      (*runner)(golden, context, result);
    }
    result.finish();
  } catch (const std::exception& error) {
    result.fail(error.what());
  }
  const Verdict verdict = result.skipped()  ? Verdict::kSkip
                          : result.passed() ? Verdict::kPass
                                            : Verdict::kFail;
  return {verdict, result.summary()};
}

// What the cases of one process share.
struct Runtime {
  explicit Runtime(const GoldenOptions& options) : pool(options.num_threads), stream(pool) {}

  ThreadPool pool;
  CpuStream stream;
};

void count(const GoldenCase& golden,
           const Outcome& outcome,
           GoldenCounts& counts,
           std::ostream& out) {
  const char* verdict = "PASS";
  if (outcome.verdict == Verdict::kSkip) {
    ++counts.skipped;
    verdict = "SKIP";
  } else if (outcome.verdict == Verdict::kPass) {
    ++counts.passed;
  } else {
    ++counts.failed;
    verdict = "FAIL";
  }
  out << verdict << ' ' << golden.name << ": " << outcome.summary << '\n' << std::flush;
}

}  // namespace

bool is_selected(const std::string& name, const std::string& pattern) {
  if (pattern.find('*') == std::string::npos) {
    return name.find(pattern) != std::string::npos;
  }
  return matches(name, pattern);
}

GoldenCounts run_golden(const GoldenOptions& options, std::ostream& out) {
  const Registry registry = build_registry();
  out << "kernels: " << to_string(active_isa()) << '\n';  // throws when MSTAR_ISA cannot be had
  GoldenCounts counts;
  for (const std::string& folder : options.folders) {
    std::vector<GoldenCase> cases = read_cases(folder);
    std::erase_if(cases,
                  [&](const GoldenCase& one) { return !is_selected(one.name, options.only); });
    if (cases.empty()) {
      ++counts.failed;
      out << "FAIL " << folder << ": no case matches \"" << options.only << "\"\n";
    }
    const auto prepare = [&]() -> RunCase {
      auto runtime = std::make_shared<Runtime>(options);
      return [&, runtime](size_t index) {
        RunContext context{runtime->stream, runtime->pool, options.model_folder};
        return run_case(registry, cases[index], context);
      };
    };
    run_in_children(cases.size(), prepare, [&](size_t index, const Outcome& outcome) {
      count(cases[index], outcome, counts, out);
    });
  }
  out << counts.passed << " passed, " << counts.failed << " failed, " << counts.skipped
      << " skipped\n";
  return counts;
}

}  // namespace mstar::golden

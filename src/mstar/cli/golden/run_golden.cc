#include "mstar/cli/golden/run_golden.h"

#include <exception>
#include <ostream>

#include "mstar/base/str_cat.h"
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

void run_case(const Registry& registry,
              GoldenCase& golden,
              RunContext& context,
              CaseResult& result) {
  const auto runners = registry.find(golden);
  if (runners.empty()) {
    result.fail(str_cat("unknown kind of case",
                        golden.classes.empty() ? "" : ": class ",
                        str_join(golden.classes, ", ")));
    return;
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
  ThreadPool pool(options.num_threads);
  CpuStream stream(pool);
  RunContext context{stream, pool, options.model_folder};
  GoldenCounts counts;
  for (const std::string& folder : options.folders) {
    int num_selected = 0;
    for (GoldenCase& golden : read_cases(folder)) {
      if (!is_selected(golden.name, options.only)) {
        continue;
      }
      ++num_selected;
      CaseResult result(golden);
      run_case(registry, golden, context, result);
      const char* verdict = "PASS";
      if (result.skipped()) {
        ++counts.skipped;
        verdict = "SKIP";
      } else if (result.passed()) {
        ++counts.passed;
      } else {
        ++counts.failed;
        verdict = "FAIL";
      }
      out << verdict << ' ' << golden.name << ": " << result.summary() << '\n';
    }
    if (num_selected == 0) {
      ++counts.failed;
      out << "FAIL " << folder << ": no case matches \"" << options.only << "\"\n";
    }
  }
  out << counts.passed << " passed, " << counts.failed << " failed, " << counts.skipped
      << " skipped\n";
  return counts;
}

}  // namespace mstar::golden

// mstar_golden: compares the components of this build with recorded results of a reference.
#include <cstring>
#include <exception>
#include <iostream>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/run_golden.h"

namespace {

constexpr const char* kUsage =
    "usage: mstar_golden [--model FOLDER] [--only PATTERN] [--threads N] FOLDER...\n"
    "  FOLDER          holds cases.json and its data\n"
    "  --model FOLDER  model or tokenizer of cases that do not name one\n"
    "  --only PATTERN  cases whose name contains PATTERN, or matches it with *\n"
    "  --threads N     compute threads (2)\n"
    "MSTAR_ISA=portable|avx2|avx512|avx512_bf16|amx chooses the kernels.\n"
    "Exit code: 0 all passed, 1 a case failed, 2 the call or a folder is wrong.\n";

mstar::golden::GoldenOptions parse(int argc, char** argv) {
  mstar::golden::GoldenOptions options;
  for (int index = 1; index < argc; ++index) {
    const std::string argument = argv[index];
    const auto value = [&]() -> std::string {
      if (index + 1 >= argc) {
        throw mstar::Error(mstar::ErrorCode::kInvalidArgument,
                           mstar::str_cat("[mstar_golden] ", argument, " needs a value"));
      }
      return argv[++index];
    };
    if (argument == "--model") {
      options.model_folder = value();
    } else if (argument == "--only") {
      options.only = value();
    } else if (argument == "--threads") {
      options.num_threads = std::max(1, std::atoi(value().c_str()));
    } else if (argument.starts_with("-")) {
      throw mstar::Error(mstar::ErrorCode::kInvalidArgument,
                         mstar::str_cat("[mstar_golden] unknown option ", argument));
    } else {
      options.folders.push_back(argument);
    }
  }
  if (options.folders.empty()) {
    throw mstar::Error(mstar::ErrorCode::kInvalidArgument, "[mstar_golden] no folder is given");
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::cout << kUsage;
    return 0;
  }
  try {
    const auto counts = mstar::golden::run_golden(parse(argc, argv), std::cout);
    return counts.failed == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n' << kUsage;
    return 2;
  }
}

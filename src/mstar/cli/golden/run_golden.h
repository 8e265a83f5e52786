#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace mstar::golden {

struct GoldenOptions {
  std::vector<std::string> folders;
  std::string model_folder;  // the model or tokenizer, where cases do not name one
  std::string only;          // cases whose name holds this text, or matches it with "*"
  int num_threads = 2;
};

struct GoldenCounts {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
};

// Runs the cases of every folder, one line each on `out`, then "N passed, N failed, N skipped".
// A case of an unknown kind fails, and so do one that ends its process and a selection that holds
// no case. Throws for a folder without a readable cases.json. Forks: call it where no threads run.
GoldenCounts run_golden(const GoldenOptions& options, std::ostream& out);

// Whether `name` is selected by `pattern`: "" selects all, a text without "*" what contains it,
// else the whole name must match.
bool is_selected(const std::string& name, const std::string& pattern);

}  // namespace mstar::golden

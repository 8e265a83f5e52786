#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mstar::golden {

enum class Verdict : char { kPass = 'P', kFail = 'F', kSkip = 'S' };

struct Outcome {
  Verdict verdict = Verdict::kFail;
  std::string summary;
};

// Computes case `index`.
using RunCase = std::function<Outcome(size_t index)>;

// Runs cases 0 ... num_cases - 1 and gives their outcomes to `report`, in order, as they come. They
// run in a child process, so that a case which ends it (a failed check, a fault) fails alone: the
// cases after it run in another child. `prepare` runs first in each child and makes what the cases
// need, threads among it: the calling process should have none. Throws std::system_error when no
// process can be had.
void run_in_children(size_t num_cases,
                     const std::function<RunCase()>& prepare,
                     const std::function<void(size_t index, const Outcome& outcome)>& report);

}  // namespace mstar::golden

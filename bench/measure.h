#pragma once

#include <functional>
#include <optional>
#include <vector>

namespace mstar::bench {

// From now on now() counts the calling thread's own processor time instead of the clock's: on a
// busy machine, with one thread.
void use_processor_time();

// Seconds since some moment.
double now();

struct Times {
  double ours = 0.0;  // seconds, median
  double peer = 0.0;  // 0 without a peer
};

// Seconds of one call of each, as the median over `rounds` rounds that alternate between the two;
// a round repeats short calls for some milliseconds. `fence` runs right before and right after each
// of our rounds, the second time with the round's seconds for a call.
Times alternate(const std::function<void()>& ours,
                const std::function<void()>& peer,
                int rounds,
                const std::function<void(std::optional<double> seconds)>& fence);

// The middle one; values must not be empty.
double median(std::vector<double> values);

}  // namespace mstar::bench

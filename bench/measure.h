#pragma once

#include <functional>

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
// a round repeats short calls for some milliseconds.
Times alternate(const std::function<void()>& ours, const std::function<void()>& peer, int rounds);

}  // namespace mstar::bench

#include "bench/measure.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "bench/bench.h"

namespace mstar::bench {

namespace {

bool processor_time = false;  // set before anything is measured

double time_calls(const std::function<void()>& call, int repeats) {
  const double begin = now();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    call();
  }
  return (now() - begin) / repeats;
}

// Enough calls for a round of about 10 ms.
int repeats_of(const std::function<void()>& call) {
  call();
  const double once = time_calls(call, 1);
  return std::clamp(static_cast<int>(0.01 / std::max(once, 1e-7)), 1, 10'000);
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void use_processor_time() {
  processor_time = true;
}

double now() {
  timespec time{};
  clock_gettime(processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Times alternate(const std::function<void()>& ours,
                const std::function<void()>& peer,
                int rounds,
                const std::function<void(std::optional<double> seconds)>& fence) {
  const int our_repeats = repeats_of(ours);
  const int peer_repeats = peer ? repeats_of(peer) : 0;
  std::vector<double> our_times;
  std::vector<double> peer_times;
  for (int round = 0; round < rounds; ++round) {
    fence(std::nullopt);
    our_times.push_back(time_calls(ours, our_repeats));
    fence(our_times.back());
    if (peer) {
      peer();  // wakes its threads
      peer_times.push_back(time_calls(peer, peer_repeats));
      // OpenMP's threads spin on for some milliseconds: not at our kernel's cost.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ours();
    }
  }
  return {median(our_times), peer ? median(peer_times) : 0.0};
}

Tensor random_tensor(const Shape& shape, DType dtype, uint32_t seed, float spread) {
  std::minstd_rand random(seed + 1);
  Tensor values = Tensor::empty(shape, DType::kF32);
  const float scale = spread * 1.7320508F * 2.0F / 2147483648.0F;  // uniform of that deviation
  for (int64_t index = 0; index < values.num_elements(); ++index) {
    values.data<float>()[index] = scale * (static_cast<float>(random()) - 1073741824.0F);
  }
  return dtype == DType::kF32 ? values : values.to(dtype);
}

}  // namespace mstar::bench

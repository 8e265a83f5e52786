#pragma once

#include <string>
#include <vector>

// Benchmarks of a whole language model, given as a checkpoint. Both throw Error for bad arguments.
namespace mstar::bench {

// mstar_bench lm MODEL: tokens a second of prefill and of decode at several batch sizes through the
// runtime, as a share of the memory's bandwidth, and what a step costs beside its kernels.
int lm_command(const std::vector<std::string>& words);

// mstar_bench rounding MODEL.gguf --text FILE: what int8 activations change in a model's
// distribution, against exact products.
int rounding_command(const std::vector<std::string>& words);

}  // namespace mstar::bench

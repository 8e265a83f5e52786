#include "bench/onednn_peer.h"

#include <omp.h>

#include <cstdlib>
#include <dnnl.hpp>
#include <memory>
#include <vector>

namespace mstar::bench {

namespace {

// Cheap normal-range values in any layout: the peer is timed, not checked.
void fill(const dnnl::memory& memory, bool is_bf16) {
  const size_t size = memory.get_desc().get_size();
  uint32_t state = 1;
  if (is_bf16) {
    auto* values = static_cast<uint16_t*>(memory.get_data_handle());
    for (size_t index = 0; index < size / 2; ++index) {
      state = state * 1664525U + 1013904223U;
      values[index] = static_cast<uint16_t>(0x3c00U | (state >> 24) | (state >> 16 & 0x8000U));
    }
    return;
  }
  auto* values = static_cast<float*>(memory.get_data_handle());
  for (size_t index = 0; index < size / 4; ++index) {
    state = state * 1664525U + 1013904223U;
    values[index] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-34F;
  }
}

struct Matmul {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  dnnl::memory x, out;
  std::vector<dnnl::memory> weights;
  size_t turn = 0;
};

}  // namespace

std::function<void()> onednn_matmul(int64_t m,
                                    int64_t n,
                                    int64_t k,
                                    DType dtype,
                                    int num_copies,
                                    int num_threads) {
  using Memory = dnnl::memory;
  const bool is_bf16 = dtype == DType::kBF16;
  const auto type = is_bf16 ? Memory::data_type::bf16 : Memory::data_type::f32;
  auto state = std::make_shared<Matmul>();
  omp_set_num_threads(num_threads);
  try {
    const Memory::desc x({m, k}, type, Memory::format_tag::ab);
    const Memory::desc weight({k, n}, type, Memory::format_tag::any);
    const Memory::desc out({m, n}, type, Memory::format_tag::ab);
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(x, weight, out), state->engine);
    state->primitive = dnnl::matmul(chosen);
    state->x = Memory(x, state->engine);
    state->out = Memory(out, state->engine);
    fill(state->x, is_bf16);
    for (int copy = 0; copy < num_copies; ++copy) {
      state->weights.emplace_back(chosen.weights_desc(), state->engine);
      fill(state->weights.back(), is_bf16);
    }
  } catch (const dnnl::error&) {
    return {};  // no primitive for this type here
  }
  return [state] {
    const dnnl::memory& weight = state->weights[state->turn++ % state->weights.size()];
    state->primitive.execute(
        state->stream,
        {{DNNL_ARG_SRC, state->x}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, state->out}});
    state->stream.wait();
  };
}

}  // namespace mstar::bench

#include <omp.h>

#include <dnnl.hpp>
#include <memory>

#include "bench/onednn_peer.h"

namespace mstar::bench {

namespace {

struct Conv {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::convolution_forward primitive;
  dnnl::memory x, weight, out;
};

// Values of normal size in any layout: the peer is timed, not checked.
void fill(const dnnl::memory& memory, bool is_bf16) {
  const size_t size = memory.get_desc().get_size();
  uint32_t state = 1;
  const auto next = [&state] {
    state = state * 1664525U + 1013904223U;
    return state >> 16;
  };
  if (is_bf16) {
    auto* values = static_cast<uint16_t*>(memory.get_data_handle());
    for (size_t index = 0; index < size / 2; ++index) {
      values[index] = static_cast<uint16_t>(0x3c00U | (next() & 0x80ffU));
    }
    return;
  }
  auto* values = static_cast<float*>(memory.get_data_handle());
  for (size_t index = 0; index < size / 4; ++index) {
    values[index] = static_cast<float>(next()) * 0x1p-16F - 0.5F;
  }
}

}  // namespace

std::function<void()> onednn_conv3d(const ConvSizes& s, DType dtype, int num_threads) {
  using Memory = dnnl::memory;
  using Tag = Memory::format_tag;
  const bool is_bf16 = dtype == DType::kBF16;
  const auto type = is_bf16 ? Memory::data_type::bf16 : Memory::data_type::f32;
  auto state = std::make_shared<Conv>();
  omp_set_num_threads(num_threads);
  try {
    const Memory::desc x(
        {1, s.in_channels, s.frames + s.kernel_t - 1, s.height, s.width}, type, Tag::ndhwc);
    const Memory::desc weight(
        {s.out_channels, s.in_channels, s.kernel_t, s.kernel, s.kernel}, type, Tag::any);
    const Memory::desc out({1, s.out_channels, s.frames, s.height, s.width}, type, Tag::ndhwc);
    const Memory::dims pad{0, s.kernel / 2, s.kernel / 2};
    const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_inference,
                                               dnnl::algorithm::convolution_direct,
                                               x,
                                               weight,
                                               out,
                                               {1, 1, 1},
                                               pad,
                                               pad);
    const dnnl::convolution_forward::primitive_desc chosen(desc, state->engine);
    state->primitive = dnnl::convolution_forward(chosen);
    state->x = Memory(x, state->engine);
    state->weight = Memory(chosen.weights_desc(), state->engine);
    state->out = Memory(out, state->engine);
  } catch (const dnnl::error&) {
    return {};  // no primitive for this type here
  }
  fill(state->x, is_bf16);
  fill(state->weight, is_bf16);
  return [state] {
    state->primitive.execute(
        state->stream,
        {{DNNL_ARG_SRC, state->x}, {DNNL_ARG_WEIGHTS, state->weight}, {DNNL_ARG_DST, state->out}});
    state->stream.wait();
  };
}

}  // namespace mstar::bench

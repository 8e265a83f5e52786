#include "mstar/kernels/cpu/packed_conv.h"

#include <algorithm>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/tensor/dispatch.h"

namespace mstar {

namespace {

const ConvShape& active_conv_shape() {
  return *MSTAR_BY_ISA(conv_shape);
}

// Where weight element (out, in, tap) stands, in elements.
struct WeightView {
  const std::byte* data;
  int64_t out_stride;
  int64_t in_stride;
};

// One panel, tap after tap: input channels (or pairs of them) times `columns` output channels.
template <typename Source, typename Stored>
void pack_panel(const WeightView& weight,
                const ConvFilter& filter,
                int64_t first_out,
                int64_t columns,
                Stored* to) {
  const auto* from = reinterpret_cast<const Source*>(weight.data);
  constexpr bool kPairs = sizeof(Stored) == 2;
  constexpr int64_t kAbreast = kPairs ? 2 : 1;
  for (int64_t tap = 0; tap < filter.num_taps; ++tap) {
    for (int64_t in = 0; in < filter.in_channels; in += kAbreast) {
      for (int64_t column = 0; column < columns; ++column) {
        for (int64_t index = 0; index < kAbreast; ++index, ++to) {
          const int64_t out = first_out + column;
          if (out >= filter.out_channels || in + index >= filter.in_channels) {
            *to = Stored{};
            continue;
          }
          const Source value =
              from[out * weight.out_stride + (in + index) * weight.in_stride + tap];
          if constexpr (kPairs) {
            *to = value;
          } else {
            *to = to_float(value);
          }
        }
      }
    }
  }
}

void pack_panels(const Tensor& weight, PackedConv::Data& data, ThreadPool& pool) {
  ConvFilter& filter = data.filter;
  const int64_t lanes = data.shape.lanes;
  const int64_t columns = data.shape.columns;
  const int64_t element_bytes = filter.is_bf16 ? 2 : 4;
  const int64_t depth = int64_t{filter.num_taps} *
                        (filter.is_bf16 ? (filter.in_channels + 1) / 2 * 2 : filter.in_channels);
  filter.panel_bytes = depth * columns * element_bytes;
  const int64_t padded_out = (filter.out_channels + lanes - 1) / lanes * lanes;
  data.panels = Tensor::empty({depth * padded_out * element_bytes}, DType::kU8);
  filter.data = data.panels.data<uint8_t>();

  const Tensor dense = weight.is_contiguous() ? weight : weight.copy();
  const WeightView view{
      dense.bytes(), dense.stride(data.transposed ? 1 : 0), dense.stride(data.transposed ? 0 : 1)};
  const int num_panels = static_cast<int>((padded_out + columns - 1) / columns);
  pool.parallel_for(num_panels, [&](int panel) {
    const int64_t first = panel * columns;
    const int64_t width = std::min(columns, padded_out - first);
    std::byte* to = data.panels.bytes() + panel * filter.panel_bytes;
    if (filter.is_bf16) {
      pack_panel<bfloat16>(view, filter, first, width, reinterpret_cast<bfloat16*>(to));
    } else if (dense.dtype() == DType::kF32) {
      pack_panel<float>(view, filter, first, width, reinterpret_cast<float*>(to));
    } else {
      pack_panel<float16>(view, filter, first, width, reinterpret_cast<float*>(to));
    }
  });
}

std::shared_ptr<const PackedConv::Data> make_data(const Tensor& weight,
                                                  const Tensor& bias,
                                                  bool transposed,
                                                  ThreadPool& pool) {
  MSTAR_CHECK(is_floating(weight.dtype()) && weight.num_dims() >= 3 && weight.num_dims() <= 5,
              "found ",
              weight.to_string(),
              ", expected [out, in, taps…] in f32, bf16 or f16");
  auto data = std::make_shared<PackedConv::Data>();
  data->isa = active_isa();
  data->shape = active_conv_shape();
  data->transposed = transposed;
  data->num_axes = weight.num_dims() - 2;
  ConvFilter& filter = data->filter;
  filter.is_bf16 = weight.dtype() == DType::kBF16;
  filter.out_channels = static_cast<int32_t>(weight.dim(transposed ? 1 : 0));
  filter.in_channels = static_cast<int32_t>(weight.dim(transposed ? 0 : 1));
  filter.num_taps = 1;
  for (int axis = 0; axis < data->num_axes; ++axis) {
    const auto taps = static_cast<int32_t>(weight.dim(2 + axis));
    data->kernel[static_cast<size_t>(3 - data->num_axes + axis)] = taps;
    filter.num_taps *= taps;
  }
  pack_panels(weight, *data, pool);
  if (bias.defined()) {
    MSTAR_CHECK(bias.num_dims() == 1 && bias.dim(0) == filter.out_channels, bias.to_string());
    const int64_t lanes = data->shape.lanes;
    data->bias = Tensor::zeros({(filter.out_channels + lanes - 1) / lanes * lanes}, DType::kF32);
    const std::vector<float> values = bias.to_floats();
    std::copy(values.begin(), values.end(), data->bias.data<float>());
    filter.bias = data->bias.data<float>();
  }
  return data;
}

}  // namespace

PackedConv PackedConv::pack(const Tensor& weight, const Tensor& bias, ThreadPool& pool) {
  PackedConv conv;
  conv.data_ = make_data(weight, bias, false, pool);
  return conv;
}

PackedConv PackedConv::pack_transposed(const Tensor& weight, const Tensor& bias, ThreadPool& pool) {
  MSTAR_CHECK(weight.num_dims() == 3, weight.to_string());
  PackedConv conv;
  conv.data_ = make_data(weight, bias, true, pool);
  return conv;
}

}  // namespace mstar

#include "mstar/kernels/cpu/resize_kernels.h"

#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

template <typename T, typename Out>
void weigh(const T* x,
           int64_t stride,
           const float* weights,
           int32_t taps,
           int64_t columns,
           Out* out) {
  int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    Vec sum = load(x + i) * set(weights[0]);
    for (int32_t tap = 1; tap < taps; ++tap) {
      sum = fma(set(weights[tap]), load(x + tap * stride + i), sum);
    }
    store(out + i, sum);
  }
  if (i < columns) {
    const int left = static_cast<int>(columns - i);
    Vec sum = load_n(x + i, left) * set(weights[0]);
    for (int32_t tap = 1; tap < taps; ++tap) {
      sum = fma(set(weights[tap]), load_n(x + tap * stride + i, left), sum);
    }
    store_n(out + i, sum, left);
  }
}

// Integer products, one rounding: half up, clamped to a byte.
void weigh_bytes(const uint8_t* x,
                 int64_t stride,
                 const int32_t* weights,
                 int32_t taps,
                 int32_t precision,
                 int64_t columns,
                 uint8_t* out) {
  constexpr int64_t kChunk = 64;
  int32_t sums[kChunk];
  for (int64_t begin = 0; begin < columns; begin += kChunk) {
    const int64_t size = columns - begin < kChunk ? columns - begin : kChunk;
    for (int64_t i = 0; i < size; ++i) {
      sums[i] = 1 << (precision - 1);
    }
    for (int32_t tap = 0; tap < taps; ++tap) {
      const uint8_t* from = x + tap * stride + begin;
      for (int64_t i = 0; i < size; ++i) {
        sums[i] += weights[tap] * static_cast<int32_t>(from[i]);
      }
    }
    for (int64_t i = 0; i < size; ++i) {
      const int32_t value = sums[i] >> precision;
      out[begin + i] = static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
    }
  }
}

template <typename T, typename Out>
void weigh_as(const ResizePass& p, int64_t from, int64_t to, int64_t output) {
  const ResizeTable& table = p.table;
  weigh(static_cast<const T*>(p.x) + from,
        p.columns,
        table.weights + output * table.max_taps,
        table.count[output],
        p.columns,
        static_cast<Out*>(p.out) + to);
}

}  // namespace

void resize_task(const ResizePass& p, int task) {
  const int64_t begin = task * p.outputs_per_task;
  const int64_t end =
      begin + p.outputs_per_task < p.num_outputs ? begin + p.outputs_per_task : p.num_outputs;
  const ResizeTable& table = p.table;
  for (int64_t index = begin; index < end; ++index) {
    const int64_t output = index % p.out_size;
    const int64_t from = (index / p.out_size * p.in_size + table.begin[output]) * p.columns;
    const int64_t to = index * p.columns;
    if (p.x_type == PixelType::kU8) {
      weigh_bytes(static_cast<const uint8_t*>(p.x) + from,
                  p.columns,
                  table.fixed + output * table.max_taps,
                  table.count[output],
                  *table.precision,
                  p.columns,
                  static_cast<uint8_t*>(p.out) + to);
    } else if (p.x_type == PixelType::kBF16) {
      weigh_as<bfloat16, float>(p, from, to, output);
    } else if (p.out_type == PixelType::kBF16) {
      weigh_as<float, bfloat16>(p, from, to, output);
    } else {
      weigh_as<float, float>(p, from, to, output);
    }
  }
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE

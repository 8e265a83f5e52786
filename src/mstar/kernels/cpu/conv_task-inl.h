// A task of a convolution: which output positions and channels, where they read, and how sums
// become outputs. The inner loops are conv_tile-inl.h's and conv_amx.cc's.
#pragma once

#include "mstar/kernels/cpu/conv_kernels.h"
#include "mstar/kernels/cpu/conv_tile-inl.h"
#include "mstar/kernels/cpu/matmul_epilogue-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

// Output position -> where its first tap reads.
struct Origin {
  int32_t at[3];
};

struct Task {
  int64_t row_begin;
  int num_rows;
  int panel_begin;
  int panel_end;
};

template <int kRows>
struct Positions {
  Origin origins[kRows];
  int64_t out_at[kRows];  // elements from the start of out and residual to each position
  int64_t residual_at[kRows];
};

inline Task make_task(const ConvProblem& p, int task) {
  const int blocks = p.num_row_blocks;
  const int groups = p.num_panel_groups;
  const int block = p.panels_outermost ? task % blocks : task / groups;
  const int group = p.panels_outermost ? task / blocks : task % groups;
  const int num_panels = (p.filter.out_channels + kConvColumns - 1) / kConvColumns;
  Task made;
  made.row_begin = int64_t{block} * p.rows_per_task;
  const int64_t left = p.num_rows - made.row_begin;
  made.num_rows = left < p.rows_per_task ? static_cast<int>(left) : p.rows_per_task;
  made.panel_begin = group * p.panels_per_task;
  made.panel_end = made.panel_begin + p.panels_per_task;
  if (made.panel_end > num_panels) {
    made.panel_end = num_panels;
  }
  return made;
}

template <int kRows>
void find_positions(const ConvProblem& p, const Task& task, Positions<kRows>& positions) {
  const int64_t width = p.out_size[2];
  const int64_t height = p.out_size[1];
  int64_t w = task.row_begin % width;
  int64_t h = task.row_begin / width % height;
  int64_t t = task.row_begin / width / height;
  for (int row = 0; row < task.num_rows; ++row) {
    positions.origins[row] = {{static_cast<int32_t>(t * p.stride[0]) - p.pad[0],
                               static_cast<int32_t>(h * p.stride[1]) - p.pad[1],
                               static_cast<int32_t>(w * p.stride[2]) - p.pad[2]}};
    positions.out_at[row] = t * p.out.stride[0] + h * p.out.stride[1] + w * p.out.stride[2];
    positions.residual_at[row] =
        t * p.residual.stride[0] + h * p.residual.stride[1] + w * p.residual.stride[2];
    if (++w == width) {
      w = 0;
      if (++h == height) {
        h = 0;
        ++t;
      }
    }
  }
}

// From the first tap's pixel to that of tap `tap`.
inline Origin tap_offset(const ConvProblem& p, int tap) {
  return {{tap / (p.kernel[1] * p.kernel[2]) * p.dilation[0],
           tap / p.kernel[2] % p.kernel[1] * p.dilation[1],
           tap % p.kernel[2] * p.dilation[2]}};
}

// The pixel that position `origin` plus `offset` reads; null in the padding.
inline const uint8_t* pixel(const ConvProblem& p, const Origin& origin, const Origin& offset) {
  const int32_t t = origin.at[0] + offset.at[0];
  const int32_t h = origin.at[1] + offset.at[1];
  const int32_t w = origin.at[2] + offset.at[2];
  if (t < 0 || t >= p.in_size[0] || h < 0 || h >= p.in_size[1] || w < 0 || w >= p.in_size[2]) {
    return nullptr;
  }
  const bool old = t < p.history_frames;
  const ConvView& view = old ? p.history : p.x;
  const int64_t frame = old ? t : t - p.history_frames;
  const int64_t index = frame * view.stride[0] + h * view.stride[1] + w * view.stride[2];
  return static_cast<const uint8_t*>(view.data) + index * (view.is_bf16 ? 2 : 4);
}

// Vectors of a panel: the last one is only as wide as it needs.
inline int panel_vectors(const ConvProblem& p, int panel) {
  const int left = p.filter.out_channels - panel * kConvColumns;
  return left >= kConvColumns ? kConvVectors : (left + kLanes - 1) / kLanes;
}

// Output channels [first, first + num_columns), whole vectors, of `num_rows` rows of the task from
// `row` on: bias, activation, residual, store.
template <int kRows>
void finish_columns(const ConvProblem& p,
                    int num_rows,
                    const Positions<kRows>& positions,
                    int row,
                    int64_t first,
                    int num_columns,
                    const float* sums,
                    int64_t sums_stride) {
  for (const int end = row + num_rows; row < end; ++row, sums += sums_stride) {
    for (int c = 0; c < num_columns; c += kLanes) {
      const int64_t channel = first + c;
      const int64_t count = p.filter.out_channels - channel;
      F v = load(sums + c);
      if (p.filter.bias != nullptr) {
        v = v + load(p.filter.bias + channel);
      }
      v = activated(v, p.activation);
      if (p.residual.data != nullptr) {
        v = v +
            load_some(
                p.residual.data, p.residual.is_bf16, positions.residual_at[row] + channel, count);
      }
      store_some(p.out.data, p.out.is_bf16, positions.out_at[row] + channel, count, v);
    }
  }
}

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE

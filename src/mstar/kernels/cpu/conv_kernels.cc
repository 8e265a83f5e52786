// A task is a block of output positions times a few panels of output channels. It walks the taps
// in groups: for each group it notes where every row reads (the segments), then runs the tiles of
// all its panels over them, so that the group's pixels and filters stay in the cache. Taps that
// fall into padding for a whole tile are left out: the zero frames in front of a first chunk cost
// nothing.
#include "mstar/kernels/cpu/conv_kernels.h"

#include "mstar/kernels/cpu/conv_tile-inl.h"
#include "mstar/kernels/cpu/matmul_epilogue-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

constexpr int kMaxRows = 96;
constexpr int kRowsMultiple = 24;
constexpr int kMaxPanels = 4;
constexpr int kMaxTaps = 27;      // of a group
constexpr int kMaxDepth = 512;    // channels of a segment: 512 rows of a panel stay in L1 or L2
constexpr int kGroupDepth = 768;  // taps are grouped until a visit of a tile is this long
// bf16 pixels are widened once for all panels of a task, except where the machine dots bf16: in
// registers, for every panel, it took a quarter of the time (Zen 3).
constexpr int kMaxWidenedRows = 48;
constexpr int kWidenedDepth = 512;  // channels of all taps of a group
static_assert(kMaxWidenedRows % kRowsMultiple == 0 && kMaxDepth <= kWidenedDepth);
static_assert(kMaxRows % kRowsMultiple == 0 && kRowsMultiple % kConvRows == 0);
static_assert(kRowsMultiple % tile_rows(1) == 0 && kRowsMultiple % tile_rows(2) == 0);

// What rows outside the input read.
alignas(64) constexpr uint8_t kZeros[kMaxDepth * sizeof(float)] = {};

using TileFunction = void (*)(const ConvTileParams&);

#if defined(__AVX512BF16__)
constexpr bool kDotsBf16 = true;
#else
constexpr bool kDotsBf16 = false;
#endif

bool widens(const ConvProblem& p) {
  return p.x.is_bf16 && !(kDotsBf16 && p.filter.is_bf16);
}

template <int kCols>
TileFunction choose_tile(const ConvProblem& p) {
  if constexpr (kDotsBf16) {
    if (p.x.is_bf16 && p.filter.is_bf16) {
      return &run_conv_tile<ConvTypes::kBf16Pairs, kCols>;
    }
  }
  return p.filter.is_bf16 ? &run_conv_tile<ConvTypes::kF32TimesBf16, kCols>
                          : &run_conv_tile<ConvTypes::kF32, kCols>;
}

TileFunction choose_tile(const ConvProblem& p, int vectors) {
  if (vectors == 1) {
    return choose_tile<1>(p);
  }
  if (vectors == kConvVectors) {
    return choose_tile<kConvVectors>(p);
  }
  return choose_tile<2>(p);
}

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

// Which taps and channels are at work.
struct TapGroup {
  int begin;  // taps [begin, end) of the kernel
  int end;
  int channel_begin;
  int depth;  // channels
};

struct Workspace {
  Origin origins[kMaxRows];
  int64_t out_at[kMaxRows];  // elements from the start of out and residual to each position
  int64_t residual_at[kMaxRows];
  int num_segments[kMaxRows / kConvRows];
  Segment segments[kMaxRows / kConvRows][kMaxTaps];
  alignas(64) float sums[kMaxPanels * kMaxRows * kConvColumns];
  alignas(64) float widened[kMaxWidenedRows * kWidenedDepth];
};

Task make_task(const ConvProblem& p, int task) {
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

void find_origins(const ConvProblem& p, const Task& task, Workspace& work) {
  const int64_t width = p.out_size[2];
  const int64_t height = p.out_size[1];
  int64_t w = task.row_begin % width;
  int64_t h = task.row_begin / width % height;
  int64_t t = task.row_begin / width / height;
  for (int row = 0; row < task.num_rows; ++row) {
    work.origins[row] = {{static_cast<int32_t>(t * p.stride[0]) - p.pad[0],
                          static_cast<int32_t>(h * p.stride[1]) - p.pad[1],
                          static_cast<int32_t>(w * p.stride[2]) - p.pad[2]}};
    work.out_at[row] = t * p.out.stride[0] + h * p.out.stride[1] + w * p.out.stride[2];
    work.residual_at[row] =
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

// The pixel that position `origin` plus `offset` reads; null in the padding.
const uint8_t* pixel(const ConvProblem& p, const Origin& origin, const int32_t* offset) {
  const int32_t t = origin.at[0] + offset[0];
  const int32_t h = origin.at[1] + offset[1];
  const int32_t w = origin.at[2] + offset[2];
  if (t < 0 || t >= p.in_size[0] || h < 0 || h >= p.in_size[1] || w < 0 || w >= p.in_size[2]) {
    return nullptr;
  }
  const bool old = t < p.history_frames;
  const ConvView& view = old ? p.history : p.x;
  const int64_t frame = old ? t : t - p.history_frames;
  const int64_t index = frame * view.stride[0] + h * view.stride[1] + w * view.stride[2];
  return static_cast<const uint8_t*>(view.data) + index * (view.is_bf16 ? 2 : 4);
}

// Appends to each tile's list the taps of the group that reach at least one pixel.
void find_segments(const ConvProblem& p,
                   const Task& task,
                   const TapGroup& group,
                   int rows,  // of a tile
                   int columns,
                   Workspace& work) {
  const int num_tiles = (task.num_rows + rows - 1) / rows;
  const int element_bytes = p.x.is_bf16 ? 2 : 4;
  const int in_padded =
      p.filter.is_bf16 ? (p.filter.in_channels + 1) / 2 * 2 : p.filter.in_channels;
  const int64_t depth_bytes = int64_t{columns} * (p.filter.is_bf16 ? 2 : 4);
  for (int tile = 0; tile < num_tiles; ++tile) {
    work.num_segments[tile] = 0;
  }
  for (int tap = group.begin; tap < group.end; ++tap) {
    const int32_t offset[3] = {tap / (p.kernel[1] * p.kernel[2]) * p.dilation[0],
                               tap / p.kernel[2] % p.kernel[1] * p.dilation[1],
                               tap % p.kernel[2] * p.dilation[2]};
    const int64_t filter_tap = p.first_tap + int64_t{tap} * p.tap_step;
    for (int tile = 0; tile < num_tiles; ++tile) {
      Segment& segment = work.segments[tile][work.num_segments[tile]];
      bool reaches = false;
      for (int row = 0; row < rows; ++row) {
        const int index = tile * rows + row;
        // Rows beyond the block repeat its last one; their sums are not stored.
        const uint8_t* from =
            pixel(p, work.origins[index < task.num_rows ? index : task.num_rows - 1], offset);
        reaches = reaches || from != nullptr;
        segment.rows[row] = from != nullptr ? from + group.channel_begin * element_bytes : kZeros;
      }
      segment.filter_offset = (filter_tap * in_padded + group.channel_begin) * depth_bytes;
      work.num_segments[tile] += reaches ? 1 : 0;
    }
  }
}

// Lets every row of the segments point at f32 copies of its bf16 channels.
void widen_segments(int num_tiles, int rows, int depth, Workspace& work) {
  float* to = work.widened;
  for (int tile = 0; tile < num_tiles; ++tile) {
    for (int index = 0; index < work.num_segments[tile]; ++index) {
      Segment& segment = work.segments[tile][index];
      for (int row = 0; row < rows; ++row) {
        if (segment.rows[row] == kZeros) {
          continue;
        }
        const auto* from = reinterpret_cast<const uint16_t*>(segment.rows[row]);
        int channel = 0;
        for (; channel + kLanes <= depth; channel += kLanes) {
          store(to + channel, load_bf16(from + channel));
        }
        for (; channel < depth; ++channel) {
          const uint32_t bits = static_cast<uint32_t>(from[channel]) << 16;
          __builtin_memcpy(to + channel, &bits, sizeof(bits));
        }
        segment.rows[row] = reinterpret_cast<const uint8_t*>(to);
        to += depth;
      }
    }
  }
}

int panel_vectors(const ConvProblem& p, int panel) {
  const int left = p.filter.out_channels - panel * kConvColumns;
  return left >= kConvColumns ? kConvVectors : (left + kLanes - 1) / kLanes;
}

void finish(const ConvProblem& p, const Task& task, int panel, int vectors, const Workspace& work) {
  const int64_t first = int64_t{panel} * kConvColumns;
  const float* sums = work.sums + (panel - task.panel_begin) * kMaxRows * kConvColumns;
  for (int row = 0; row < task.num_rows; ++row, sums += vectors * kLanes) {
    for (int c = 0; c < vectors * kLanes; c += kLanes) {
      const int64_t channel = first + c;
      const int64_t count = p.filter.out_channels - channel;
      F v = load(sums + c);
      if (p.filter.bias != nullptr) {
        v = v + load(p.filter.bias + channel);
      }
      v = activated(v, p.activation);
      if (p.residual.data != nullptr) {
        v = v +
            load_some(p.residual.data, p.residual.is_bf16, work.residual_at[row] + channel, count);
      }
      store_some(p.out.data, p.out.is_bf16, work.out_at[row] + channel, count, v);
    }
  }
}

// Panels [begin, end) of the task have the same width.
void run_panels(const ConvProblem& p, const Task& task, int begin, int end, Workspace& work) {
  const int vectors = panel_vectors(p, begin);
  const int columns = vectors * kLanes;
  const int rows = tile_rows(vectors);
  const int num_tiles = (task.num_rows + rows - 1) / rows;
  const TileFunction run_tile = choose_tile(p, vectors);
  const int num_taps = p.kernel[0] * p.kernel[1] * p.kernel[2];
  const int in_channels = p.filter.in_channels;
  int taps_abreast = (widens(p) ? kWidenedDepth : kGroupDepth) / in_channels;
  taps_abreast = taps_abreast < 1 ? 1 : taps_abreast > kMaxTaps ? kMaxTaps : taps_abreast;
  // At least once: a phase of a transposed convolution may have no taps, its sums are zero.
  for (int tap = 0; tap == 0 || tap < num_taps; tap += taps_abreast) {
    for (int channel = 0; channel < in_channels; channel += kMaxDepth) {
      const int end_tap = tap + taps_abreast < num_taps ? tap + taps_abreast : num_taps;
      const int left = in_channels - channel;
      const TapGroup group{tap, end_tap, channel, left < kMaxDepth ? left : kMaxDepth};
      find_segments(p, task, group, rows, columns, work);
      if (widens(p)) {
        widen_segments(num_tiles, rows, group.depth, work);
      }
      for (int panel = begin; panel < end; ++panel) {
        float* sums = work.sums + (panel - task.panel_begin) * kMaxRows * kConvColumns;
        for (int tile = 0; tile < num_tiles; ++tile) {
          run_tile({work.segments[tile],
                    work.num_segments[tile],
                    group.depth,
                    p.filter.data + panel * p.filter.panel_bytes,
                    sums + tile * rows * columns,
                    tap > 0 || channel > 0});
        }
      }
    }
  }
  for (int panel = begin; panel < end; ++panel) {
    finish(p, task, panel, vectors, work);
  }
}

}  // namespace

const ConvShape conv_shape =
    {kLanes, kConvColumns, kRowsMultiple, kMaxRows, kMaxWidenedRows, kMaxPanels};

void conv_task(const ConvProblem& p, int number) {
  Workspace work;
  const Task task = make_task(p, number);
  find_origins(p, task, work);
  int full_end = task.panel_end;
  if (panel_vectors(p, full_end - 1) != kConvVectors) {
    --full_end;  // the narrow last panel has tiles of its own
  }
  if (full_end > task.panel_begin) {
    run_panels(p, task, task.panel_begin, full_end, work);
  }
  if (full_end < task.panel_end) {
    run_panels(p, task, full_end, task.panel_end, work);
  }
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE

// A task is a block of output positions times a few panels of output channels. It walks the taps
// in groups: for each group it notes where every row reads (the segments), then runs the tiles of
// all its panels over them, so that the group's pixels and filters stay in the cache. Taps that
// fall into padding for a whole tile are left out: the zero frames in front of a first chunk cost
// nothing.
#include "mstar/kernels/cpu/conv_kernels.h"

#include "mstar/kernels/cpu/conv_task-inl.h"
#include "mstar/kernels/cpu/conv_tile-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

constexpr int kMaxRows = 96;
constexpr int kRowsMultiple = 24;
// bf16 pixels are widened for each task: a twentieth of the time for 64 output channels.
constexpr int kMaxPanels = kConvColumns >= 48 ? 4 : 8;
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

// Which taps and channels are at work.
struct TapGroup {
  int begin;  // taps [begin, end) of the kernel
  int end;
  int channel_begin;
  int depth;  // channels
};

struct Workspace {
  Positions<kMaxRows> positions;
  int num_segments[kMaxRows / kConvRows];
  Segment segments[kMaxRows / kConvRows][kMaxTaps];
  alignas(64) float sums[kMaxPanels * kMaxRows * kConvColumns];
  alignas(64) float widened[kMaxWidenedRows * kWidenedDepth];
};

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
    const Origin offset = tap_offset(p, tap);
    const int64_t filter_tap = p.first_tap + int64_t{tap} * p.tap_step;
    for (int tile = 0; tile < num_tiles; ++tile) {
      Segment& segment = work.segments[tile][work.num_segments[tile]];
      bool reaches = false;
      for (int row = 0; row < rows; ++row) {
        const int index = tile * rows + row;
        // Rows beyond the block repeat its last one; their sums are not stored.
        const uint8_t* from = pixel(
            p, work.positions.origins[index < task.num_rows ? index : task.num_rows - 1], offset);
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
    const float* sums = work.sums + (panel - task.panel_begin) * kMaxRows * kConvColumns;
    finish_columns(
        p, task.num_rows, work.positions, 0, int64_t{panel} * kConvColumns, columns, sums, columns);
  }
}

}  // namespace

const ConvShape conv_shape =
    {kLanes, kConvColumns, kRowsMultiple, kMaxRows, kMaxWidenedRows, kMaxPanels, 12};

void conv_task(const ConvProblem& p, int number) {
  Workspace work;
  const Task task = make_task(p, number);
  find_positions(p, task, work.positions);
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

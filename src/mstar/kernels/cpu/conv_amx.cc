// Convolutions of bf16 pixels with bf16 filters through the tile registers, where the input
// channels fill whole steps of 32. A task gathers its positions' channels, a few steps (tap and 32
// channels) at a time, and multiplies them with all its panels: two tiles of positions abreast and
// three vectors of output channels, which the filters' panels already hold as tiles want them.
//
// Every output element is one chain over ascending (tap, channel) in steps of 32 (amx-inl.h),
// begun at zero. Taps that fall into padding for the whole task are left out, which adds zeros.
#include "mstar/kernels/cpu/amx-inl.h"
#include "mstar/kernels/cpu/conv_task-inl.h"

namespace mstar::amx {
namespace {

constexpr int kMaxRows = 256;
constexpr int kMaxPanels = 6;
constexpr int kRowsMultiple = 2 * kAmxRows;
constexpr int kStretch =
    8;  // steps: positions and filters of so many stay in the first-level cache
constexpr int kMaxColumns = kMaxPanels * kConvColumns;
constexpr int64_t kStepBytes = int64_t{kAmxRows} * kTileBytes;
static_assert(kMaxRows % kRowsMultiple == 0 && kConvVectors == 3);

alignas(64) constexpr uint8_t kZeros[kTileBytes] = {};

struct Workspace {
  Positions<kMaxRows> positions;
  int32_t columns[kMaxRows];       // that the first tap of a line reads
  const uint8_t* lines[kMaxRows];  // pixel 0 of the image line that a row of the taps at work reads
  const uint8_t* pixels[kMaxRows];  // of the tap at work; null in the padding
  int64_t filter_rows[kStretch];    // pairs of channels in front of each step, in any panel
  alignas(64) uint8_t x[kMaxRows / kAmxRows][kStretch][kAmxRows][kTileBytes];
  // [panel][pair of tiles][2][vectors][16][16]: what a block needs lies together, or its stores
  // would touch more pages than the processor remembers.
  alignas(64) float sums[kMaxRows * kMaxColumns];
};

// What two tiles of positions and the vectors of one panel multiply.
struct Block {
  const uint8_t* x;       // [2][kStretch][16][64 bytes]
  const uint8_t* filter;  // the panel
  const int64_t* filter_rows;
  int num_steps;
  float* sums;  // [2][vectors][16][16]
  bool resume;
  const uint8_t* ahead;  // filters that are used soon: lines to ask for at each step
  int lines_ahead;
};

template <int kVectors>
void run_block(const Block& block) {
  constexpr int64_t kFilterStride = kVectors * 64;
  constexpr int64_t kTileSums = kAmxRows * kLanes;
  const auto load = [&]<int index>() {
    if (block.resume) {
      load_tile<index>(block.sums + (index / 3 * kVectors + index % 3) * kTileSums, kTileBytes);
    } else {
      zero_tile<index>();
    }
  };
  const auto store = [&]<int index>() {
    store_tile<index>(block.sums + (index / 3 * kVectors + index % 3) * kTileSums, kTileBytes);
  };
  load.template operator()<0>();
  load.template operator()<3>();
  if constexpr (kVectors > 1) {
    load.template operator()<1>();
    load.template operator()<4>();
  }
  if constexpr (kVectors > 2) {
    load.template operator()<2>();
    load.template operator()<5>();
  }
  const uint8_t* x0 = block.x;
  const uint8_t* x1 = x0 + kStretch * kStepBytes;
  const uint8_t* ahead = block.ahead;
  for (int step = 0; step < block.num_steps; ++step, x0 += kStepBytes, x1 += kStepBytes) {
    const uint8_t* filter = block.filter + block.filter_rows[step] * kFilterStride;
    for (int line = 0; line < block.lines_ahead; ++line, ahead += 64) {
      asm volatile("prefetcht1 %0" : : "m"(*ahead));
    }
    load_tile<7>(filter, kFilterStride);
    load_tile<6>(x0, kTileBytes);
    dot_bf16_tiles<0, 6, 7>();
    load_tile<6>(x1, kTileBytes);
    dot_bf16_tiles<3, 6, 7>();
    if constexpr (kVectors > 1) {
      load_tile<7>(filter + 64, kFilterStride);
      dot_bf16_tiles<4, 6, 7>();
      load_tile<6>(x0, kTileBytes);
      dot_bf16_tiles<1, 6, 7>();
    }
    if constexpr (kVectors > 2) {
      load_tile<7>(filter + 128, kFilterStride);
      dot_bf16_tiles<2, 6, 7>();
      load_tile<6>(x1, kTileBytes);
      dot_bf16_tiles<5, 6, 7>();
    }
  }
  store.template operator()<0>();
  store.template operator()<3>();
  if constexpr (kVectors > 1) {
    store.template operator()<1>();
    store.template operator()<4>();
  }
  if constexpr (kVectors > 2) {
    store.template operator()<2>();
    store.template operator()<5>();
  }
}

constexpr void (*kRunBlock[])(const Block&) = {&run_block<1>, &run_block<2>, &run_block<3>};

class Runner {
 public:
  Runner(const ConvProblem& p, const Task& task, Workspace& work)
      : p_(p), task_(task), work_(work), num_pairs_((task.num_rows + 31) / 32) {
    find_positions(p, task, work.positions);
  }

  void run() {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) {
      shapes.set(tile, kAmxRows);
    }
    configure_tiles(shapes);
    for (int line = 0; line < p_.kernel[0] * p_.kernel[1]; ++line) {
      if (!find_lines(line * p_.kernel[2])) {
        continue;
      }
      for (int w = 0; w < p_.kernel[2]; ++w) {
        const int64_t tap = p_.first_tap + int64_t{line * p_.kernel[2] + w} * p_.tap_step;
        if (!find_pixels(w * p_.dilation[2])) {
          continue;
        }
        for (int channel = 0; channel < p_.filter.in_channels;) {
          channel += gather(tap, channel);
          if (num_steps_ == kStretch) {
            multiply();
          }
        }
      }
    }
    if (num_steps_ > 0 || !resume_) {
      multiply();  // with no steps: the sums are zero
    }
    release_tiles();
    finish();
  }

 private:
  // Where the image lines are that the taps of a line of the kernel read, `tap` the first; false
  // when all of them are padding.
  bool find_lines(int tap) {
    Origin offset = tap_offset(p_, tap);
    bool reaches = false;
    for (int row = 0; row < num_pairs_ * kRowsMultiple; ++row) {
      // Rows beyond the task repeat its last one; their sums are not stored.
      Origin origin = work_.positions.origins[row < task_.num_rows ? row : task_.num_rows - 1];
      work_.columns[row] = origin.at[2];
      origin.at[2] = 0;
      offset.at[2] = 0;
      work_.lines[row] = pixel(p_, origin, offset);
      reaches = reaches || work_.lines[row] != nullptr;
    }
    return reaches;
  }

  // The pixels `offset` columns further; false when all of them are padding.
  bool find_pixels(int offset) {
    const auto width = static_cast<uint32_t>(p_.in_size[2]);
    const int64_t pixel_bytes = 2 * p_.x.stride[2];
    bool reaches = false;
    for (int row = 0; row < num_pairs_ * kRowsMultiple; ++row) {
      const int32_t column = work_.columns[row] + offset;
      const bool inside = work_.lines[row] != nullptr && static_cast<uint32_t>(column) < width;
      work_.pixels[row] = inside ? work_.lines[row] + column * pixel_bytes : nullptr;
      reaches = reaches || inside;
    }
    return reaches;
  }

  // The pixels' channels from `channel` on, as many as there is room for; returns their number.
  int gather(int64_t tap, int channel) {
    const int left = (p_.filter.in_channels - channel) / kTileDepth;
    const int room = kStretch - num_steps_;
    const int steps = left < room ? left : room;
    for (int row = 0; row < num_pairs_ * kRowsMultiple; ++row) {
      const uint8_t* from = work_.pixels[row];
      const int64_t stride = from != nullptr ? kTileBytes : 0;
      from = from != nullptr ? from + 2 * int64_t{channel} : kZeros;
      uint8_t* to = work_.x[row / kAmxRows][num_steps_][row % kAmxRows];
      for (int step = 0; step < steps; ++step, from += stride, to += kStepBytes) {
        __builtin_memcpy(to, from, kTileBytes);
      }
    }
    for (int step = 0; step < steps; ++step) {
      work_.filter_rows[num_steps_ + step] =
          (tap * p_.filter.in_channels + channel) / 2 + step * kTileDepth / 2;
    }
    num_steps_ += steps;
    return steps * kTileDepth;
  }

  void multiply() {
    float* sums = work_.sums;
    for (int panel = task_.panel_begin; panel < task_.panel_end; ++panel) {
      const int vectors = panel_vectors(p_, panel);
      const uint8_t* filter = p_.filter.data + panel * p_.filter.panel_bytes;
      // The next stretch of this panel; the last one asks for what may not be needed.
      const uint8_t* ahead =
          filter +
          (num_steps_ > 0 ? work_.filter_rows[num_steps_ - 1] + kTileDepth / 2 : 0) * vectors * 64;
      const int lines = (kAmxRows * vectors + num_pairs_ - 1) / num_pairs_;
      for (int pair = 0; pair < num_pairs_; ++pair) {
        kRunBlock[vectors - 1]({&work_.x[2 * pair][0][0][0],
                                filter,
                                work_.filter_rows,
                                num_steps_,
                                sums,
                                resume_,
                                ahead + int64_t{pair} * lines * kStretch * 64,
                                lines});
        sums += kRowsMultiple * vectors * kLanes;
      }
    }
    num_steps_ = 0;
    resume_ = true;
  }

  void finish() {
    const float* sums = work_.sums;
    for (int panel = task_.panel_begin; panel < task_.panel_end; ++panel) {
      const int vectors = panel_vectors(p_, panel);
      for (int tile = 0; tile < 2 * num_pairs_; ++tile) {
        const int left = task_.num_rows - tile * kAmxRows;
        for (int vector = 0; vector < vectors; ++vector, sums += kAmxRows * kLanes) {
          finish_columns(p_,
                         left < kAmxRows ? left : kAmxRows,
                         work_.positions,
                         tile * kAmxRows,
                         int64_t{panel} * kConvColumns + vector * kLanes,
                         kLanes,
                         sums,
                         kLanes);
        }
      }
    }
  }

  const ConvProblem& p_;
  const Task& task_;
  Workspace& work_;
  int num_pairs_;
  int num_steps_ = 0;  // gathered
  bool resume_ = false;
};

}  // namespace

extern const ConvShape
    conv_shape{kLanes, kConvColumns, kRowsMultiple, kMaxRows, kMaxRows, kMaxPanels, 6};

void conv_task(const ConvProblem& p, int number) {
  Workspace work;
  const Task task = make_task(p, number);
  Runner(p, task, work).run();
}

}  // namespace mstar::amx

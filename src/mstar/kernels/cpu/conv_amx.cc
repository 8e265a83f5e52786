// Convolutions of bf16 pixels with bf16 filters through the tile registers, where the input
// channels fill whole steps of 32. A task gathers its positions' channels, a part of the steps (tap
// and 32 channels) at a time, and multiplies them with all its panels: two tiles of positions
// abreast and three vectors of output channels, which the filters' panels already hold as tiles
// want them. A few such pairs take turns over a stretch of steps, whose filters stay in the
// first-level cache beside their sums, while positions stream past it from the second.
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
constexpr int kStretch = 8;     // steps
constexpr int kGroupPairs = 3;  // most pairs of tiles that take turns
constexpr int kPart = 32;       // steps: positions of so many stay in the second-level cache
constexpr int kMaxColumns = kMaxPanels * kConvColumns;
constexpr int64_t kStepBytes = int64_t{kAmxRows} * kTileBytes;
static_assert(kMaxRows % kRowsMultiple == 0 && kConvVectors == 3);

alignas(64) constexpr uint8_t kZeros[kTileBytes] = {};

struct Workspace {
  Positions<kMaxRows> positions;
  int32_t columns[kMaxRows];       // that the first tap of a line reads
  const uint8_t* lines[kMaxRows];  // pixel 0 of the image line that a row of the taps at work reads
  const uint8_t* pixels[kMaxRows];  // of the tap at work; null in the padding
  int64_t filter_rows[kPart];       // pairs of channels in front of each step, in any panel
  alignas(64) uint8_t x[kMaxRows / kAmxRows][kPart][kAmxRows][kTileBytes];
  // [panel][pair of tiles][2][vectors][16][16]: what a block needs lies together, or its stores
  // would touch more pages than the processor remembers.
  alignas(64) float sums[kMaxRows * kMaxColumns];
};

// What a few pairs of tiles of positions and the vectors of one panel multiply.
struct Group {
  const uint8_t* x;  // [pairs][2][kPart][16][64 bytes]
  int num_pairs;
  const uint8_t* filter;  // the panel
  const int64_t* filter_rows;
  int num_steps;
  float* sums;  // [pairs][2][vectors][16][16]
  bool resume;
  const uint8_t* ahead;  // where filters that are used soon stand for filter row 0
  int64_t ahead_stride;
  int first_ahead;  // lines of a step to ask for: this one,
  int lines_ahead;  // and so many at each pair
};

template <int first, int count, typename Body>
MSTAR_TILE void each(Body body) {
  if constexpr (count > 0) {
    body.template operator()<first>();
    each<first + 1, count - 1>(body);
  }
}

// Sums in 0 to 2 and 3 to 5, positions in 6, filters in 7. `change` is called with the register of
// each sum before it is added to.
template <int kVectors, typename Change>
MSTAR_TILE void multiply_step(const uint8_t* x, const uint8_t* filter, Change change) {
  constexpr int64_t kFilterStride = kVectors * 64;
  stream_tile<6>(x, kTileBytes);
  each<0, kVectors>([&]<int c>() {
    load_tile<7>(filter + c * 64, kFilterStride);
    change.template operator()<c>();
    dot_bf16_tiles<c, 6, 7>();
  });
  stream_tile<6>(x + kPart * kStepBytes, kTileBytes);
  each<0, kVectors>([&]<int index>() {
    constexpr int c = kVectors - 1 - index;  // the last filters are at hand
    if constexpr (index > 0) {
      load_tile<7>(filter + c * 64, kFilterStride);
    }
    change.template operator()<3 + c>();
    dot_bf16_tiles<3 + c, 6, 7>();
  });
}

template <int kVectors>
void run_group(const Group& group) {
  constexpr int64_t kFilterStride = kVectors * 64;
  constexpr int64_t kTileSums = kAmxRows * kLanes;
  const auto place = [](int tile) { return (tile / 3 * kVectors + tile % 3) * kTileSums; };
  float* waiting = nullptr;  // where the sums in the registers belong
  for (int first = 0; first < group.num_steps; first += kStretch) {
    const int end = first + kStretch < group.num_steps ? first + kStretch : group.num_steps;
    float* sums = group.sums;
    for (int pair = 0; pair < group.num_pairs; ++pair) {
      const uint8_t* x = group.x + (2 * pair * kPart + first) * kStepBytes;
      const bool resume = group.resume || first > 0;
      for (int step = first; step < end; ++step, x += kStepBytes) {
        const uint8_t* filter = group.filter + group.filter_rows[step] * kFilterStride;
        if (step == first && waiting != sums) {
          multiply_step<kVectors>(x, filter, [&]<int tile>() {
            // Sums change places with those of the pair before one by one.
            if (waiting != nullptr) {
              store_tile<tile>(waiting + place(tile), kTileBytes);
            }
            if (resume) {
              load_tile<tile>(sums + place(tile), kTileBytes);
            } else {
              zero_tile<tile>();
            }
          });
        } else {
          multiply_step<kVectors>(x, filter, []<int>() {});
        }
        const uint8_t* ahead = group.ahead + group.filter_rows[step] * group.ahead_stride +
                               (group.first_ahead + pair * group.lines_ahead) * 64;
        for (int line = 0; line < group.lines_ahead; ++line) {
          asm volatile("prefetcht1 %0" : : "m"(ahead[line * 64]));
        }
      }
      waiting = sums;
      sums += 2 * kVectors * kTileSums;
    }
    keep_stores_awake<7>();
  }
  each<0, kVectors>([&]<int c>() {
    store_tile<c>(waiting + place(c), kTileBytes);
    store_tile<3 + c>(waiting + place(3 + c), kTileBytes);
  });
}

constexpr void (*kRunGroup[])(const Group&) = {&run_group<1>, &run_group<2>, &run_group<3>};

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
          if (num_steps_ == kPart) {
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
    const int room = kPart - num_steps_;
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
      const int64_t panel_sums = int64_t{kRowsMultiple} * vectors * kLanes;
      if (num_steps_ == 0) {
        __builtin_memset(sums, 0, num_pairs_ * panel_sums * sizeof(float));
        sums += num_pairs_ * panel_sums;
        continue;
      }
      // Of the next panel, or what comes after this part in the first one; it may not be needed.
      const bool last = panel + 1 == task_.panel_end;
      const int next = last ? task_.panel_begin : panel + 1;
      const int64_t stride = panel_vectors(p_, next) * 64;
      const int64_t further = last ? num_steps_ * kTileDepth / 2 * stride : 0;
      Group group;
      group.filter = p_.filter.data + panel * p_.filter.panel_bytes;
      group.filter_rows = work_.filter_rows;
      group.num_steps = num_steps_;
      group.resume = resume_;
      group.ahead = p_.filter.data + next * p_.filter.panel_bytes + further;
      group.ahead_stride = stride;
      const int lines = kTileDepth / 2 * panel_vectors(p_, next);
      group.lines_ahead = (lines + num_pairs_ - 1) / num_pairs_;
      const int num_groups = (num_pairs_ + kGroupPairs - 1) / kGroupPairs;
      for (int index = 0; index < num_groups; ++index) {
        const int pair = num_pairs_ * index / num_groups;
        group.x = &work_.x[2 * pair][0][0][0];
        group.num_pairs = num_pairs_ * (index + 1) / num_groups - pair;
        group.sums = sums + pair * panel_sums;
        group.first_ahead = pair * group.lines_ahead;
        kRunGroup[vectors - 1](group);
      }
      sums += num_pairs_ * panel_sums;
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

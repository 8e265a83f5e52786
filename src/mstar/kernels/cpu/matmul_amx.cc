// bf16 weights times bf16 activations through the tile registers, for every number of rows. A
// panel is 16 features wide and k-major in pairs, which is how tiles want it, 32 k at a time. Each
// output is one chain over ascending k in steps of 32 (amx-inl.h), begun at zero, whatever the
// rows beside it and the cuts of k.
#include "mstar/kernels/cpu/amx-inl.h"
#include "mstar/kernels/cpu/matmul_epilogue-inl.h"
#include "mstar/kernels/cpu/matmul_kernels.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"

namespace mstar::amx {
namespace {

constexpr int64_t kStepBytes = 1024;  // 32 k of a panel, or of 16 rows
constexpr int64_t kTileSums = int64_t{kAmxRows} * kPanel;
// Steps of k after which the sums rest in memory: activations of a task's rows over one stretch,
// the next stretch that is on its way, and the sums share the second-level cache (2 MiB).
constexpr int64_t kStretch = 8;
constexpr int64_t kSumsAhead = 4 * kTileSums / 16 / kStretch;  // lines to ask for at each step
constexpr int64_t kFewBytes = 640 << 10;
constexpr int64_t kSingleAbreast = 6;
constexpr int64_t kPairAbreast = 2;

// Asks for lines that are used soon, a few at each call: `num_runs` runs of `run_bytes`, `stride`
// bytes apart.
struct Prefetcher {
  const uint8_t* run = nullptr;
  int64_t num_runs = 0;
  int64_t run_bytes = 0;
  int64_t stride = 0;
  int64_t offset = 0;

  MSTAR_TILE void ask(int64_t lines) {
    for (; lines > 0 && num_runs > 0; --lines) {
      asm volatile("prefetcht1 %0" : : "m"(run[offset]));  // GCC 12 loses the builtin here
      offset += 64;
      if (offset >= run_bytes) {
        offset = 0;
        run += stride;
        --num_runs;
      }
    }
  }
};

// A stretch of k for one or two tiles of rows and a few panels.
struct Block {
  const uint8_t* a[2];
  int64_t a_step[2];  // bytes from one step of k to the next
  const uint8_t* b;
  int64_t panel_bytes;
  int64_t num_steps;
  float* sums;             // [tiles of rows][panels][16][16]
  const float* next_sums;  // of the block after this one
  bool resume;
  int64_t weight_lines;  // to prefetch at each step
  int64_t x_lines;
};

struct Prefetchers {
  Prefetcher weight;  // of the next panels
  Prefetcher x;       // of the next stretch
};

template <int first, int count, typename Body>
MSTAR_TILE void each(Body body) {
  if constexpr (count > 0) {
    body.template operator()<first>();
    each<first + 1, count - 1>(body);
  }
}

// One tile of rows: sums in 0 to 5, activations in 6, weights in 7.
template <int kPanels>
void run_single(const Block& block, Prefetchers&) {
  each<0, kPanels>([&]<int c>() {
    if (block.resume) {
      load_tile<c>(block.sums + c * kTileSums, kTileBytes);
    } else {
      zero_tile<c>();
    }
  });
  const uint8_t* a = block.a[0];
  for (int64_t step = 0; step < block.num_steps; ++step, a += block.a_step[0]) {
    load_tile<6>(a, kTileBytes);
    each<0, kPanels>([&]<int c>() {
      const uint8_t* b = block.b + c * block.panel_bytes + step * kStepBytes;
      load_tile<7>(b, kTileBytes);
      dot_bf16_tiles<c, 6, 7>();
    });
  }
  each<0, kPanels>([&]<int c>() { store_tile<c>(block.sums + c * kTileSums, kTileBytes); });
}

// Two tiles of rows: sums in 0, 1 and 2, 3, activations in 4 and 5, weights in 6 and 7.
template <int kPanels>
void run_pair(const Block& block, Prefetchers& prefetchers) {
  each<0, 2 * kPanels>([&]<int index>() {
    constexpr int row = index / kPanels;
    constexpr int c = index % kPanels;
    if (block.resume) {
      load_tile<row * 2 + c>(block.sums + index * kTileSums, kTileBytes);
    } else {
      zero_tile<row * 2 + c>();
    }
  });
  const uint8_t* a0 = block.a[0];
  const uint8_t* a1 = block.a[1];
  const uint8_t* b = block.b;
  const float* next_sums = block.next_sums;
  for (int64_t step = 0; step < block.num_steps; ++step) {
    load_tile<6>(b, kTileBytes);
    load_tile<4>(a0, kTileBytes);
    dot_bf16_tiles<0, 4, 6>();
    load_tile<5>(a1, kTileBytes);
    dot_bf16_tiles<2, 5, 6>();
    if constexpr (kPanels == 2) {
      load_tile<7>(b + block.panel_bytes, kTileBytes);
      dot_bf16_tiles<1, 4, 7>();
      dot_bf16_tiles<3, 5, 7>();
    }
#pragma GCC unroll 8
    for (int64_t line = 0; line < kSumsAhead; ++line, next_sums += 16) {
      asm volatile("prefetcht0 %0" : : "m"(*next_sums));
    }
    prefetchers.weight.ask(block.weight_lines);
    prefetchers.x.ask(block.x_lines);
    a0 += block.a_step[0];
    a1 += block.a_step[1];
    b += kStepBytes;
  }
  each<0, 2 * kPanels>([&]<int index>() {
    constexpr int row = index / kPanels;
    constexpr int c = index % kPanels;
    store_tile<row * 2 + c>(block.sums + index * kTileSums, kTileBytes);
  });
}

using BlockFunction = void (*)(const Block&, Prefetchers&);

constexpr BlockFunction kSingle[] = {&run_single<1>,
                                     &run_single<2>,
                                     &run_single<3>,
                                     &run_single<4>,
                                     &run_single<5>,
                                     &run_single<6>};
constexpr BlockFunction kPair[] = {&run_pair<1>, &run_pair<2>};

int rows_of(const MatmulProblem& p, int64_t tile) {
  const int64_t left = p.m - tile * kAmxRows;
  return static_cast<int>(left < kAmxRows ? left : kAmxRows);
}

// Packed activations lie stretch by stretch, in it tile by tile, so that what is used at a time is
// contiguous: rows a power of two apart would meet in the same sets of the cache.
struct PackedTiles {
  int64_t m;
  int64_t num_steps;  // of k

  int64_t steps_at(int64_t stretch) const {
    const int64_t left = num_steps - stretch * kStretch;
    return left < kStretch ? left : kStretch;
  }

  int64_t offset(int64_t stretch, int64_t tile) const {
    return (stretch * kStretch * m + tile * kAmxRows * steps_at(stretch)) * kTileBytes;
  }
};

// Tiles of a range in pairs; an odd last one alone.
class Runner {
 public:
  Runner(const MatmulProblem& p, const MatmulRange& range)
      : p_(p),
        range_(range),
        x_{p.m, p.weight.k_padded / kTileDepth},
        num_tiles_(range.tile_end - range.tile_begin),
        num_rows_((num_tiles_ - 1) * kAmxRows + rows_of(p, range.tile_end - 1)),
        few_rows_(num_rows_ * x_.num_steps * kTileBytes <= kFewBytes),
        abreast_(num_tiles_ == 1 ? kSingleAbreast : kPairAbreast) {}

  void run() {
    if (few_rows_) {
      for (int64_t panel = range_.panel_begin; panel < range_.panel_end; panel += abreast_) {
        for (int64_t step = 0; step == 0 || step < x_.num_steps; step += kStretch) {
          run_panels(step / kStretch, panel);
        }
      }
    } else {
      for (int64_t step = 0; step == 0 || step < x_.num_steps; step += kStretch) {
        prefetchers_.x = ahead(step / kStretch);
        for (int64_t panel = range_.panel_begin; panel < range_.panel_end; panel += abreast_) {
          run_panels(step / kStretch, panel);
        }
      }
    }
    release_tiles();
    finish();
  }

 private:
  int64_t width_at(int64_t panel) const {
    const int64_t left = range_.panel_end - panel;
    return left < abreast_ ? left : abreast_;
  }

  const uint8_t* weight_at(int64_t panel, int64_t stretch) const {
    return p_.weight.data + panel * p_.weight.panel_bytes + stretch * kStretch * kStepBytes;
  }

  // The activations of the stretch after this one.
  Prefetcher ahead(int64_t stretch) const {
    if ((stretch + 1) * kStretch >= x_.num_steps) {
      return {};
    }
    const auto* x = static_cast<const uint8_t*>(p_.x);
    return {x + x_.offset(stretch + 1, range_.tile_begin),
            1,
            num_rows_ * x_.steps_at(stretch + 1) * kTileBytes};
  }

  // The weights that come after these panels of the stretch.
  Prefetcher ahead(int64_t stretch, int64_t panel) const {
    if (few_rows_) {
      ++stretch;
      if (stretch * kStretch >= x_.num_steps) {
        stretch = 0;
        panel += width_at(panel);
      }
    } else {
      panel += width_at(panel);
      if (panel == range_.panel_end) {
        panel = range_.panel_begin;
        ++stretch;
      }
    }
    if (panel == range_.panel_end || stretch * kStretch >= x_.num_steps) {
      return {};
    }
    return {weight_at(panel, stretch),
            width_at(panel),
            x_.steps_at(stretch) * kStepBytes,
            p_.weight.panel_bytes};
  }

  void run_panels(int64_t stretch, int64_t panel) {
    const int64_t width = width_at(panel);
    const int64_t num_steps = x_.steps_at(stretch);
    const int64_t steps = (num_tiles_ + 1) / 2 * (num_steps > 0 ? num_steps : 1);
    Block block;
    block.b = weight_at(panel, stretch);
    block.panel_bytes = p_.weight.panel_bytes;
    block.num_steps = num_steps;
    block.resume = stretch > 0;
    block.weight_lines = 0;
    block.x_lines = 0;
    if (num_tiles_ > 2) {
      prefetchers_.weight = ahead(stretch, panel);
      block.weight_lines = width * num_steps * kStepBytes / 64 / steps + 1;
      const int64_t visits = (range_.panel_end - range_.panel_begin + abreast_ - 1) / abreast_;
      block.x_lines = num_rows_ * num_steps / (steps * visits) + 1;
    }
    for (int64_t tile = range_.tile_begin; tile < range_.tile_end; tile += 2) {
      const int num_rows[2] = {rows_of(p_, tile),
                               tile + 1 < range_.tile_end ? rows_of(p_, tile + 1) : 0};
      configure(num_rows[0], num_rows[1]);
      for (int64_t i = 0; i < 2; ++i) {
        block.a[i] = static_cast<const uint8_t*>(p_.x) + x_.offset(stretch, tile + i);
        block.a_step[i] = int64_t{num_rows[i]} * kTileBytes;
      }
      block.sums = sums_at(tile, panel);
      block.next_sums = tile + 2 < range_.tile_end ? sums_at(tile + 2, panel) : block.sums;
      (num_rows[1] > 0 ? kPair : kSingle)[width - 1](block, prefetchers_);
    }
  }

  // Of the block whose first tile and panel these are: what a block needs lies together, or its
  // stores would touch more pages than the processor remembers.
  float* sums_at(int64_t tile, int64_t panel) {
    const int64_t num_panels = range_.panel_end - range_.panel_begin;
    const int64_t tiles = tile + 1 < range_.tile_end ? 2 : 1;
    return sums_ +
           ((tile - range_.tile_begin) * num_panels + (panel - range_.panel_begin) * tiles) *
               kTileSums;
  }

  void finish() {
    for (int64_t tile = range_.tile_begin; tile < range_.tile_end; tile += 2) {
      const int64_t tiles = tile + 1 < range_.tile_end ? 2 : 1;
      for (int64_t panel = range_.panel_begin; panel < range_.panel_end; panel += abreast_) {
        const int64_t width = width_at(panel);
        const float* sums = sums_at(tile, panel);
        for (int64_t index = 0; index < tiles * width; ++index, sums += kTileSums) {
          const int64_t row = tile + index / width;
          finish_rows(p_,
                      row * kAmxRows,
                      rows_of(p_, row),
                      (panel + index % width) * kPanel,
                      kPanel,
                      sums,
                      kPanel);
        }
      }
    }
  }

  // A configuration also zeroes the registers, and takes as long as ten products: only on change.
  void configure(int rows0, int rows1) {
    if (rows0 == rows_[0] && rows1 == rows_[1]) {
      return;
    }
    rows_[0] = rows0;
    rows_[1] = rows1;
    TileShapes shapes;
    if (rows1 == 0) {
      for (int tile = 0; tile < 7; ++tile) {
        shapes.set(tile, rows0);
      }
    } else {
      for (const int tile : {0, 1, 4}) {
        shapes.set(tile, rows0);
      }
      for (const int tile : {2, 3, 5}) {
        shapes.set(tile, rows1);
      }
      shapes.set(6, kAmxRows);
    }
    shapes.set(7, kAmxRows);
    configure_tiles(shapes);
  }

  const MatmulProblem& p_;
  const MatmulRange& range_;
  PackedTiles x_;
  int64_t num_tiles_;
  int64_t num_rows_;
  bool few_rows_;  // their activations stay in the cache, and weights are read front to back
  int64_t abreast_;
  Prefetchers prefetchers_;
  int rows_[2] = {0, 0};  // of the configuration
  alignas(64) float sums_[kTilesScratchFloats];
};

void run(const MatmulProblem& problem, const MatmulRange& range) {
  if (problem.x_form != PackedX::kBF16Tiles) {
    avx512_bf16::matmul_kernel_table.run(problem, range);
    return;
  }
  Runner runner(problem, range);
  runner.run();
}

int64_t panel_step(DType dtype, PackedX form, int64_t m) {
  if (form != PackedX::kBF16Tiles) {
    return avx512_bf16::matmul_kernel_table.panel_step(dtype, form, m);
  }
  return m <= kAmxRows ? kSingleAbreast : kPairAbreast;
}

void pack_rows(const PackRowsParams& p, int64_t tile_begin, int64_t tile_end) {
  if (p.form != PackedX::kBF16Tiles) {
    avx512_bf16::matmul_pack_rows(p, tile_begin, tile_end);
    return;
  }
  const PackedTiles tiles{p.m, p.k_padded / kTileDepth};
  const int64_t whole = p.k / kTileDepth;
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t first = tile * kAmxRows;
    const int64_t rows = p.m - first < kAmxRows ? p.m - first : kAmxRows;
    for (int64_t row = 0; row < rows; ++row) {
      const uint16_t* x = static_cast<const uint16_t*>(p.x) + (first + row) * p.x_stride;
      for (int64_t step = 0; step < tiles.num_steps; ++step) {
        uint8_t* to = static_cast<uint8_t*>(p.out) + tiles.offset(step / kStretch, tile) +
                      (step % kStretch * rows + row) * kTileBytes;
        if (step < whole) {
          __builtin_memcpy(to, x + step * kTileDepth, kTileBytes);
          continue;
        }
        uint16_t last[kTileDepth] = {};
        for (int64_t lane = 0; lane < p.k - step * kTileDepth; ++lane) {
          last[lane] = x[step * kTileDepth + lane];
        }
        __builtin_memcpy(to, last, kTileBytes);
      }
    }
  }
}

void decode(const WeightPanels& weight, int64_t panel, float* out) {
  avx512_bf16::matmul_kernel_table.decode(weight, panel, out);
}

}  // namespace

// kTileRows, of the other forms, is that of AVX-512.
extern const MatmulKernels matmul_kernel_table{kTileRows,
                                               kPanel,
                                               PackedX::kBF16Tiles,
                                               kMatmulScratchFloats,
                                               &panel_step,
                                               &pack_rows,
                                               &run,
                                               &decode};

}  // namespace mstar::amx

// bf16 or int8 weights times bf16 activations through the tile registers, in the order of k that
// the vectors of matmul_few_amx-inl.h keep for one to four rows.
// A panel of bf16 is 16 features wide and k-major in pairs, which is how tiles want it, 32 k at a
// time; panels of int8 become such before all rows of a task meet them. Each
// output is one chain over ascending k in steps of 32 (amx-inl.h), begun at zero, whatever the
// rows beside it and the cuts of k.
#include "mstar/kernels/cpu/amx-inl.h"
#include "mstar/kernels/cpu/amx_int8-inl.h"
#include "mstar/kernels/cpu/matmul_epilogue-inl.h"
#include "mstar/kernels/cpu/matmul_few_amx-inl.h"
#include "mstar/kernels/cpu/matmul_int8_amx.h"
#include "mstar/kernels/cpu/matmul_kernels.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"

namespace mstar::amx {
namespace {

constexpr int64_t kStepBytes = 1024;  // 32 k of a panel, or of 16 rows
constexpr int64_t kTileSums = int64_t{kAmxRows} * kPanel;
// Steps of k that the tiles of a group take in turn. The weights of two panels over one stretch and
// the group's sums stay in the first-level cache; activations come from the second, past the first.
constexpr int64_t kStretch = 8;
constexpr int64_t kGroupPairs = 5;  // most pairs of tiles of rows
constexpr int64_t kWaitingPairs = 2;
// Activations of a task that are used together: the second-level cache (2 MiB) holds them beside
// the weights of two panels. Longer k is taken in parts, between which the sums rest in memory.
constexpr int64_t kXBytes = 1280 << 10;
constexpr int64_t kScratchFloats = int64_t{384} * 384;
// Outputs of so many bytes leave the caches anyway before they are read.
constexpr int64_t kOutBytes = 2 << 20;
// Lines of weights to ask for at a step: more would keep the tiles' loads waiting.
constexpr int64_t kMostLines = 4;
// Weights that fewer rows meet than the memory takes to bring them are asked for so far ahead.
constexpr int64_t kBytesAhead = 2048;
constexpr int64_t kSingleAbreast = 6;
constexpr int64_t kInt8SingleAbreast = 4;
constexpr int64_t kDecodedSteps = 64;  // of int8 weights, at most
constexpr int64_t kPairAbreast = 2;

template <int first, int count, typename Body>
MSTAR_TILE void each(Body body) {
  if constexpr (count > 0) {
    body.template operator()<first>();
    each<first + 1, count - 1>(body);
  }
}

int rows_of(const MatmulProblem& p, int64_t tile) {
  const int64_t left = p.m - tile * kAmxRows;
  return static_cast<int>(left < kAmxRows ? left : kAmxRows);
}

// Packed activations lie pair by pair, in a pair stretch by stretch, in it tile by tile. What is
// used at a time is contiguous, and what a task uses together too: rows or stretches a power of two
// apart would meet in the same sets of a cache.
struct PackedTiles {
  int64_t m;
  int64_t num_steps;  // of k

  int64_t num_stretches() const { return (num_steps + kStretch - 1) / kStretch; }

  int64_t steps_at(int64_t stretch) const {
    const int64_t left = num_steps - stretch * kStretch;
    return left < kStretch ? left : kStretch;
  }

  int64_t offset(int64_t stretch, int64_t tile) const {
    const int64_t first = tile / 2 * 2 * kAmxRows;  // row of the pair
    const int64_t rows = m - first < 2 * kAmxRows ? m - first : 2 * kAmxRows;
    const int64_t steps = first * num_steps + rows * stretch * kStretch;
    return (steps + tile % 2 * kAmxRows * steps_at(stretch)) * kTileBytes;
  }

  // From a whole pair to the next.
  int64_t pair_bytes() const { return 2 * kAmxRows * num_steps * kTileBytes; }
};

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

// The upper halves of the lanes, rounded as store_bf16 does; the lower halves are left over.
MSTAR_INLINE __m512i round_upper(F v) {
  const U bits = as_words(v);
  const U up = bits + 0x7fffU + ((bits >> 16) & 1U);
  const F rounded = select(v != v, as_float(bits | 0x400000U), as_float(up));
  return reinterpret_cast<__m512i>(rounded);
}

// Odd 16-bit halves of two registers.
alignas(64) constexpr uint16_t kUpperHalves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                   23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                   45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

// What finish_rows does for a row of two whole panels with bf16 outputs, in a fraction of the
// instructions: they share the machine with the products.
MSTAR_INLINE void finish_two_panels(const MatmulProblem& p,
                                    int64_t row,
                                    int64_t column,
                                    bool past_caches,
                                    const float* sums) {
  F v[2] = {load(sums), load(sums + kTileSums)};
  if (p.alpha != 1.0F) {
    v[0] = v[0] * splat(p.alpha);
    v[1] = v[1] * splat(p.alpha);
  }
  if (p.bias != nullptr) {
    v[0] = v[0] + load_some(p.bias, p.bias_is_bf16, column, kPanel);
    v[1] = v[1] + load_some(p.bias, p.bias_is_bf16, column + kPanel, kPanel);
  }
  if (p.activation != Activation::kNone) {
    v[0] = activated(v[0], p.activation);
    v[1] = activated(v[1], p.activation);
  }
  if (p.residual != nullptr) {
    const int64_t index = row * p.residual_stride + column;
    v[0] = v[0] + load_some(p.residual, p.residual_is_bf16, index, kPanel);
    v[1] = v[1] + load_some(p.residual, p.residual_is_bf16, index + kPanel, kPanel);
  }
  const __m512i both = _mm512_permutex2var_epi16(
      round_upper(v[0]), _mm512_load_si512(kUpperHalves), round_upper(v[1]));
  uint16_t* out = static_cast<uint16_t*>(p.out) + row * p.out_stride + column;
  if (past_caches) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out), both);
  } else {
    _mm512_storeu_si512(out, both);
  }
}

// Sums become outputs a row at a time, between the products of the tiles that come after them.
struct Finisher {
  const MatmulProblem* p = nullptr;
  const float* sums = nullptr;  // [tiles][panels][16][16]
  int64_t row = 0;
  int64_t end = 0;
  int64_t column = 0;
  int64_t width = 0;   // panels
  bool whole = false;  // finish_two_panels serves
  bool past_caches = false;

  MSTAR_TILE void finish(int64_t rows) {
    for (; rows > 0 && row < end; --rows) {
      if (whole) {
        finish_two_panels(*p, row, column, past_caches, sums);
      } else {
        for (int64_t c = 0; c < width; ++c) {
          finish_rows(*p, row, 1, column + c * kPanel, kPanel, sums + c * kTileSums, kPanel);
        }
      }
      sums += ++row % kAmxRows == 0 ? width * kTileSums - (kAmxRows - 1) * kPanel : kPanel;
    }
  }
};

// Asks for the outputs of the products at work. A store that waits for its line keeps those of the
// tiles behind it waiting too.
struct OutputPrefetcher {
  const uint8_t* row = nullptr;
  int64_t num_rows = 0;
  int64_t stride = 0;
  int64_t bytes = 0;

  MSTAR_TILE void ask(int64_t rows) {
    for (; rows > 0 && num_rows > 0; --rows, --num_rows, row += stride) {
      for (int64_t offset = 0; offset < bytes; offset += 64) {
        asm volatile("prefetchw %0" : : "m"(row[offset]));
      }
    }
  }
};

// What is done beside the products.
struct Side {
  Finisher finisher;
  OutputPrefetcher outputs;
  Prefetcher weight;
  int64_t rows = 0;   // to finish, and to ask for, at each step
  int64_t lines = 0;  // of weights to ask for at each step

  MSTAR_TILE void step() {
    finisher.finish(rows);
    outputs.ask(rows);
    weight.ask(lines);
  }
};

// Tiles of rows from `x` on times a few panels, over the stretches [begin, end).
struct Product {
  PackedTiles tiles;
  const uint8_t* x;  // packed
  int64_t tile;      // even
  int64_t num_pairs;
  int num_rows[2];        // of the only pair, where it is not whole; 0: no second tile
  const uint8_t* weight;  // from stretch `begin` on
  int64_t panel_bytes;
  int64_t begin;
  int64_t end;
  float* sums;       // [pairs][2][panels][16][16]
  bool resume;       // the sums go on
  bool from_memory;  // the weights, which nothing else asked for

  const uint8_t* x_at(int64_t stretch, int64_t index) const {
    return x + tiles.offset(stretch, tile + index);
  }

  const uint8_t* weight_at(int64_t stretch) const {
    return weight + (stretch - begin) * kStretch * kStepBytes;
  }
};

template <int tile>
MSTAR_TILE void begin_sums(const float* sums, bool resume) {
  if (resume) {
    load_tile<tile>(sums, kTileBytes);
  } else {
    zero_tile<tile>();
  }
}

// Asks for the weights of a step: loads of tiles keep too few lines on their way.
MSTAR_TILE void prefetch_step(const uint8_t* weight) {
#pragma GCC unroll 16
  for (int64_t offset = 0; offset < kStepBytes; offset += 64) {
    asm volatile("prefetcht0 %0" : : "m"(weight[offset]));
  }
}

// One tile of rows, all k in one go: sums in 0 to 5, activations in 6, weights in 7.
template <int kPanels>
void run_single(const Product& product, Side&) {
  each<0, kPanels>([&]<int c>() { begin_sums<c>(product.sums + c * kTileSums, product.resume); });
  for (int64_t stretch = product.begin; stretch < product.end; ++stretch) {
    const uint8_t* a = product.x_at(stretch, 0);
    const uint8_t* b = product.weight_at(stretch);
    for (int64_t step = product.tiles.steps_at(stretch); step > 0; --step) {
      load_tile<6>(a, kTileBytes);
      each<0, kPanels>([&]<int c>() {
        if (product.from_memory) {
          prefetch_step(b + c * product.panel_bytes + kBytesAhead);
        }
        load_tile<7>(b + c * product.panel_bytes, kTileBytes);
        dot_bf16_tiles<c, 6, 7>();
      });
      a += int64_t{product.num_rows[0]} * kTileBytes;
      b += kStepBytes;
    }
    keep_stores_awake<7>();
  }
  each<0, kPanels>([&]<int c>() { store_tile<c>(product.sums + c * kTileSums, kTileBytes); });
}

// A step of two tiles of rows: sums in 0, 1 and 2, 3, activations in 4 and 5, weights in 6 and 7.
// `change` is called with the register and the number of each sum before it is added to.
template <int kPanels, typename Change>
MSTAR_TILE void step_pair(const uint8_t* a0,
                          const uint8_t* a1,
                          const uint8_t* b,
                          int64_t panel_bytes,
                          Change change) {
  load_tile<6>(b, kTileBytes);
  if constexpr (kPanels == 2) {
    load_tile<7>(b + panel_bytes, kTileBytes);
  }
  stream_tile<4>(a0, kTileBytes);
  change.template operator()<0, 0>();
  dot_bf16_tiles<0, 4, 6>();
  if constexpr (kPanels == 2) {
    change.template operator()<1, 1>();
    dot_bf16_tiles<1, 4, 7>();
  }
  stream_tile<5>(a1, kTileBytes);
  change.template operator()<2, kPanels>();
  dot_bf16_tiles<2, 5, 6>();
  if constexpr (kPanels == 2) {
    change.template operator()<3, 3>();
    dot_bf16_tiles<3, 5, 7>();
  }
}

constexpr auto kNoChange = []<int, int>() {};

template <int kPanels>
MSTAR_TILE void store_pair(float* sums) {
  each<0, 2 * kPanels>([&]<int index>() {
    store_tile<index / kPanels * 2 + index % kPanels>(sums + index * kTileSums, kTileBytes);
  });
}

// The only two tiles of rows: all k in one go.
template <int kPanels>
void run_pair(const Product& product, Side& side) {
  each<0, 2 * kPanels>([&]<int index>() {
    begin_sums<index / kPanels * 2 + index % kPanels>(product.sums + index * kTileSums,
                                                      product.resume);
  });
  for (int64_t stretch = product.begin; stretch < product.end; ++stretch) {
    const uint8_t* a0 = product.x_at(stretch, 0);
    const uint8_t* a1 = product.x_at(stretch, 1);
    const uint8_t* b = product.weight_at(stretch);
    for (int64_t step = product.tiles.steps_at(stretch); step > 0; --step) {
      if (product.from_memory) {
        each<0, kPanels>(
            [&]<int c>() { prefetch_step(b + c * product.panel_bytes + kBytesAhead); });
      }
      step_pair<kPanels>(a0, a1, b, product.panel_bytes, kNoChange);
      side.step();
      a0 += int64_t{product.num_rows[0]} * kTileBytes;
      a1 += int64_t{product.num_rows[1]} * kTileBytes;
      b += kStepBytes;
    }
    keep_stores_awake<6>();
  }
  store_pair<kPanels>(product.sums);
}

// Several pairs of whole tiles, in turn over each stretch. Sums change places with those of the
// pair before one by one, each just before it is needed: four stores at once would stop the loads
// behind them.
template <int kPanels>
void run_group(const Product& product, Side& side) {
  float* waiting = nullptr;  // where the sums in the registers belong
  for (int64_t stretch = product.begin; stretch < product.end; ++stretch) {
    const bool resume = product.resume || stretch > product.begin;
    const int64_t tile_bytes = product.tiles.steps_at(stretch) * kStepBytes;
    const uint8_t* first = product.x_at(stretch, 0);
    float* sums = product.sums;
    for (int64_t pair = 0; pair < product.num_pairs; ++pair) {
      const uint8_t* a = first + pair * product.tiles.pair_bytes();
      const uint8_t* b = product.weight_at(stretch);
      step_pair<kPanels>(a, a + tile_bytes, b, product.panel_bytes, [&]<int tile, int index>() {
        if (waiting != nullptr) {
          store_tile<tile>(waiting + index * kTileSums, kTileBytes);
        }
        begin_sums<tile>(sums + index * kTileSums, resume);
      });
      side.step();
      const uint8_t* end = a + tile_bytes;
      for (a += kStepBytes, b += kStepBytes; a < end; a += kStepBytes, b += kStepBytes) {
        step_pair<kPanels>(a, a + tile_bytes, b, product.panel_bytes, kNoChange);
        side.step();
      }
      waiting = sums;
      sums += 2 * kPanels * kTileSums;
    }
  }
  store_pair<kPanels>(waiting);
}

using ProductFunction = void (*)(const Product&, Side&);

constexpr ProductFunction kSingle[] = {&run_single<1>,
                                       &run_single<2>,
                                       &run_single<3>,
                                       &run_single<4>,
                                       &run_single<5>,
                                       &run_single<6>};
constexpr ProductFunction kPair[] = {&run_pair<1>, &run_pair<2>};
constexpr ProductFunction kGroup[] = {&run_group<1>, &run_group<2>};

// Groups of whole pairs of tiles, then a last pair or a single tile that is not whole.
class Runner {
 public:
  Runner(const MatmulProblem& p, const MatmulRange& range)
      : p_(p),
        range_(range),
        tiles_{p.m, p.weight.k_padded / kTileDepth},
        num_tiles_(range.tile_end - range.tile_begin),
        num_pairs_((num_tiles_ - (rows_of(p, range.tile_end - 1) < kAmxRows ? 1 : 0)) / 2),
        abreast_(num_tiles_ == 1 ? kSingleAbreast : kPairAbreast) {
    const auto out = reinterpret_cast<uintptr_t>(p.out);
    past_caches_ = p.out_is_bf16 && 2 * p.m * p.weight.n >= kOutBytes && out % 64 == 0 &&
                   p.out_stride % 32 == 0;
    const int64_t stretches = tiles_.num_stretches();
    const int64_t bytes = num_tiles_ * kStretch * kStepBytes;  // of a stretch
    const int64_t most = kXBytes / bytes;
    const int64_t parts = most < 1 ? stretches : (stretches + most - 1) / most;
    stretches_ = parts < 1 ? 1 : (stretches + parts - 1) / parts;
    if (is_int8()) {
      plan_decoding();
    }
  }

  void run() {
    // As many panels as have room for their sums where k is taken in parts.
    const int64_t room = kScratchFloats / (padded_rows() * kPanel) / abreast_ * abreast_;
    const int64_t all = range_.panel_end;
    for (; range_.panel_begin < all; range_.panel_begin = range_.panel_end) {
      if (in_parts() && range_.panel_begin + room < all) {
        range_.panel_end = range_.panel_begin + room;
      } else {
        range_.panel_end = all;
      }
      for (int64_t begin = 0; begin == 0 || begin < tiles_.num_stretches(); begin += stretches_) {
        for (int64_t panel = range_.panel_begin; panel < range_.panel_end; panel += abreast_) {
          run_panels(panel, begin, part_end(begin));
        }
      }
      // Before the sums make room for the next ones.
      side_.finisher.finish(side_.finisher.end);
    }
    release_tiles();
    _mm_sfence();  // outputs may have gone past the caches
  }

 private:
  // Two pairs wait for memory alone: sums that change places gain them nothing.
  bool waits_for_weights() const { return num_pairs_ <= kWaitingPairs && !is_int8(); }

  int64_t num_groups_of_pairs() const {
    return waits_for_weights() ? num_pairs_ : (num_pairs_ + kGroupPairs - 1) / kGroupPairs;
  }

  // Rows of one group meet the weights just decoded, in the first-level cache; several groups come
  // back to them.
  void plan_decoding() {
    constexpr int64_t kMost = kDecodedSteps / kStretch;
    if (num_groups_of_pairs() + (2 * num_pairs_ < num_tiles_ ? 1 : 0) == 1) {
      abreast_ = num_tiles_ == 1 ? kInt8SingleAbreast : abreast_;
      decoded_stretches_ = kInt8SingleAbreast / abreast_;
      return;
    }
    stretches_ = stretches_ < kMost ? stretches_ : kMost;
    decoded_stretches_ = stretches_;
  }

  bool is_int8() const { return p_.weight.dtype == DType::kI8; }

  int64_t stored_step_bytes() const { return is_int8() ? kStepBytes / 2 : kStepBytes; }

  const uint8_t* stored_at(int64_t panel, int64_t stretch) const {
    return p_.weight.data + panel * p_.weight.panel_bytes +
           stretch * kStretch * stored_step_bytes();
  }

  int64_t padded_rows() const { return (num_tiles_ + 1) / 2 * 2 * kAmxRows; }

  bool in_parts() const { return stretches_ < tiles_.num_stretches(); }

  int64_t part_end(int64_t begin) const {
    const int64_t end = begin + stretches_;
    return end < tiles_.num_stretches() ? end : tiles_.num_stretches();
  }

  int64_t num_steps(int64_t begin, int64_t end) const {
    const int64_t last = end * kStretch < tiles_.num_steps ? end * kStretch : tiles_.num_steps;
    return last - begin * kStretch;
  }

  int64_t width_at(int64_t panel) const {
    const int64_t left = range_.panel_end - panel;
    return left < abreast_ ? left : abreast_;
  }

  void run_panels(int64_t panel, int64_t begin, int64_t end) {
    if (!is_int8()) {
      run_rows(panel, begin, end, stored_at(panel, begin), p_.weight.panel_bytes);
      return;
    }
    constexpr int64_t kPanelBytes = kDecodedSteps * kStepBytes;
    do {
      const int64_t stop = begin + decoded_stretches_ < end ? begin + decoded_stretches_ : end;
      for (int64_t c = 0; c < width_at(panel); ++c) {
        int8_to_tiles(
            stored_at(panel + c, begin), num_steps(begin, stop), decoded_ + c * kPanelBytes);
      }
      run_rows(panel, begin, stop, decoded_, kPanelBytes);
      begin = stop;
    } while (begin < end);
  }

  // All rows times a few panels, which are `weight` from stretch `begin` on.
  void run_rows(int64_t panel,
                int64_t begin,
                int64_t end,
                const uint8_t* weight,
                int64_t panel_bytes) {
    Product product;
    product.tiles = tiles_;
    product.x = static_cast<const uint8_t*>(p_.x);
    product.weight = weight;
    product.panel_bytes = panel_bytes;
    product.begin = begin;
    product.end = end;
    product.resume = begin > 0;
    product.from_memory = waits_for_weights();
    if (num_pairs_ > 1 && !product.from_memory) {
      side_.weight = ahead(panel, begin, end);
      const int64_t lines = (kStepBytes / 64 * width_at(panel) + num_pairs_ - 1) / num_pairs_;
      side_.lines = lines < kMostLines ? lines : kMostLines;
    }
    const int64_t num_groups = num_groups_of_pairs();
    for (int64_t group = 0; group < num_groups; ++group) {
      const int64_t pair = num_pairs_ * group / num_groups;
      product.tile = range_.tile_begin + 2 * pair;
      product.num_pairs = num_pairs_ * (group + 1) / num_groups - pair;
      product.num_rows[0] = product.num_rows[1] = kAmxRows;
      multiply(product, panel, product.num_pairs > 1 ? kGroup : kPair);
      product.from_memory = false;  // any more
    }
    if (2 * num_pairs_ < num_tiles_) {
      product.tile = range_.tile_begin + 2 * num_pairs_;
      product.num_pairs = 1;
      product.num_rows[0] = rows_of(p_, product.tile);
      product.num_rows[1] = product.tile + 1 < range_.tile_end ? rows_of(p_, product.tile + 1) : 0;
      if (product.num_rows[1] > 0) {
        multiply(product, panel, kPair);
        return;
      }
      multiply(product, panel, kSingle);
    }
  }

  void multiply(Product& product, int64_t panel, const ProductFunction* functions) {
    const int64_t width = width_at(panel);
    product.sums = sums_at(product.tile, panel);
    if (product.begin == product.end) {
      __builtin_memset(product.sums, 0, 2 * product.num_pairs * width * kTileSums * sizeof(float));
    } else {
      configure(product.num_rows[0], product.num_rows[1]);
      const int64_t steps = num_steps(product.begin, product.end);
      const int64_t left = side_.finisher.end - side_.finisher.row;
      const int64_t all_steps = steps * product.num_pairs;
      const int64_t rows = product.num_rows[0] + (product.num_pairs * 2 - 1) * product.num_rows[1];
      side_.rows = ((left > rows ? left : rows) + all_steps - 1) / all_steps;
      if (product.end == tiles_.num_stretches() && !past_caches_) {
        const int64_t bytes = p_.out_is_bf16 ? 2 : 4;
        side_.outputs = {static_cast<const uint8_t*>(p_.out) +
                             (product.tile * kAmxRows * p_.out_stride + panel * kPanel) * bytes,
                         rows,
                         p_.out_stride * bytes,
                         width * kPanel * bytes};
      }
      functions[width - 1](product, side_);
    }
    side_.finisher.finish(side_.finisher.end);  // where the products were too few
    if (product.end == tiles_.num_stretches()) {
      const int64_t tiles = product.num_rows[1] > 0 ? 2 * product.num_pairs : 1;
      const int64_t row = product.tile * kAmxRows;
      const int64_t end = row + tiles * kAmxRows;
      const bool whole = width == 2 && p_.out_is_bf16 && p_.weight.row_scales == nullptr &&
                         (panel + 2) * kPanel <= p_.weight.n;
      side_.finisher = {&p_,
                        product.sums,
                        row,
                        end < p_.m ? end : p_.m,
                        panel * kPanel,
                        width,
                        whole,
                        past_caches_};
      turn_ = !turn_;
    }
  }

  // The weights that come after these panels.
  Prefetcher ahead(int64_t panel, int64_t begin, int64_t end) const {
    panel += width_at(panel);
    if (panel == range_.panel_end) {
      panel = range_.panel_begin;
      begin = end;
      end = part_end(begin);
    }
    if (begin == end) {
      return {};
    }
    return {stored_at(panel, begin),
            width_at(panel),
            num_steps(begin, end) * stored_step_bytes(),
            p_.weight.panel_bytes};
  }

  // Of the group whose first tile and panel these are. Where no k is left for later, the next group
  // uses the same place.
  float* sums_at(int64_t tile, int64_t panel) {
    if (!in_parts()) {
      return sums_ + (turn_ ? 4 * kGroupPairs * kTileSums : 0);
    }
    return sums_ + (panel - range_.panel_begin) * kPanel * padded_rows() +
           (tile - range_.tile_begin) * width_at(panel) * kTileSums;
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
  MatmulRange range_;
  PackedTiles tiles_;
  int64_t num_tiles_;
  int64_t num_pairs_;  // of whole tiles
  int64_t abreast_;
  int64_t stretches_;              // of k that all groups take before the next ones
  int64_t decoded_stretches_ = 0;  // int8: of k that become bf16 at a time
  bool past_caches_;               // outputs
  bool turn_ = false;
  Side side_;
  int rows_[2] = {0, 0};  // of the configuration
  alignas(64) float sums_[kScratchFloats];
  alignas(64) uint8_t decoded_[kInt8SingleAbreast * kDecodedSteps * kStepBytes];  // int8 only
};

void run(const MatmulProblem& problem, const MatmulRange& range) {
  if (is_int8_tiles(problem.x_form)) {
    run_int8(problem, range);
    return;
  }
  if (problem.x_form != PackedX::kBF16Tiles) {
    avx512_bf16::matmul_kernel_table.run(problem, range);
    return;
  }
  if (are_few_rows(problem)) {
    run_few(problem, range);
    return;
  }
  Runner runner(problem, range);
  runner.run();
}

int64_t panel_step(DType dtype, PackedX form, int64_t m) {
  if (is_int8_tiles(form)) {
    return 1;
  }
  if (form != PackedX::kBF16Tiles) {
    return avx512_bf16::matmul_kernel_table.panel_step(dtype, form, m);
  }
  if (m <= kMostFewRows) {
    return kFewAbreast[m - 1];
  }
  const int64_t single = dtype == DType::kI8 ? kInt8SingleAbreast : kSingleAbreast;
  return m <= kAmxRows ? single : kPairAbreast;
}

void pack_rows(const PackRowsParams& p, int64_t tile_begin, int64_t tile_end) {
  if (is_int8_tiles(p.form)) {
    pack_int8_rows(p, tile_begin, tile_end);
    return;
  }
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
                                               kFewestInt8TileRows,
                                               &panel_step,
                                               &pack_rows,
                                               &run,
                                               &decode};

}  // namespace mstar::amx

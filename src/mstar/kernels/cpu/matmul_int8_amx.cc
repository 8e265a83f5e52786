// Products of 16 rows of rounded activations with a panel of block-quantized weights by integer
// tiles. A block's sum is an exact integer and what follows it is what matmul_int8-inl.h does, in
// the same order, so that any number of rows has the bits of one.
//
// Codes of a stretch of k of a panel are unpacked once into the first-level cache, 8 rows of
// [16 features][4 codes] for 32 k, and meet all tiles of rows of a task. Integer sums leave the
// registers through a few buffers that take turns, so that the vectors work on one block while the
// tiles multiply the next ones.
#include "mstar/kernels/cpu/matmul_int8_amx.h"

#include "mstar/kernels/cpu/amx-inl.h"
#include "mstar/kernels/cpu/matmul_epilogue-inl.h"
#include "mstar/kernels/cpu/matmul_int8-inl.h"
#include "mstar/kernels/cpu/round_row-inl.h"

namespace mstar::amx {
namespace {

constexpr int64_t kBlock = 32;  // values of k with one scale of activations
constexpr int64_t kXBlockBytes = int64_t{kInt8BlockBytes} * kAmxRows;
constexpr int64_t kCodesAt = 8 * kAmxRows;
constexpr int64_t kStretch = 32;  // blocks
constexpr int kInFlight = 4;      // integer sums on their way through memory
constexpr int64_t kMaxTiles = kInt8TileTaskRows / kAmxRows;  // of a task
constexpr int64_t kTileSums = int64_t{kAmxRows} * kPanel;
static_assert(kPanel == 16 && kInt8TileTaskRows % kAmxRows == 0);

// A stretch of a panel.
template <DType dtype>
struct Unpacked {
  static constexpr int kPieces = Codes<dtype>::kHalves;  // of a block
  alignas(64) uint8_t codes[kStretch][8][kPanel * 4];
  alignas(64) float scales[kStretch * kPieces][kPanel];
  alignas(64) float minima[Codes<dtype>::kMinimum ? kStretch * kPieces : 1][kPanel];
};

template <DType dtype>
void unpack(const uint8_t* panel, int64_t begin, int64_t end, Unpacked<dtype>& out) {
  using C = Codes<dtype>;
  constexpr int64_t kBytes = int64_t{C::kBlockBytes} * kPanel;
  constexpr int64_t kAhead = kStretch / C::kSubs * kBytes;  // the next stretch
  for (int64_t block = begin; block < end; ++block) {
    const uint8_t* from = panel + block / C::kSubs * kBytes;
    const int sub = static_cast<int>(block % C::kSubs);
    for (int64_t line = kBytes * sub / C::kSubs; line < kBytes * (sub + 1) / C::kSubs; line += 64) {
      asm volatile("prefetcht1 %0" : : "m"(from[kAhead + line]));
    }
    const int64_t index = block - begin;
    for (int g = 0; g < 4; ++g) {
      C codes;
      codes.load_group(from, sub, g);
      __builtin_memcpy(out.codes[index][2 * g], codes.bytes, sizeof(codes.bytes));
    }
    for (int half = 0; half < C::kHalves; ++half) {
      store(out.scales[index * C::kHalves + half], C::scale(from, sub, half));
      if constexpr (C::kMinimum) {
        store(out.minima[index], C::minimum(from, sub));
      }
    }
  }
}

// A tile of rows times a stretch of a panel: sums [16][16], added to where `resume`.
template <DType dtype>
class StretchProduct {
 public:
  StretchProduct(const uint8_t* x, const Unpacked<dtype>& weight, int64_t num_blocks)
      : x_(x), weight_(weight), num_pieces_(num_blocks * kPieces) {}

  void run(float* out, bool resume) {
    F sums[kAmxRows];
#pragma GCC unroll 16
    for (int row = 0; row < kAmxRows; ++row) {
      sums[row] = resume ? load(out + row * kPanel) : splat(0.0F);
    }
    begin<0>(0);
    begin<1>(1);
    begin<2>(2);
    begin<3>(3);
    for (int64_t piece = 0; piece < num_pieces_ + 1; piece += kInFlight) {
      next<0>(piece, sums);
      next<1>(piece + 1, sums);
      next<2>(piece + 2, sums);
      next<3>(piece + 3, sums);
    }
#pragma GCC unroll 16
    for (int row = 0; row < kAmxRows; ++row) {
      store(out + row * kPanel, sums[row]);
    }
  }

 private:
  using C = Codes<dtype>;
  static constexpr int kPieces = C::kHalves;

  // Starts the integer sums of a piece.
  template <int buffer>
  MSTAR_TILE void begin(int64_t piece) {
    if (piece >= num_pieces_) {
      return;
    }
    const uint8_t* x = x_ + piece / kPieces * kXBlockBytes + kCodesAt + piece % kPieces * 16;
    const uint8_t* codes = weight_.codes[0][0] + piece * (8 / kPieces * kPanel * 4);
    zero_tile<buffer>();
    load_tile<4 + buffer % 2>(x, kBlock);
    load_tile<6 + buffer % 2>(codes, kPanel * 4);
    dot_int8_tiles<buffer, 4 + buffer % 2, 6 + buffer % 2>();
  }

  // Stores the integers of `piece`, begins those four further and adds those before to the sums.
  template <int buffer>
  MSTAR_TILE void next(int64_t piece, F (&sums)[kAmxRows]) {
    if (piece < num_pieces_) {
      store_tile<buffer>(products_[buffer], kPanel * 4);
      begin<buffer>(piece + kInFlight);
    }
    if (piece > 0 && piece <= num_pieces_) {
      add<(buffer + kInFlight - 1) % kInFlight>(piece - 1, sums);
    }
  }

  // What add_piece does behind the integers.
  template <int buffer>
  MSTAR_TILE void add(int64_t piece, F (&sums)[kAmxRows]) {
    const uint8_t* x = x_ + piece / kPieces * kXBlockBytes;
    const I both = reinterpret_cast<I>(load_words(x + 4 * kAmxRows));
    const I first = (both << 16) >> 16;
    const I second = both >> 16;
    const I totals = kPieces == 1 ? first + second : piece % kPieces == 0 ? first : second;
    alignas(64) int32_t offsets[kAmxRows];
    alignas(64) float x_totals[kAmxRows];
    const I scaled = totals * C::kOffset;
    __builtin_memcpy(offsets, &scaled, sizeof(offsets));
    if constexpr (C::kMinimum) {
      store(x_totals, load(reinterpret_cast<const float*>(x)) * __builtin_convertvector(totals, F));
    }
    asm volatile("" ::: "memory");  // broadcasts from memory are free, from registers they are not
    const F d = load(weight_.scales[piece]);
    const auto* x_scales = reinterpret_cast<const float*>(x);
#pragma GCC unroll 16
    for (int row = 0; row < kAmxRows; ++row) {
      I dot;
      __builtin_memcpy(&dot, products_[buffer][row], sizeof(dot));
      if constexpr (C::kOffset != 0) {
        dot = dot - reinterpret_cast<I>(splat_word(static_cast<uint32_t>(offsets[row])));
      }
      sums[row] = mul_add(__builtin_convertvector(dot, F), d * splat(x_scales[row]), sums[row]);
      if constexpr (C::kMinimum) {
        sums[row] = mul_add(load(weight_.minima[piece]), splat(x_totals[row]), sums[row]);
      }
    }
  }

  const uint8_t* x_;
  const Unpacked<dtype>& weight_;
  int64_t num_pieces_;
  alignas(64) int32_t products_[kInFlight][kAmxRows][kPanel];
};

template <DType dtype>
void run_format(const MatmulProblem& p, const MatmulRange& range) {
  constexpr int kHalves = Codes<dtype>::kHalves;
  TileShapes shapes;
  for (int buffer = 0; buffer < kInFlight; ++buffer) {
    shapes.set(buffer, kAmxRows);
  }
  for (int side = 0; side < 2; ++side) {
    shapes.set(4 + side, kAmxRows, kBlock / kHalves);
    shapes.set(6 + side, 8 / kHalves);
  }
  configure_tiles(shapes);
  Unpacked<dtype> weight;
  alignas(64) float sums[kMaxTiles * kTileSums];
  const int64_t num_blocks = p.weight.k_padded / kBlock;
  const int64_t tile_bytes = num_blocks * kXBlockBytes;
  for (int64_t panel = range.panel_begin; panel < range.panel_end; ++panel) {
    const uint8_t* codes = p.weight.data + panel * p.weight.panel_bytes;
    for (int64_t block = 0; block == 0 || block < num_blocks; block += kStretch) {
      const int64_t end = block + kStretch < num_blocks ? block + kStretch : num_blocks;
      unpack(codes, block, end, weight);
      for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
        const auto* x = static_cast<const uint8_t*>(p.x) + tile * tile_bytes + block * kXBlockBytes;
        StretchProduct<dtype>(x, weight, end - block)
            .run(sums + (tile - range.tile_begin) * kTileSums, block > 0);
      }
    }
    const int64_t row = range.tile_begin * kAmxRows;
    const int64_t row_end = range.tile_end * kAmxRows < p.m ? range.tile_end * kAmxRows : p.m;
    finish_rows(p, row, row_end - row, panel * kPanel, kPanel, sums, kPanel);
  }
  release_tiles();
}

template <bool kNibbles>
void pack_tile(const PackRowsParams& p, int64_t tile) {
  const int64_t first = tile * kAmxRows;
  const int64_t rows = p.m - first < kAmxRows ? p.m - first : kAmxRows;
  uint8_t* out = static_cast<uint8_t*>(p.out) + first * packed_row_bytes(p.form, p.k_padded);
  RoundedBlock block;
  for (int64_t k = 0; k < p.k_padded; k += kBlock, out += kXBlockBytes) {
    if (rows < kAmxRows) {
      __builtin_memset(out, 0, kXBlockBytes);
    }
    for (int64_t row = 0; row < rows; ++row) {
      round_row<kNibbles>(p, first + row, k, block);
      __builtin_memcpy(out + 4 * row, &block.scale, sizeof(block.scale));
      __builtin_memcpy(out + 4 * (kAmxRows + row), block.sums, sizeof(block.sums));
      __builtin_memcpy(out + kCodesAt + row * kBlock, block.codes, sizeof(block.codes));
    }
  }
}

}  // namespace

void run_int8(const MatmulProblem& p, const MatmulRange& range) {
  switch (p.weight.dtype) {
    case DType::kQ4_0: run_format<DType::kQ4_0>(p, range); break;
    case DType::kQ4_1: run_format<DType::kQ4_1>(p, range); break;
    case DType::kQ5_0: run_format<DType::kQ5_0>(p, range); break;
    case DType::kQ5_1: run_format<DType::kQ5_1>(p, range); break;
    case DType::kQ4_K: run_format<DType::kQ4_K>(p, range); break;
    case DType::kQ5_K: run_format<DType::kQ5_K>(p, range); break;
    case DType::kQ6_K: run_format<DType::kQ6_K>(p, range); break;
    default: run_format<DType::kQ8_0>(p, range); break;
  }
}

void pack_int8_rows(const PackRowsParams& p, int64_t tile_begin, int64_t tile_end) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    if (p.form == PackedX::kInt8Tiles) {
      pack_tile<false>(p, tile);
    } else {
      pack_tile<true>(p, tile);
    }
  }
}

}  // namespace mstar::amx

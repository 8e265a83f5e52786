// Activations into the tiles that the matmul kernels read.
#include "mstar/kernels/cpu/matmul_formats.h"
#include "mstar/kernels/cpu/matmul_kernels.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"
#include "mstar/kernels/cpu/round_row-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

template <int kRows>
void pack_floats_of(const PackRowsParams& p, int64_t first, float* out) {
  float values[kRows][kLanes];
  int64_t k = 0;
  for (; k + kLanes <= p.k; k += kLanes, out += kRows * kLanes) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      store(kRows == 1 ? out : values[row], row_values(p, first + row, k));
    }
#pragma GCC unroll 16
    for (int lane = 0; kRows > 1 && lane < kLanes; ++lane) {
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        out[lane * kRows + row] = values[row][lane];
      }
    }
  }
  for (; k < p.k_padded; ++k) {
    for (int row = 0; row < kRows; ++row) {
      *out++ = element(p, first + row, k);
    }
  }
}

uint32_t pair_at(const uint16_t* row, int64_t k, int64_t end) {
  const uint32_t low = k < end ? row[k] : 0U;
  const uint32_t high = k + 1 < end ? row[k + 1] : 0U;
  return low | high << 16;
}

template <int kRows>
void pack_pairs_of(const PackRowsParams& p, int64_t first, uint32_t* out) {
  const uint16_t* x[kRows];
  for (int row = 0; row < kRows; ++row) {
    x[row] = static_cast<const uint16_t*>(p.x) + (first + row) * p.x_stride;
  }
  int64_t k = 0;
  for (; k + 2 <= p.k; k += 2, out += kRows) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      __builtin_memcpy(out + row, x[row] + k, sizeof(uint32_t));
    }
  }
  for (; k < p.k_padded; k += 2, out += kRows) {
    for (int row = 0; row < kRows; ++row) {
      out[row] = pair_at(x[row], k, p.k);
    }
  }
}

template <int... rows>
void pack_floats(const PackRowsParams& p,
                 int64_t first,
                 int64_t count,
                 float* out,
                 IntList<rows...>) {
  constexpr void (*kPack[])(const PackRowsParams&, int64_t, float*) = {&pack_floats_of<rows>...};
  kPack[count - 1](p, first, out);
}

template <int... rows>
void pack_pairs(const PackRowsParams& p,
                int64_t first,
                int64_t count,
                uint32_t* out,
                IntList<rows...>) {
  constexpr void (*kPack[])(const PackRowsParams&, int64_t, uint32_t*) = {&pack_pairs_of<rows>...};
  kPack[count - 1](p, first, out);
}

template <bool kNibbles>
void pack_int8(const PackRowsParams& p, int64_t first, int64_t rows, uint8_t* out) {
  RoundedBlock block;
  for (int64_t k = 0; k < p.k_padded; k += 32, out += kInt8BlockBytes * rows) {
    for (int64_t row = 0; row < rows; ++row) {
      round_row<kNibbles>(p, first + row, k, block);
      __builtin_memcpy(out + 4 * row, &block.scale, sizeof(block.scale));
      __builtin_memcpy(out + 4 * (rows + row), block.sums, sizeof(block.sums));
      for (int64_t word = 0; word < 8; ++word) {
        __builtin_memcpy(out + 8 * rows + (word * rows + row) * 4, block.codes + 4 * word, 4);
      }
    }
  }
}

}  // namespace

void matmul_pack_rows(const PackRowsParams& p, int64_t tile_begin, int64_t tile_end) {
  const int64_t num_tiles = num_row_tiles(p.m, kTileRows);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t first = tile * p.m / num_tiles;
    const int64_t rows = (tile + 1) * p.m / num_tiles - first;
    uint8_t* out = static_cast<uint8_t*>(p.out) + first * packed_row_bytes(p.form, p.k_padded);
    switch (p.form) {
      case PackedX::kF32:
        pack_floats(p, first, rows, reinterpret_cast<float*>(out), AllRows{});
        break;
      case PackedX::kBF16Pairs:
        pack_pairs(p, first, rows, reinterpret_cast<uint32_t*>(out), AllRows{});
        break;
      case PackedX::kBF16Tiles:
      case PackedX::kInt8Tiles:
      case PackedX::kInt8NibbleTiles: break;  // matmul_amx.cc
      case PackedX::kInt8: pack_int8<false>(p, first, rows, out); break;
      case PackedX::kInt8Nibbles: pack_int8<true>(p, first, rows, out); break;
    }
  }
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE

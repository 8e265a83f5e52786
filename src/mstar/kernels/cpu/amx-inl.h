// The tile registers of AMX: a configuration while it lives, loads, stores and products. GCC's
// intrinsics tell the compiler nothing about the memory they touch, so these are written out.
// Registers are named by number; the compiler keeps nothing in them.
#pragma once

#include <cstdint>

#define MSTAR_TILE inline __attribute__((always_inline))

namespace mstar::amx {
namespace {

constexpr int kAmxRows = 16;
constexpr int kTileBytes = 64;  // of a row
constexpr int kTileDepth = 32;  // bf16 values of a row

// Tile palette 1 (Intel SDM, "TILECFG").
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int num_rows, int bytes = kTileBytes) {
    row_bytes[tile] = static_cast<uint16_t>(bytes);
    rows[tile] = static_cast<uint8_t>(num_rows);
  }
};

MSTAR_TILE void configure_tiles(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}

// Leaves nothing that the system would have to save for this thread.
MSTAR_TILE void release_tiles() {
  asm volatile("tilerelease");
}

template <int tile>
MSTAR_TILE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}

// Rows `stride` bytes apart.
template <int tile>
MSTAR_TILE void load_tile(const void* rows, int64_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(tile), "r"(rows), "r"(stride) : "memory");
}

// The same past the first-level cache, which keeps what it holds: for what comes from the second
// and is used once.
template <int tile>
MSTAR_TILE void stream_tile(const void* rows, int64_t stride) {
  asm volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" : : "i"(tile), "r"(rows), "r"(stride) : "memory");
}

template <int tile>
MSTAR_TILE void store_tile(void* rows, int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(tile), "r"(rows), "r"(stride) : "memory");
}

// Stores of tiles go to sleep where none has been made for some 2500 cycles, and then take 900 to
// wake up: loops that store rarely call this every 2000 cycles. It stores any register.
template <int tile>
MSTAR_TILE void keep_stores_awake() {
  alignas(64) uint8_t unused[16 * kTileBytes];
  store_tile<tile>(unused, kTileBytes);
}

// sum[m][n] += over pairs p: a[m][2p] b[p][2n] + a[m][2p + 1] b[p][2n + 1], all in f32: the sums of
// even and of odd terms are formed apart, then added, then added to `sum`; subnormals count as
// zero. A row's result depends on nothing in other rows.
template <int sum, int a, int b>
MSTAR_TILE void dot_bf16_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}

// sum[m][n] += over words of four: a[m][4w + i] b[w][4n + i], signed times unsigned bytes in i32.
template <int sum, int a, int b>
MSTAR_TILE void dot_int8_tiles() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}

}  // namespace
}  // namespace mstar::amx

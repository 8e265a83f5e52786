// Codes of int8 weights as tiles of bf16. A code needs eight significant bits and a bf16 has them:
// what the tiles multiply is exact, the scale of a row comes with the epilogue.
#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/amx-inl.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"

namespace mstar::amx {
namespace {

constexpr int64_t kCodesAhead = 4096;  // bytes

// Byte `byte` of each lane, a signed number, as a float's bits; the lower half of them is zero.
MSTAR_TILE U code_as_float(U codes, int byte) {
  const I alone = reinterpret_cast<I>(codes << (24 - 8 * byte)) >> 24;
  return as_words(__builtin_convertvector(alone, F));
}

MSTAR_TILE U bf16_pairs(U even, U odd) {
  return (even >> 16) | odd;
}

// Steps of 32 k of a panel: from [k / 4][16][4] bytes of code + 128 to [k / 2][16][2] bf16.
MSTAR_TILE void int8_to_tiles(const uint8_t* panel, int64_t num_steps, uint8_t* tiles) {
  for (int64_t row = 0; row < num_steps * kTileDepth / 4; ++row, panel += 64, tiles += 128) {
    asm volatile("prefetcht0 %0" : : "m"(panel[kCodesAhead]));  // GCC 12 loses the builtin here
    U codes;
    __builtin_memcpy(&codes, panel, sizeof(codes));
    codes ^= 0x80808080U;
    const U pairs[2] = {bf16_pairs(code_as_float(codes, 0), code_as_float(codes, 1)),
                        bf16_pairs(code_as_float(codes, 2), code_as_float(codes, 3))};
    __builtin_memcpy(tiles, pairs, sizeof(pairs));
  }
}

}  // namespace
}  // namespace mstar::amx

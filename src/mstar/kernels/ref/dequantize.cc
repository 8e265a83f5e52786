#include "mstar/kernels/ref/dequantize.h"

#include <algorithm>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/tensor/float16.h"

namespace mstar {

namespace {

// Formats: github.com/ggml-org/ggml, ggml-common.h and the file format's documentation. All are
// little-endian, scales are f16.

uint8_t at(const std::byte* bytes, int index) {
  return static_cast<uint8_t>(bytes[index]);
}

float half_at(const std::byte* bytes, int index) {
  return to_float(float16{
      static_cast<uint16_t>(at(bytes, index) | static_cast<unsigned>(at(bytes, index + 1)) << 8)});
}

uint32_t word_at(const std::byte* bytes, int index) {
  uint32_t word = 0;
  for (int byte = 3; byte >= 0; --byte) {
    word = word << 8 | at(bytes, index + byte);
  }
  return word;
}

void plain_scales(QuantizedBlock& block) {
  std::fill_n(block.scale, 16, int8_t{1});
  std::fill_n(block.min, 16, uint8_t{1});
}

// 32 values: the low nibbles of 16 bytes, then the high ones.
void read_nibbles(const std::byte* qs, int offset, QuantizedBlock& block) {
  for (int index = 0; index < 16; ++index) {
    block.code[index] = static_cast<int8_t>((at(qs, index) & 15) - offset);
    block.code[index + 16] = static_cast<int8_t>((at(qs, index) >> 4) - offset);
  }
}

// The fifth bit of value i is bit i of `high`.
void add_fifth_bits(uint32_t high, QuantizedBlock& block) {
  for (int index = 0; index < 32; ++index) {
    block.code[index] = static_cast<int8_t>(block.code[index] + ((high >> index & 1U) << 4));
  }
}

// Eight 6-bit scales and eight 6-bit minima in 12 bytes; each serves 32 values.
void read_packed_scales(const std::byte* packed, QuantizedBlock& block) {
  for (int sub = 0; sub < 8; ++sub) {
    int scale = 0;
    int min = 0;
    if (sub < 4) {
      scale = at(packed, sub) & 63;
      min = at(packed, sub + 4) & 63;
    } else {
      scale = (at(packed, sub + 4) & 15) | (at(packed, sub - 4) >> 6) << 4;
      min = (at(packed, sub + 4) >> 4) | (at(packed, sub) >> 6) << 4;
    }
    for (int half = 0; half < 2; ++half) {
      block.scale[2 * sub + half] = static_cast<int8_t>(scale);
      block.min[2 * sub + half] = static_cast<uint8_t>(min);
    }
  }
}

void read_q4_k(const std::byte* bytes, QuantizedBlock& block) {
  block.d = half_at(bytes, 0);
  block.m = -half_at(bytes, 2);
  read_packed_scales(bytes + 4, block);
  const std::byte* qs = bytes + 16;
  for (int index = 0; index < 256; ++index) {
    const uint8_t pair = at(qs, index / 64 * 32 + index % 32);
    block.code[index] = static_cast<int8_t>(index % 64 < 32 ? pair & 15 : pair >> 4);
  }
}

void read_q5_k(const std::byte* bytes, QuantizedBlock& block) {
  block.d = half_at(bytes, 0);
  block.m = -half_at(bytes, 2);
  read_packed_scales(bytes + 4, block);
  const std::byte* qh = bytes + 16;
  const std::byte* qs = bytes + 48;
  for (int index = 0; index < 256; ++index) {
    const uint8_t pair = at(qs, index / 64 * 32 + index % 32);
    const int low = index % 64 < 32 ? pair & 15 : pair >> 4;
    const int high = at(qh, index % 32) >> (index / 32) & 1;
    block.code[index] = static_cast<int8_t>(low | high << 4);
  }
}

void read_q6_k(const std::byte* bytes, QuantizedBlock& block) {
  plain_scales(block);
  const std::byte* ql = bytes;
  const std::byte* qh = bytes + 128;
  std::memcpy(block.scale, bytes + 192, 16);
  block.d = half_at(bytes, 208);
  block.m = 0.0F;
  for (int index = 0; index < 256; ++index) {
    const int half = index / 128;  // 64 bytes of ql and 32 of qh each
    const int quarter = index / 32 % 4;
    const int lane = index % 32;
    const uint8_t pair = at(ql, half * 64 + quarter % 2 * 32 + lane);
    const int low = quarter < 2 ? pair & 15 : pair >> 4;
    const int high = at(qh, half * 32 + lane) >> (2 * quarter) & 3;
    block.code[index] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

}  // namespace

void read_block(DType dtype, const std::byte* bytes, QuantizedBlock& block) {
  switch (dtype) {
    case DType::kQ4_K: return read_q4_k(bytes, block);
    case DType::kQ5_K: return read_q5_k(bytes, block);
    case DType::kQ6_K: return read_q6_k(bytes, block);
    default: break;
  }
  plain_scales(block);
  block.d = half_at(bytes, 0);
  block.m = 0.0F;
  switch (dtype) {
    case DType::kQ8_0: std::memcpy(block.code, bytes + 2, 32); return;
    case DType::kQ4_0: read_nibbles(bytes + 2, 8, block); return;
    case DType::kQ4_1:
      block.m = half_at(bytes, 2);
      read_nibbles(bytes + 4, 0, block);
      return;
    case DType::kQ5_0:
      read_nibbles(bytes + 6, 16, block);
      add_fifth_bits(word_at(bytes, 2), block);
      return;
    case DType::kQ5_1:
      block.m = half_at(bytes, 2);
      read_nibbles(bytes + 8, 0, block);
      add_fifth_bits(word_at(bytes, 4), block);
      return;
    default: MSTAR_CHECK(false, "no block reader for ", to_string(dtype));
  }
}

namespace {

template <typename T>
void widen(const std::byte* bytes, int64_t num_elements, float* out) {
  for (int64_t index = 0; index < num_elements; ++index) {
    T value;
    std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[index] = to_float(value);
  }
}

}  // namespace

void dequantize(DType dtype, const std::byte* bytes, int64_t num_elements, float* out) {
  switch (dtype) {
    case DType::kF32: return widen<float>(bytes, num_elements, out);
    case DType::kBF16: return widen<bfloat16>(bytes, num_elements, out);
    case DType::kF16: return widen<float16>(bytes, num_elements, out);
    default: break;
  }
  const DTypeInfo& layout = info(dtype);
  MSTAR_CHECK(is_quantized(dtype), "dtype ", to_string(dtype), " is not a weight's");
  MSTAR_CHECK(num_elements % layout.block_size == 0, "num_elements=", num_elements);
  QuantizedBlock block;
  for (int64_t begin = 0; begin < num_elements; begin += layout.block_size) {
    read_block(dtype, bytes, block);
    bytes += layout.block_bytes;
    for (int k = 0; k < layout.block_size; ++k) {
      const float scale = block.d * static_cast<float>(block.scale[k / 16]);
      const float min = block.m * static_cast<float>(block.min[k / 16]);
      out[begin + k] = scale * static_cast<float>(block.code[k]) + min;
    }
  }
}

}  // namespace mstar

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mstar {

// Element types. The k…Q types are GGUF's block-quantized ones: elements come in blocks along
// the last dimension and have no address of their own
// (layouts: github.com/ggml-org/ggml, docs/gguf.md and ggml-common.h).
enum class DType : uint8_t {
  kF32,
  kBF16,
  kF16,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kBool,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

inline constexpr int kNumDTypes = static_cast<int>(DType::kQ6_K) + 1;

struct DTypeInfo {
  const char* name;     // "f32", "bf16", …, "q4_k"
  int32_t block_size;   // elements in a block; 1 for plain types
  int32_t block_bytes;  // bytes of a block
};

const DTypeInfo& info(DType dtype);

inline const char* to_string(DType dtype) {
  return info(dtype).name;
}

inline bool is_quantized(DType dtype) {
  return dtype >= DType::kQ4_0;
}

// f32, bf16 and f16.
inline bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Bytes of one element of a plain type.
inline int64_t element_bytes(DType dtype) {
  return info(dtype).block_bytes;
}

// From our own names ("bf16") or Hugging Face's ("bfloat16", "BF16"); nothing when unknown.
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace mstar

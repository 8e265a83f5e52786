#include "mstar/tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace mstar {

namespace {

constexpr std::array<DTypeInfo, kNumDTypes> kInfo = {{
    {"f32", 1, 4},
    {"bf16", 1, 2},
    {"f16", 1, 2},
    {"i8", 1, 1},
    {"u8", 1, 1},
    {"i16", 1, 2},
    {"i32", 1, 4},
    {"i64", 1, 8},
    {"bool", 1, 1},
    {"q4_0", 32, 18},
    {"q4_1", 32, 20},
    {"q5_0", 32, 22},
    {"q5_1", 32, 24},
    {"q8_0", 32, 34},
    {"q4_k", 256, 144},
    {"q5_k", 256, 176},
    {"q6_k", 256, 210},
}};

struct Alias {
  std::string_view name;
  DType dtype;
};

constexpr Alias kAliases[] = {
    {"float32", DType::kF32},
    {"float", DType::kF32},
    {"bfloat16", DType::kBF16},
    {"float16", DType::kF16},
    {"half", DType::kF16},
    {"int8", DType::kI8},
    {"uint8", DType::kU8},
    {"int16", DType::kI16},
    {"int32", DType::kI32},
    {"int64", DType::kI64},
    {"boolean", DType::kBool},
};

}  // namespace

const DTypeInfo& info(DType dtype) {
  return kInfo[static_cast<size_t>(dtype)];
}

std::optional<DType> parse_dtype(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (size_t index = 0; index < kInfo.size(); ++index) {
    if (lower == kInfo[index].name) {
      return static_cast<DType>(index);
    }
  }
  for (const Alias& alias : kAliases) {
    if (lower == alias.name) {
      return alias.dtype;
    }
  }
  return std::nullopt;
}

}  // namespace mstar

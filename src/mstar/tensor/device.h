#pragma once

#include <cstdint>
#include <string>

#include "mstar/base/str_cat.h"

namespace mstar {

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t index = 0;

  bool is_cpu() const { return kind == DeviceKind::kCpu; }

  friend bool operator==(const Device&, const Device&) = default;
};

inline std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : str_cat("cuda:", device.index);
}

}  // namespace mstar

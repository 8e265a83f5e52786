// Any bytes: a safetensors header is accepted with tensors inside the file, or refused with an
// Error.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "mstar/base/error.h"
#include "mstar/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const mstar::SafetensorsHeader header = mstar::parse_safetensors(bytes, "fuzz");
    uint64_t total = 0;
    for (const mstar::TensorInfo& tensor : header.tensors) {
      const mstar::DTypeInfo& type = mstar::info(tensor.dtype);
      const auto count = static_cast<uint64_t>(tensor.shape.num_elements());
      if (tensor.offset_bytes + tensor.size_bytes > size ||
          tensor.size_bytes != count * static_cast<uint64_t>(type.block_bytes)) {
        std::abort();
      }
      total += tensor.size_bytes;
    }
    if (total > size) {
      std::abort();  // tensors share bytes
    }
  } catch (const mstar::Error&) {
  }
  return 0;
}

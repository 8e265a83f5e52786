// Any bytes: a picture within the limits, or an Error; and what the header says is what comes.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/media/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const mstar::ImageLimits limits{.max_side = 1024, .max_pixels = 1 << 16};
  try {
    const mstar::Tensor pixels = mstar::decode_image(bytes, "fuzz", limits);
    const mstar::ImageInfo info = mstar::read_image_info(bytes, "fuzz");
    if (pixels.dim(0) * pixels.dim(1) > limits.max_pixels || pixels.dim(2) != 3) {
      std::abort();
    }
    if (info.height != pixels.dim(0) || info.width != pixels.dim(1)) {
      std::abort();
    }
  } catch (const mstar::Error& error) {
    if (error.code() == mstar::ErrorCode::kInternal) {
      std::abort();  // the bytes are to blame, not we
    }
  }
  return 0;
}

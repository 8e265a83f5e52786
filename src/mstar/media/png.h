// PNG pictures alone: where nothing else is taken. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "mstar/media/image.h"

namespace mstar {

bool is_png(std::string_view bytes);

// As decode_image(), for PNG only and without EXIF's turn.
Tensor decode_png(std::string_view bytes, std::string_view name, const ImageLimits& limits = {});

}  // namespace mstar

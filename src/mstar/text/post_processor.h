#pragma once

#include <cstdint>
#include <vector>

#include "mstar/base/json.h"

namespace mstar {

// The post-processor step of tokenizer.json, for one text: tokens put around its ids.
struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

// Throws Error(kInvalidArgument) on wrong members, Error(kUnsupported) on an unknown type. Null
// JSON gives no tokens.
PostProcessor read_post_processor(const Json& json);

}  // namespace mstar

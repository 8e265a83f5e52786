#include "mstar/graph/chunk_policy.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar::graph {

ChunkPolicy ChunkPolicy::sliding_window(int64_t window, int64_t stride) {
  return {.kind = Kind::kSlidingWindow, .size = window, .overlap = window - stride};
}

ChunkPolicy ChunkPolicy::left_context(int64_t chunk, int64_t context) {
  return {.kind = Kind::kLeftContext, .size = chunk, .overlap = context};
}

ChunkPolicy ChunkPolicy::fixed(int64_t chunk, bool continue_after_done) {
  return {.kind = Kind::kFixed, .size = chunk, .continue_after_done = continue_after_done};
}

int64_t ChunkPolicy::window(bool is_first) const {
  return kind == Kind::kLeftContext && !is_first ? size + overlap : size;
}

int64_t ChunkPolicy::advance(bool is_first) const {
  switch (kind) {
    case Kind::kSlidingWindow: return size - overlap;
    // The tail of the first chunk stays as the context of the second.
    case Kind::kLeftContext: return is_first ? size - overlap : size;
    case Kind::kFixed: return size;
  }
  return size;
}

void ChunkPolicy::validate(const std::string& where) const {
  const auto fail = [&](std::string_view what) {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[", where, "] ", to_string(), ": ", what));
  };
  if (size < 1) fail("a chunk needs at least one item");
  if (overlap < 0) fail("the stride may not be larger than the window");
  if (kind == Kind::kSlidingWindow && overlap >= size) fail("the stride must be at least 1");
  if (kind == Kind::kLeftContext && overlap > size) {
    fail("the left context may not be longer than the chunk it is taken from");
  }
  if (kind == Kind::kFixed && overlap != 0) fail("fixed chunks do not overlap");
  if (continue_after_done && kind != Kind::kFixed) {
    fail("only fixed chunks can continue after the end of the stream");
  }
}

std::string ChunkPolicy::to_string() const {
  switch (kind) {
    case Kind::kSlidingWindow: return str_cat("sliding_window(", size, ", ", size - overlap, ")");
    case Kind::kLeftContext: return str_cat("left_context(", size, ", ", overlap, ")");
    case Kind::kFixed:
      return str_cat("fixed(", size, continue_after_done ? ", continue_after_done)" : ")");
  }
  return "?";
}

}  // namespace mstar::graph

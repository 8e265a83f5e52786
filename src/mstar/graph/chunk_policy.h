#pragma once

#include <cstdint>
#include <string>

namespace mstar::graph {

// When a streaming consumer may run and which items it then sees. Plain data; StreamBuffer holds
// the state. Sizes count items (one item = what one emission of the edge pushes).
// Thread-compatible.
struct ChunkPolicy {
  enum class Kind : uint8_t { kSlidingWindow, kLeftContext, kFixed };

  Kind kind = Kind::kFixed;
  int64_t size = 1;                  // window, or new items per chunk
  int64_t overlap = 0;               // items of the previous chunk that the next one repeats
  bool continue_after_done = false;  // keep the consumer running on empty chunks after the end

  // `window` items each time, moving on by `stride` (1..window). Orpheus: 28 by 7.
  static ChunkPolicy sliding_window(int64_t window, int64_t stride);
  // First `chunk` items, then `context` old ones in front of `chunk` new ones (context <= chunk).
  static ChunkPolicy left_context(int64_t chunk, int64_t context);
  // `chunk` items each time, none twice.
  static ChunkPolicy fixed(int64_t chunk, bool continue_after_done = false);

  // Items a chunk holds, and how many of them leave the buffer with it.
  int64_t window(bool is_first) const;
  int64_t advance(bool is_first) const;

  // Throws Error(kInvalidArgument) when the numbers make no sense; `where` starts the message.
  void validate(const std::string& where) const;

  // "sliding_window(28, 7)".
  std::string to_string() const;

  bool operator==(const ChunkPolicy&) const = default;
};

}  // namespace mstar::graph

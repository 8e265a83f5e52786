#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mstar/graph/chunk_policy.h"
#include "mstar/graph/signal.h"

namespace mstar::graph {

// What a streaming consumer sees next.
struct StreamChunk {
  // May be empty. References stay the buffer's; valid until the next call that changes it.
  std::span<const PayloadId> items;
  int64_t chunk_index = 0;
  int64_t start_offset = 0;   // position of the first item in the whole stream
  int64_t context_items = 0;  // leading items that an earlier chunk already brought
  int64_t num_leaving = 0;    // items that leave the buffer with pop()
  bool is_final = false;      // exactly one chunk of a stream is, unless it continues after done
  bool after_end = false;     // empty, because the consumer runs on after the end
};

enum class PushResult : uint8_t {
  kAccepted,    // the reference is the buffer's now
  kWouldBlock,  // full: keep the item; pop() says when there is room again
  kCancelled,   // the consumer went away: drop the item
};

// The queue of one request on one streaming edge, on the consumer's side. Bounded; the end travels
// in it like an item. Items become visible in the order of reserve(), whenever they are filled.
// One thread: the worker's scheduler.
//
// A chunk is looked at with peek() and only leaves with pop(), so a speculative step that is
// undone has nothing to put back.
class StreamBuffer {
 public:
  // Throws Error(kInvalidArgument) when `capacity` (items) cannot hold one chunk of the policy.
  StreamBuffer(const ChunkPolicy& policy, int64_t capacity, PayloadOwner& payloads);
  ~StreamBuffer();

  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;

  // ---- producer

  // How many items fit now.
  int64_t credit() const { return capacity_ - num_held(); }

  PushResult push(PayloadId item);

  // Takes the next place for an item that is still on its way; nullopt when full.
  std::optional<uint64_t> reserve();
  // The item of a reserved place; its reference is the buffer's from now on.
  void fill(uint64_t place, PayloadId item);

  // No place is reserved after this one.
  void close();

  bool is_closed() const { return closed_; }

  // ---- consumer

  std::optional<StreamChunk> peek() const;

  // Consumes the chunk that peek() gave, as it was then: an end that arrived in between comes with
  // a later chunk. True when a producer that was refused can go on.
  bool pop(const StreamChunk& seen);

  // The final chunk was popped.
  bool is_finished() const { return final_popped_; }

  int64_t num_consumed() const { return first_place_; }

  // Releases everything; later items are refused.
  void cancel();

 private:
  static constexpr PayloadId kNotFilled = 0xffffffff;

  int64_t num_held() const { return static_cast<int64_t>(items_.size()) - head_; }

  ChunkPolicy policy_;
  int64_t capacity_;
  PayloadOwner& payloads_;
  std::vector<PayloadId> items_;  // [head_, size) are held; kNotFilled where only reserved
  int64_t head_ = 0;
  int64_t num_visible_ = 0;  // filled without a gap from head_ on
  int64_t first_place_ = 0;  // place in the stream of items_[head_]
  int64_t delivered_ = 0;    // places below were in some popped chunk
  int64_t num_chunks_ = 0;
  bool closed_ = false;
  bool cancelled_ = false;
  bool final_popped_ = false;
  bool refused_ = false;  // a producer waits for room
};

}  // namespace mstar::graph

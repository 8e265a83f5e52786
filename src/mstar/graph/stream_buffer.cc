#include "mstar/graph/stream_buffer.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"

namespace mstar::graph {

StreamBuffer::StreamBuffer(const ChunkPolicy& policy, int64_t capacity, PayloadOwner& payloads)
    : policy_(policy), capacity_(capacity), payloads_(payloads) {
  policy_.validate("stream buffer");
  const int64_t largest = std::max(policy_.window(true), policy_.window(false));
  if (capacity_ < largest) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[stream buffer] a capacity of ",
                        capacity_,
                        " items can never fill a chunk of ",
                        policy_.to_string(),
                        ", expected at least ",
                        largest));
  }
}

StreamBuffer::~StreamBuffer() {
  cancel();
}

PushResult StreamBuffer::push(PayloadId item) {
  if (cancelled_) return PushResult::kCancelled;
  const std::optional<uint64_t> place = reserve();
  if (!place) return PushResult::kWouldBlock;
  fill(*place, item);
  return PushResult::kAccepted;
}

std::optional<uint64_t> StreamBuffer::reserve() {
  MSTAR_CHECK(!closed_, "an item after the end of the stream");
  if (cancelled_ || credit() <= 0) {
    refused_ = true;
    return std::nullopt;
  }
  if (head_ > 0 && 2 * head_ >= static_cast<int64_t>(items_.size())) {
    items_.erase(items_.begin(), items_.begin() + head_);
    head_ = 0;
  }
  items_.push_back(kNotFilled);
  return static_cast<uint64_t>(first_place_ + num_held() - 1);
}

void StreamBuffer::fill(uint64_t place, PayloadId item) {
  if (cancelled_) {
    payloads_.release(item);
    return;
  }
  const int64_t index = head_ + static_cast<int64_t>(place) - first_place_;
  MSTAR_CHECK(index >= head_ && index < static_cast<int64_t>(items_.size()) &&
                  items_[index] == kNotFilled && item != kNotFilled,
              "place ",
              place,
              " is not waiting for an item");
  items_[index] = item;
  while (num_visible_ < num_held() && items_[head_ + num_visible_] != kNotFilled) ++num_visible_;
}

void StreamBuffer::close() {
  MSTAR_CHECK(!closed_, "a stream ends twice");
  closed_ = true;
}

std::optional<StreamChunk> StreamBuffer::peek() const {
  if (cancelled_ || final_popped_) return std::nullopt;
  const bool is_first = num_chunks_ == 0;
  const bool all_here = closed_ && num_visible_ == num_held();
  const int64_t window = policy_.window(is_first);
  StreamChunk chunk;
  int64_t num_items = window;
  if (num_visible_ >= window) {
    chunk.num_leaving = policy_.advance(is_first);
  } else if (all_here) {
    // What is left, maybe nothing: the chunk that carries the end.
    num_items = chunk.num_leaving = num_visible_;
    chunk.after_end = policy_.continue_after_done && num_items == 0;
  } else {
    return std::nullopt;
  }
  chunk.items = {items_.data() + head_, static_cast<size_t>(num_items)};
  chunk.chunk_index = num_chunks_;
  chunk.start_offset = first_place_;
  chunk.context_items = std::clamp<int64_t>(delivered_ - first_place_, 0, num_items);
  chunk.is_final = all_here && chunk.num_leaving == num_visible_ && !policy_.continue_after_done;
  return chunk;
}

bool StreamBuffer::pop(const StreamChunk& seen) {
  if (cancelled_) return false;
  MSTAR_CHECK(seen.chunk_index == num_chunks_ && seen.num_leaving <= num_visible_ && !final_popped_,
              "chunk ",
              seen.chunk_index,
              " popped, expected chunk ",
              num_chunks_);
  ++num_chunks_;
  final_popped_ = seen.is_final;
  delivered_ = std::max(delivered_, first_place_ + static_cast<int64_t>(seen.items.size()));
  for (int64_t leaving = 0; leaving < seen.num_leaving; ++leaving) {
    payloads_.release(items_[head_++]);
  }
  first_place_ += seen.num_leaving;
  num_visible_ -= seen.num_leaving;
  const bool wakes = refused_ && credit() > 0;
  if (wakes) refused_ = false;
  return wakes;
}

void StreamBuffer::cancel() {
  cancelled_ = true;
  for (size_t index = static_cast<size_t>(head_); index < items_.size(); ++index) {
    if (items_[index] != kNotFilled) payloads_.release(items_[index]);
  }
  items_.clear();
  head_ = num_visible_ = 0;
}

}  // namespace mstar::graph

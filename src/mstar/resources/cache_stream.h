#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "mstar/resources/names.h"
#include "mstar/resources/page_pool.h"
#include "mstar/resources/prefix_index.h"
#include "mstar/resources/step.h"

namespace mstar {

// One named run of cached tokens of a request, and the pages that hold it.
//
//   tokens ever committed  [0, stored_len)
//   of which gone          `released` of them, whole pages right after the protected prefix
//   pages                  the resident tokens in order, then scratch that commits will grow into
//
// Pages may be shared (forks, prefix index); whoever writes on one takes a copy first. Plain
// bookkeeping, no device memory. One thread: the step loop.
struct CacheStream {
  CacheStream(PagePool& pool, LabelId stream_label)
      : label(stream_label), pages(pool), undo_pages(pool) {}

  LabelId label;
  PageList pages;
  int64_t stored_len = 0;  // tokens
  int64_t released = 0;    // tokens, a whole number of pages
  RetentionPolicy retention{};
  bool has_retention = false;
  uint64_t generation = 0;  // another one, never seen before, whenever resident content changes

  // Keys of tokens from 0 on, for the prefix index; empty when the stream takes no part.
  std::vector<uint64_t> keys;
  size_t num_prompt_keys = 0;            // of them known from the start
  std::vector<PrefixIndex::Node> chain;  // listed pages from the start, one per whole page

  // What the last commit did, until the next admit makes it final.
  int64_t undo_span = -1;  // tokens; -1: nothing to undo
  PageList undo_pages;     // released by it, in order
  size_t undo_chain = 0;   // chain's length before it

  // On the host instead of in pages: one host page per page that the resident tokens fill.
  bool offloaded = false;
  std::vector<int32_t> host_pages;

  int64_t resident_len() const { return stored_len - released; }

  // Pages that never go: the protected prefix, with the page on which it ends.
  int64_t num_protected_pages(int64_t page_size) const {
    return has_retention ? (retention.protected_prefix + page_size - 1) / page_size : 0;
  }

  // Whole pages that retention would release now. Tokens inside the budget, the prefix and the
  // partial tail are never among them.
  int64_t num_releasable_pages(int64_t page_size) const;

  // Forgets everything but the label; pages go back. The caller moves the generation on.
  void reset();
};

// The streams of one request.
struct RequestStreams {
  bool open = false;
  int32_t num_in_flight = 0;  // steps between admit and commit
  uint64_t last_use = 0;      // step number, for choosing whom to offload
  int64_t max_tokens = 0;     // promise per stream; 0: none made
  int64_t num_promised = 1;   // streams that it is made for
  std::vector<LabelId> publish_labels;
  std::deque<CacheStream> streams;  // addresses stay

  CacheStream* find(LabelId label) {
    for (CacheStream& stream : streams) {
      if (stream.label == label) {
        return &stream;
      }
    }
    return nullptr;
  }

  const CacheStream* find(LabelId label) const {
    return const_cast<RequestStreams*>(this)->find(label);
  }
};

// All requests' streams, by handle. One thread: the step loop.
class StreamTable {
 public:
  explicit StreamTable(PagePool& pool) : pool_(pool) {}

  RequestStreams& open(RequestHandle request);
  void close(RequestHandle request);

  // Null for a handle that is not open.
  RequestStreams* find(RequestHandle request);
  const RequestStreams* find(RequestHandle request) const;

  // Must be open.
  RequestStreams& get(RequestHandle request);

  // Null when the stream does not exist.
  CacheStream* find(RequestHandle request, LabelId label);
  const CacheStream* find(RequestHandle request, LabelId label) const;

  // Made empty when it does not exist; the request must be open.
  CacheStream& get_or_add(RequestHandle request, LabelId label);

  // For a stream whose content changed.
  uint64_t next_generation() { return ++last_generation_; }

  std::deque<RequestStreams>& requests() { return requests_; }

  const std::deque<RequestStreams>& requests() const { return requests_; }

 private:
  PagePool& pool_;
  std::deque<RequestStreams> requests_;  // by handle
  uint64_t last_generation_ = 0;
};

}  // namespace mstar

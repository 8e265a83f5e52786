#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mstar/resources/page_pool.h"

namespace mstar {

// Finds whole pages by what they hold: a page's place in the tree is its parent page and the keys
// of its tokens, so that equal content after equal content is one page, whoever wrote it first.
// Keys are compared themselves, not their hash: a collision cannot hand out another's page. Owns a
// handle on every page it lists; pages that nobody else uses leave, least recently used and
// childless first, when evict() asks. One thread: the step loop.
class PrefixIndex {
 public:
  // Names a listed page for good: once that page has left, the value names nothing.
  using Node = int64_t;
  static constexpr Node kRoot = -1;
  static constexpr Node kNone = -2;

  // `salt` separates what must not meet (checkpoint, layout, tenant of a deployment).
  PrefixIndex(PagePool& pool, int64_t page_size, std::string_view salt);

  // The page after `parent` that holds `keys` (page_size of them), or kNone.
  Node find(Node parent, std::span<const uint64_t> keys) const;

  // Longest chain of whole pages that `keys` begins with, one token short of all of them, so that
  // there always is something to compute. Appends the nodes and marks them used.
  void match(std::span<const uint64_t> keys, std::vector<Node>& nodes);

  // Number of pages match() would give.
  int64_t count_match(std::span<const uint64_t> keys) const;

  // Lists page `page_id` after `parent`. When that content is listed already, its node stays and
  // is the answer: the first writer wins. kNone when the parent has left.
  Node insert(Node parent, std::span<const uint64_t> keys, int32_t page_id);

  // Makes a page and everything after it unfindable: its content turned out wrong.
  void hide(Node node);

  // Frees up to `num_pages` pages; returns how many.
  int32_t evict(int32_t num_pages);

  // Frees all that nobody else uses.
  void clear() { evict(static_cast<int32_t>(entries_.size())); }

  // Whether the page is still there to be found.
  bool is_listed(Node node) const;

  int32_t page(Node node) const { return entry(index_of(node)).page.id(); }

  // One id per listed page.
  std::vector<int32_t> listed_pages() const;

  int64_t num_pages() const { return num_listed_; }

  int64_t page_size() const { return page_size_; }

 private:
  struct Entry {
    Page page;
    std::vector<uint64_t> keys;  // [page_size]
    uint64_t hash = 0;
    Node parent = kRoot;
    uint32_t stamp = 0;  // counts the pages that had this entry
    bool hidden = false;
    int32_t num_children = 0;
    int32_t older = -1;  // list of all entries by use
    int32_t newer = -1;
  };

  static int32_t index_of(Node node) { return static_cast<int32_t>(node & 0x7FFFFFFF); }

  Node node_of(int32_t index) const {
    return (static_cast<Node>(entry(index).stamp) << 31) | static_cast<Node>(index);
  }

  const Entry& entry(int32_t index) const { return entries_[static_cast<size_t>(index)]; }

  Entry& entry(int32_t index) { return entries_[static_cast<size_t>(index)]; }

  uint64_t hash_of(Node parent, std::span<const uint64_t> keys) const;
  int64_t usable_pages(size_t num_keys) const;
  void link_newest(int32_t index);
  void unlink(int32_t index);
  void forget_hash(int32_t index);
  void remove(int32_t index);

  PagePool& pool_;
  int64_t page_size_;
  uint64_t salt_;
  std::vector<Entry> entries_;
  std::vector<int32_t> free_entries_;
  std::unordered_multimap<uint64_t, int32_t> by_hash_;
  int64_t num_listed_ = 0;
  int32_t oldest_ = -1;
  int32_t newest_ = -1;
};

}  // namespace mstar

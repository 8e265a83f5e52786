#include "mstar/resources/prefix_index.h"

#include <algorithm>

#include "mstar/base/check.h"

namespace mstar {

namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ULL + (hash << 6) + (hash >> 2);
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;  // SplitMix64's finaliser
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
  return hash ^ (hash >> 31);
}

}  // namespace

PrefixIndex::PrefixIndex(PagePool& pool, int64_t page_size, std::string_view salt)
    : pool_(pool), page_size_(page_size), salt_(mix(0, salt.size())) {
  MSTAR_CHECK(page_size > 0);
  for (const char character : salt) {
    salt_ = mix(salt_, static_cast<unsigned char>(character));
  }
}

uint64_t PrefixIndex::hash_of(Node parent, std::span<const uint64_t> keys) const {
  uint64_t hash = parent == kRoot ? salt_ : entry(index_of(parent)).hash;
  for (const uint64_t key : keys) {
    hash = mix(hash, key);
  }
  return hash;
}

bool PrefixIndex::is_listed(Node node) const {
  if (node < 0) {
    return false;
  }
  const Entry& named = entry(index_of(node));
  return named.page && !named.hidden && node_of(index_of(node)) == node;
}

PrefixIndex::Node PrefixIndex::find(Node parent, std::span<const uint64_t> keys) const {
  MSTAR_CHECK(static_cast<int64_t>(keys.size()) == page_size_);
  const auto [begin, end] = by_hash_.equal_range(hash_of(parent, keys));
  for (auto candidate = begin; candidate != end; ++candidate) {
    const Entry& found = entry(candidate->second);
    if (found.parent == parent && std::equal(keys.begin(), keys.end(), found.keys.begin())) {
      return node_of(candidate->second);
    }
  }
  return kNone;
}

int64_t PrefixIndex::usable_pages(size_t num_keys) const {
  return num_keys == 0 ? 0 : (static_cast<int64_t>(num_keys) - 1) / page_size_;
}

void PrefixIndex::match(std::span<const uint64_t> keys, std::vector<Node>& nodes) {
  Node parent = kRoot;
  const size_t before = nodes.size();
  const auto page_size = static_cast<size_t>(page_size_);
  for (int64_t page = 0; page < usable_pages(keys.size()); ++page) {
    parent = find(parent, keys.subspan(static_cast<size_t>(page) * page_size, page_size));
    if (parent == kNone) {
      break;
    }
    nodes.push_back(parent);
  }
  // Parents after children: a parent is never older than what hangs on it.
  for (size_t index = nodes.size(); index > before; --index) {
    unlink(index_of(nodes[index - 1]));
    link_newest(index_of(nodes[index - 1]));
  }
}

int64_t PrefixIndex::count_match(std::span<const uint64_t> keys) const {
  Node parent = kRoot;
  const auto page_size = static_cast<size_t>(page_size_);
  for (int64_t page = 0; page < usable_pages(keys.size()); ++page) {
    parent = find(parent, keys.subspan(static_cast<size_t>(page) * page_size, page_size));
    if (parent == kNone) {
      return page;
    }
  }
  return usable_pages(keys.size());
}

PrefixIndex::Node PrefixIndex::insert(Node parent,
                                      std::span<const uint64_t> keys,
                                      int32_t page_id) {
  if (parent != kRoot && !is_listed(parent)) {
    return kNone;
  }
  const Node known = find(parent, keys);
  if (known != kNone) {
    return known;
  }
  auto index = static_cast<int32_t>(entries_.size());
  if (free_entries_.empty()) {
    entries_.emplace_back();
  } else {
    index = free_entries_.back();
    free_entries_.pop_back();
  }
  Entry& added = entry(index);
  added.page = pool_.share(page_id);
  added.keys.assign(keys.begin(), keys.end());
  added.hash = hash_of(parent, keys);
  added.parent = parent;
  added.num_children = 0;
  added.hidden = false;
  by_hash_.emplace(added.hash, index);
  ++num_listed_;
  link_newest(index);
  if (parent != kRoot) {
    ++entry(index_of(parent)).num_children;
  }
  return node_of(index);
}

void PrefixIndex::hide(Node node) {
  if (is_listed(node)) {
    forget_hash(index_of(node));
    entry(index_of(node)).hidden = true;
  }
}

int32_t PrefixIndex::evict(int32_t num_pages) {
  int32_t num_freed = 0;
  // What cannot go now moves behind what can; a whole round without a page ends it. (A parent may
  // be passed before its last child goes, so every page starts a new round.)
  int64_t num_passed = 0;
  while (num_freed < num_pages && num_passed < num_listed_) {
    const int32_t index = oldest_;
    if (entry(index).num_children == 0 && pool_.num_users(entry(index).page.id()) == 1) {
      remove(index);
      ++num_freed;
      num_passed = 0;
    } else {
      unlink(index);
      link_newest(index);
      ++num_passed;
    }
  }
  return num_freed;
}

std::vector<int32_t> PrefixIndex::listed_pages() const {
  std::vector<int32_t> pages;
  for (const Entry& listed : entries_) {
    if (listed.page) {
      pages.push_back(listed.page.id());
    }
  }
  return pages;
}

void PrefixIndex::link_newest(int32_t index) {
  entry(index).older = newest_;
  entry(index).newer = -1;
  if (newest_ >= 0) {
    entry(newest_).newer = index;
  } else {
    oldest_ = index;
  }
  newest_ = index;
}

void PrefixIndex::unlink(int32_t index) {
  const Entry& gone = entry(index);
  if (gone.older >= 0) {
    entry(gone.older).newer = gone.newer;
  } else {
    oldest_ = gone.newer;
  }
  if (gone.newer >= 0) {
    entry(gone.newer).older = gone.older;
  } else {
    newest_ = gone.older;
  }
}

void PrefixIndex::forget_hash(int32_t index) {
  const auto [begin, end] = by_hash_.equal_range(entry(index).hash);
  const auto found = std::find_if(
      begin, end, [index](const auto& candidate) { return candidate.second == index; });
  MSTAR_CHECK(found != end, "entry ", index, " is not in the table");
  by_hash_.erase(found);
}

void PrefixIndex::remove(int32_t index) {
  unlink(index);
  Entry& gone = entry(index);
  if (!gone.hidden) {
    forget_hash(index);
  }
  if (gone.parent != kRoot) {
    --entry(index_of(gone.parent)).num_children;
  }
  gone.page = Page();
  gone.stamp = (gone.stamp + 1) & 0x7FFFFFFF;
  --num_listed_;
  free_entries_.push_back(index);
}

}  // namespace mstar

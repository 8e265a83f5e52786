#include "mstar/text/byte_trie.h"

#include <algorithm>

namespace mstar {

ByteTrie::ByteTrie(const std::vector<std::string_view>& strings) : nodes_(1) {
  std::vector<uint32_t> order;
  for (uint32_t index = 0; index < strings.size(); ++index) {
    if (!strings[index].empty()) {
      order.push_back(index);
    }
  }
  std::stable_sort(
      order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return strings[a] < strings[b]; });

  // Breadth first: `todo` holds, for each node, the sorted strings below it.
  struct Range {
    uint32_t node;
    size_t begin;
    size_t end;
    size_t depth;
  };

  std::vector<Range> todo = {{0, 0, order.size(), 0}};
  for (size_t at = 0; at < todo.size(); ++at) {
    Range range = todo[at];
    while (range.begin < range.end && strings[order[range.begin]].size() == range.depth) {
      nodes_[range.node].value = static_cast<int32_t>(order[range.begin++]);
    }
    nodes_[range.node].first_edge = static_cast<uint32_t>(edges_.size());
    while (range.begin < range.end) {
      const char byte = strings[order[range.begin]][range.depth];
      size_t end = range.begin;
      while (end < range.end && strings[order[end]][range.depth] == byte) {
        ++end;
      }
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.push_back({static_cast<unsigned char>(byte), child});
      todo.push_back({child, range.begin, end, range.depth + 1});
      range.begin = end;
    }
    nodes_[range.node].num_edges =
        static_cast<uint32_t>(edges_.size()) - nodes_[range.node].first_edge;
  }
  for (uint32_t i = 0; i < nodes_[0].num_edges; ++i) {
    root_[edges_[i].byte] = edges_[i].node;
  }
}

}  // namespace mstar

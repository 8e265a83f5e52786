#include "mstar/text/constrain/literal_trie.h"

#include <algorithm>
#include <numeric>

namespace mstar {

// Level by level: a node is a range of the sorted strings that share their first `depth` bytes.
LiteralTrie::LiteralTrie(const std::vector<std::string>& strings) {
  struct Range {
    size_t begin;
    size_t end;
    size_t depth;
  };

  std::vector<int32_t> order(strings.size());
  std::iota(order.begin(), order.end(), 0);
  const auto text = [&](size_t place) -> const std::string& {
    return strings[static_cast<size_t>(order[place])];
  };
  std::ranges::sort(order, [&](int32_t a, int32_t b) {
    const int compared = strings[static_cast<size_t>(a)].compare(strings[static_cast<size_t>(b)]);
    return compared != 0 ? compared < 0 : a < b;
  });
  std::vector<Range> ranges{{0, strings.size(), 0}};
  nodes_.emplace_back();
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    nodes_[node].first_value = static_cast<uint32_t>(values_.size());
    nodes_[node].num_values = static_cast<uint32_t>(end - begin);
    values_.insert(values_.end(),
                   order.begin() + static_cast<std::ptrdiff_t>(begin),
                   order.begin() + static_cast<std::ptrdiff_t>(end));
    std::sort(values_.end() - static_cast<std::ptrdiff_t>(end - begin), values_.end());
    while (begin < end && text(begin).size() == depth) {
      if (nodes_[node].value < 0) {
        nodes_[node].value = order[begin];
      }
      ++begin;
    }
    nodes_[node].first_edge = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = text(begin)[depth];
      size_t stop = begin;
      while (stop < end && text(stop)[depth] == byte) {
        ++stop;
      }
      edges_.push_back({static_cast<uint8_t>(byte), static_cast<uint32_t>(nodes_.size())});
      ++nodes_[node].num_edges;
      nodes_.emplace_back();
      ranges.push_back({begin, stop, depth + 1});
      begin = stop;
    }
  }
}

uint32_t LiteralTrie::step(uint32_t node, uint8_t byte) const {
  const Node& from = nodes_[node];
  const auto first = edges_.begin() + from.first_edge;
  const auto last = first + from.num_edges;
  const auto found = std::lower_bound(
      first, last, byte, [](const Edge& edge, uint8_t wanted) { return edge.byte < wanted; });
  return found != last && found->byte == byte ? found->node : kNone;
}

std::vector<uint8_t> LiteralTrie::first_bytes() const {
  std::vector<uint8_t> bytes;
  for (uint32_t edge = 0; edge < nodes_[kRoot].num_edges; ++edge) {
    bytes.push_back(edges_[nodes_[kRoot].first_edge + edge].byte);
  }
  return bytes;
}

}  // namespace mstar

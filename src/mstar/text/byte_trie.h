#pragma once

// Prefix tree over byte strings, built once and then only read. Thread-safe.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mstar {

class ByteTrie {
 public:
  ByteTrie() : nodes_(1) {}

  // The value of a string is its index. Empty strings are left out; of equal strings the last
  // counts.
  explicit ByteTrie(const std::vector<std::string_view>& strings);

  // The child of `node` under `byte`, or 0. The root is node 0.
  uint32_t step(uint32_t node, unsigned char byte) const {
    if (node == 0) {
      return root_[byte];
    }
    const Edge* edge = edges_.data() + nodes_[node].first_edge;
    for (const Edge* end = edge + nodes_[node].num_edges; edge != end; ++edge) {
      if (edge->byte == byte) {
        return edge->node;
      }
    }
    return 0;
  }

  // The index of the string that ends at `node`, or -1.
  int32_t value(uint32_t node) const { return nodes_[node].value; }

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
    int32_t value = -1;
  };

  // Edges of a node lie side by side in the order of their bytes.
  struct Edge {
    unsigned char byte;
    uint32_t node;
  };

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<uint32_t, 256> root_{};
};

}  // namespace mstar

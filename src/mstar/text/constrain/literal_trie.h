#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mstar {

// Prefix tree over byte strings that tells at each node which strings lie below it. Built once and
// then only read. Thread-safe. (ByteTrie finds longest matches fast; this one answers "may I still
// get somewhere from here".)
class LiteralTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  LiteralTrie() : nodes_(1) {}

  // The value of a string is its index; of equal strings the first counts. No string is empty.
  explicit LiteralTrie(const std::vector<std::string>& strings);

  // The child of `node` under `byte`, or kNone.
  uint32_t step(uint32_t node, uint8_t byte) const;

  // The index of the string that ends at `node`, or -1.
  int32_t value(uint32_t node) const { return nodes_[node].value; }

  // Whether no string goes on behind `node`.
  bool is_leaf(uint32_t node) const { return nodes_[node].num_edges == 0; }

  // Indices of the strings that pass through `node` or end there, rising.
  std::span<const int32_t> values_below(uint32_t node) const {
    return {values_.data() + nodes_[node].first_value, nodes_[node].num_values};
  }

  // Bytes that the first edges are marked with.
  std::vector<uint8_t> first_bytes() const;

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
    uint32_t first_value = 0;
    uint32_t num_values = 0;
    int32_t value = -1;
  };

  // Edges of a node lie side by side in the order of their bytes.
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<int32_t> values_;
};

}  // namespace mstar

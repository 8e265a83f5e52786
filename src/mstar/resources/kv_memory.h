#pragma once

#include <cstdint>

#include "mstar/resources/spec.h"
#include "mstar/tensor/stream.h"

namespace mstar {

// The bytes behind the pages: [num_layers, num_pages, 2 (k, v), page_size, num_kv_heads, head_dim].
// Knows page ids and nothing of who holds them. The tensor never moves. The executor reads and
// writes it through ops; copy_out and copy_in touch it directly and need an idle stream.
class KvMemory {
 public:
  // Throws Error(kInvalidArgument) on sizes that make no sense, Error(kResourceExhausted) when the
  // memory is not there.
  KvMemory(const KVSpec& spec, int64_t num_pages);

  // All pages of one layer: [num_pages, 2, page_size, num_kv_heads, head_dim].
  Tensor layer_view(int64_t layer) const { return pages_.select(0, layer); }

  const Tensor& pages() const { return pages_; }

  // Bytes of one page over all layers.
  int64_t page_bytes() const;

  // Copies the first `num_rows` tokens of page `from` to page `to`, k and v of all layers.
  void copy_rows(Stream& stream, int32_t from, int32_t to, int64_t num_rows);

  // One page over all layers to or from `host`, page_bytes() long.
  void copy_out(int32_t page, std::byte* host) const;
  void copy_in(const std::byte* host, int32_t page);

 private:
  int64_t layer_page_bytes() const;

  Tensor pages_;
};

}  // namespace mstar

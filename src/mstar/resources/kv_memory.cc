#include "mstar/resources/kv_memory.h"

#include <cstring>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

namespace {

Shape checked_shape(const KVSpec& spec, int64_t num_pages) {
  if (spec.num_layers <= 0 || spec.num_kv_heads <= 0 || spec.head_dim <= 0 || spec.page_size <= 0 ||
      num_pages < 2 || num_pages > INT32_MAX) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[kv memory] ",
                        spec.num_layers,
                        " layers, ",
                        num_pages,
                        " pages of ",
                        spec.page_size,
                        " tokens, ",
                        spec.num_kv_heads,
                        " kv heads of ",
                        spec.head_dim,
                        "; expected positive sizes and at least 2 pages"));
  }
  if (spec.dtype != DType::kF32 && spec.dtype != DType::kBF16) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[kv memory] dtype ", to_string(spec.dtype), "; expected f32 or bf16"));
  }
  return {spec.num_layers, num_pages, 2, spec.page_size, spec.num_kv_heads, spec.head_dim};
}

struct CopyRows {
  std::byte* pages;
  int64_t layer_bytes;
  int64_t from;  // bytes into the layer
  int64_t to;
  int64_t half_bytes;  // of k, or of v, in one page
  int64_t row_bytes;   // what is copied of a half
};

void copy_rows_of_layer(const CopyRows& p, int layer) {
  std::byte* base = p.pages + layer * p.layer_bytes;
  for (int64_t half = 0; half < 2; ++half) {
    std::memcpy(base + p.to + half * p.half_bytes,
                base + p.from + half * p.half_bytes,
                static_cast<size_t>(p.row_bytes));
  }
}

}  // namespace

KvMemory::KvMemory(const KVSpec& spec, int64_t num_pages)
    : pages_(Tensor::empty(checked_shape(spec, num_pages), spec.dtype)) {}

int64_t KvMemory::layer_page_bytes() const {
  return pages_.stride(1) * element_bytes(pages_.dtype());
}

int64_t KvMemory::page_bytes() const {
  return layer_page_bytes() * pages_.dim(0);
}

void KvMemory::copy_rows(Stream& stream, int32_t from, int32_t to, int64_t num_rows) {
  MSTAR_CHECK(num_rows >= 0 && num_rows <= pages_.dim(3), "num_rows=", num_rows);
  const int64_t element = element_bytes(pages_.dtype());
  const CopyRows params{.pages = pages_.bytes(),
                        .layer_bytes = pages_.stride(0) * element,
                        .from = from * layer_page_bytes(),
                        .to = to * layer_page_bytes(),
                        .half_bytes = pages_.stride(2) * element,
                        .row_bytes = num_rows * pages_.stride(3) * element};
  as_cpu(stream).enqueue(
      "copy_page_rows", static_cast<int>(pages_.dim(0)), params, &copy_rows_of_layer);
}

void KvMemory::copy_out(int32_t page, std::byte* host) const {
  const auto size = static_cast<size_t>(layer_page_bytes());
  for (int64_t layer = 0; layer < pages_.dim(0); ++layer) {
    std::memcpy(host + static_cast<size_t>(layer) * size,
                layer_view(layer).bytes() + page * layer_page_bytes(),
                size);
  }
}

void KvMemory::copy_in(const std::byte* host, int32_t page) {
  const auto size = static_cast<size_t>(layer_page_bytes());
  for (int64_t layer = 0; layer < pages_.dim(0); ++layer) {
    std::memcpy(layer_view(layer).bytes() + page * layer_page_bytes(),
                host + static_cast<size_t>(layer) * size,
                size);
  }
}

}  // namespace mstar

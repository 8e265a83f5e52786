#include "mstar/kernels/cpu/embedding.h"
#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

// clang-format off
#include "mstar/kernels/cpu/rows-inl.h"

// clang-format on

MSTAR_VEC int64_t id_at(const RowMoveParams& p, int64_t index) {
  return p.ids_dtype == DType::kI64 ? static_cast<const int64_t*>(p.ids)[index]
                                    : static_cast<const int32_t*>(p.ids)[index];
}

template <typename T>
void scale_row(const T* x, float scale, int64_t dim, AnyRow out) {
  for_vectors(
      0,
      dim,
      [&](int64_t i) { out.put(i, load(x + i) * scale); },
      [&](int64_t i, int n) { out.put(i, load_n(x + i, n) * scale, n); });
}

MSTAR_VEC char* bytes_of(const Rows& rows, int64_t row, int64_t element_bytes) {
  return static_cast<char*>(rows.data) + row * rows.stride * element_bytes;
}

}  // namespace

void embedding(const RowMoveParams& p, int task) {
  const Share share = share_of(p.num_ids, task, p.num_tasks);
  for (int64_t index = share.begin; index < share.end; ++index) {
    const int64_t id = id_at(p, index);
    const AnyRow out = row_at<AnyRow>(p.out, index);
    if (id < 0 || id >= p.x_rows) {
      for_vectors(
          0,
          p.dim,
          [&](int64_t i) { out.put(i, zero()); },
          [&](int64_t i, int n) { out.put(i, zero(), n); });
      continue;
    }
    const int64_t place = id * p.x.stride;
    if (p.x.dtype == DType::kF32) {
      scale_row(static_cast<const float*>(p.x.data) + place, p.scale, p.dim, out);
    } else if (p.x.dtype == DType::kBF16) {
      scale_row(static_cast<const bfloat16*>(p.x.data) + place, p.scale, p.dim, out);
    } else {
      scale_row(static_cast<const float16*>(p.x.data) + place, p.scale, p.dim, out);
    }
  }
}

void gather_rows(const RowMoveParams& p, int task) {
  const Share share = share_of(p.num_ids, task, p.num_tasks);
  const auto size = static_cast<size_t>(p.dim * p.element_bytes);
  for (int64_t index = share.begin; index < share.end; ++index) {
    const int64_t row = id_at(p, index);
    char* out = bytes_of(p.out, index, p.element_bytes);
    if (row >= 0 && row < p.x_rows) {
      __builtin_memcpy(out, bytes_of(p.x, row, p.element_bytes), size);
    } else {
      __builtin_memset(out, 0, size);
    }
  }
}

void scatter_rows(const RowMoveParams& p, int task) {
  const Share share = share_of(p.num_ids, task, p.num_tasks);
  const auto size = static_cast<size_t>(p.dim * p.element_bytes);
  for (int64_t index = share.begin; index < share.end; ++index) {
    const int64_t row = id_at(p, index);
    if (row >= 0 && row < p.out_rows) {
      __builtin_memcpy(
          bytes_of(p.out, row, p.element_bytes), bytes_of(p.x, index, p.element_bytes), size);
    }
  }
}

// Tasks share the columns, so that each target row is summed by one task in the order of i.
void scatter_add_rows(const RowMoveParams& p, int task) {
  const Share columns = share_of(p.dim, task, p.num_tasks);
  for (int64_t index = 0; index < p.num_ids; ++index) {
    const int64_t row = id_at(p, index);
    if (row < 0 || row >= p.out_rows) {
      continue;
    }
    const Vec weight = set(p.weights[index]);
    const AnyRow x = row_at<AnyRow>(p.x, index);
    const AnyRow out = row_at<AnyRow>(p.out, row);
    for_vectors(
        columns.begin,
        columns.end,
        [&](int64_t i) { out.put(i, fma(weight, x.get(i), out.get(i))); },
        [&](int64_t i, int n) { out.put(i, fma(weight, x.get(i, n), out.get(i, n)), n); });
  }
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE

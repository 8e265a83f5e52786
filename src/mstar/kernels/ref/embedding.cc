#include "mstar/kernels/ref/embedding.h"

#include <algorithm>
#include <cstring>

#include "mstar/kernels/ref/dequantize.h"
#include "mstar/kernels/ref/element.h"

namespace mstar::ref {

namespace {

int64_t id_of(const RowMoveParams& p, int64_t index) {
  return p.ids_dtype == DType::kI64 ? static_cast<const int64_t*>(p.ids)[index]
                                    : static_cast<const int32_t*>(p.ids)[index];
}

void copy_row(const RowMoveParams& p, int64_t from, int64_t to) {
  const int64_t bytes = element_bytes(p.x.dtype);
  std::memcpy(static_cast<char*>(p.out.data) + to * p.out.stride * bytes,
              static_cast<const char*>(p.x.data) + from * p.x.stride * bytes,
              static_cast<size_t>(p.dim * bytes));
}

}  // namespace

void embedding(const RowMoveParams& p, int task) {
  const Range range = share(p.num_ids, task, p.num_tasks);
  for (int64_t index = range.begin; index < range.end; ++index) {
    const int64_t id = id_of(p, index);
    for (int64_t column = 0; column < p.dim; ++column) {
      const bool known = id >= 0 && id < p.x_rows;
      store(p.out, index, column, known ? load(p.x, id, column) * p.scale : 0.0);
    }
  }
}

void quantized_embedding(const RowMoveParams& p, int task) {
  constexpr int64_t kStep = 256;  // whole blocks of every type
  const DTypeInfo& layout = info(p.x.dtype);
  const Range range = share(p.num_ids, task, p.num_tasks);
  for (int64_t index = range.begin; index < range.end; ++index) {
    const int64_t id = id_of(p, index);
    const bool known = id >= 0 && id < p.x_rows;
    for (int64_t begin = 0; begin < p.dim; begin += kStep) {
      const int64_t count = std::min(kStep, p.dim - begin);
      float values[kStep] = {};
      if (known) {
        const int64_t block = (id * p.x.stride + begin) / layout.block_size;
        const auto* bytes = static_cast<const std::byte*>(p.x.data) + block * layout.block_bytes;
        dequantize(p.x.dtype, bytes, count, values);
      }
      dispatch_activation(p.out.dtype, [&]<typename T>() {
        T* out = static_cast<T*>(p.out.data) + index * p.out.stride + begin;
        for (int64_t column = 0; column < count; ++column) {
          out[column] = from_float<T>(values[column] * p.scale);
        }
      });
    }
  }
}

void gather_rows(const RowMoveParams& p, int task) {
  const Range range = share(p.num_ids, task, p.num_tasks);
  for (int64_t index = range.begin; index < range.end; ++index) {
    const int64_t row = id_of(p, index);
    if (row >= 0 && row < p.x_rows) {
      copy_row(p, row, index);
    } else {
      const int64_t bytes = element_bytes(p.out.dtype);
      std::memset(static_cast<char*>(p.out.data) + index * p.out.stride * bytes,
                  0,
                  static_cast<size_t>(p.dim * bytes));
    }
  }
}

void scatter_rows(const RowMoveParams& p, int task) {
  const Range range = share(p.num_ids, task, p.num_tasks);
  for (int64_t index = range.begin; index < range.end; ++index) {
    const int64_t row = id_of(p, index);
    if (row >= 0 && row < p.out_rows) {
      copy_row(p, index, row);
    }
  }
}

// Tasks share the columns, so that each target row is summed by one task in the order of i.
void scatter_add_rows(const RowMoveParams& p, int task) {
  const Range columns = share(p.dim, task, p.num_tasks);
  for (int64_t index = 0; index < p.num_ids; ++index) {
    const int64_t row = id_of(p, index);
    if (row < 0 || row >= p.out_rows) {
      continue;
    }
    const double weight = p.weights[index];
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      store(p.out, row, column, load(p.out, row, column) + weight * load(p.x, index, column));
    }
  }
}

}  // namespace mstar::ref

#include "mstar/kernels/ops/resize.h"

#include <algorithm>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/kernels/cpu/resize_table.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::ops {

namespace {

PixelType pixel_type(const Tensor& x) {
  switch (x.dtype()) {
    case DType::kU8: return PixelType::kU8;
    case DType::kF32: return PixelType::kF32;
    case DType::kBF16: return PixelType::kBF16;
    default: break;
  }
  MSTAR_CHECK(false, "found ", x.to_string(), ", expected u8, f32 or bf16");
  __builtin_unreachable();
}

void check_pictures(const Tensor& x, const Tensor& out) {
  MSTAR_CHECK(x.num_dims() == 4 && out.num_dims() == 4 && x.is_contiguous() &&
                  out.is_contiguous() && x.dim(0) == out.dim(0) && x.dim(3) == out.dim(3) &&
                  x.dtype() == out.dtype() && (x.dim(1) > 0 && x.dim(2) > 0),
              "x ",
              x.to_string(),
              " out ",
              out.to_string());
}

// Memory of one axis' table, alive until the passes are enqueued.
struct TableMemory {
  Tensor numbers;  // begin, count, precision
  Tensor weights;  // f32 or i32
  Tensor spare;    // one output's weights as doubles
  ResizeTable table;
};

TableMemory make_table(Stream& stream, const ResizeAxis& axis, bool fixed) {
  TableMemory memory;
  memory.table.max_taps = max_taps(axis);
  const int64_t taps = memory.table.max_taps;
  memory.numbers = stream.empty({2 * axis.out_size + 1}, DType::kI32);
  memory.weights = stream.empty({axis.out_size * taps}, fixed ? DType::kI32 : DType::kF32);
  memory.table.begin = memory.numbers.data<int32_t>();
  memory.table.count = memory.table.begin + axis.out_size;
  if (fixed) {
    memory.spare = stream.empty({2 * taps}, DType::kF32);
    memory.table.scratch = reinterpret_cast<double*>(memory.spare.bytes());
    memory.table.fixed = memory.weights.data<int32_t>();
    memory.table.precision = memory.table.count + axis.out_size;
  } else {
    memory.table.weights = memory.weights.data<float>();
  }
  return memory;
}

struct TableParams {
  ResizeAxis axes[2];
  ResizeTable tables[2];
};

void enqueue_pass(CpuStream& stream, const char* name, ResizePass pass) {
  const int64_t elements = pass.num_outputs * pass.columns;
  const int64_t wanted =
      std::clamp<int64_t>(elements / 4096, 1, std::min<int64_t>(pass.num_outputs, 64));
  pass.outputs_per_task = (pass.num_outputs + wanted - 1) / wanted;
  const int64_t num_tasks = (pass.num_outputs + pass.outputs_per_task - 1) / pass.outputs_per_task;
  stream.enqueue(name, static_cast<int>(num_tasks), pass, MSTAR_BY_ISA(resize_task));
}

struct NearestParams {
  const std::byte* x;
  std::byte* out;
  int64_t in_height, in_width, out_height, out_width;
  int64_t pixel_bytes;
  int64_t num_rows;  // output rows of all pictures
  int64_t rows_per_task;
};

void copy_nearest(const NearestParams& p, int task) {
  const int64_t begin = task * p.rows_per_task;
  const int64_t end = std::min(begin + p.rows_per_task, p.num_rows);
  const int64_t row_bytes = p.out_width * p.pixel_bytes;
  int64_t copied = -1;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t line = row / p.out_height * p.in_height +
                         nearest_input(row % p.out_height, p.in_height, p.out_height);
    std::byte* out = p.out + row * row_bytes;
    if (line == copied) {  // the row above already is this one
      std::memcpy(out, out - row_bytes, static_cast<size_t>(row_bytes));
      continue;
    }
    copied = line;
    const std::byte* from = p.x + line * p.in_width * p.pixel_bytes;
    for (int64_t to = 0; to < p.out_width; ++to, out += p.pixel_bytes) {
      const int64_t column = nearest_input(to, p.in_width, p.out_width);
      std::memcpy(out, from + column * p.pixel_bytes, static_cast<size_t>(p.pixel_bytes));
    }
  }
}

void resize_nearest(CpuStream& stream, const Tensor& x, const Tensor& out) {
  NearestParams params{x.bytes(),
                       out.bytes(),
                       x.dim(1),
                       x.dim(2),
                       out.dim(1),
                       out.dim(2),
                       x.dim(3) * element_bytes(x.dtype()),
                       out.dim(0) * out.dim(1),
                       0};
  // An even number of rows, so that twins of a doubling fall into one task.
  const int64_t wanted = std::clamp<int64_t>(out.size_bytes() / (64 << 10), 1, 64);
  params.rows_per_task = ((params.num_rows + wanted - 1) / wanted + 1) / 2 * 2;
  const int64_t num_tasks = (params.num_rows + params.rows_per_task - 1) / params.rows_per_task;
  stream.enqueue("resize_nearest", static_cast<int>(num_tasks), params, &copy_nearest);
}

}  // namespace

void resize(Stream& stream, const Tensor& x, ResizeFilter filter, bool antialias, Tensor& out) {
  check_pictures(x, out);
  CpuStream& cpu = as_cpu(stream);
  if (out.num_elements() == 0) {
    return;
  }
  if (filter == ResizeFilter::kNearest) {
    resize_nearest(cpu, x, out);
    return;
  }
  const PixelType type = pixel_type(x);
  const bool bytes = type == PixelType::kU8;
  const ResizeAxis width{x.dim(2), out.dim(2), filter, antialias};
  const ResizeAxis height{x.dim(1), out.dim(1), filter, antialias};
  const TableMemory width_table = make_table(stream, width, bytes);
  const TableMemory height_table = make_table(stream, height, bytes);
  cpu.enqueue("resize_tables",
              2,
              TableParams{{width, height}, {width_table.table, height_table.table}},
              [](const TableParams& p, int task) { fill_table(p.axes[task], p.tables[task]); });

  const Tensor middle =
      stream.empty({x.dim(0), x.dim(1), out.dim(2), x.dim(3)}, bytes ? DType::kU8 : DType::kF32);
  const PixelType middle_type = bytes ? PixelType::kU8 : PixelType::kF32;
  enqueue_pass(cpu,
               "resize_width",
               {width_table.table,
                x.bytes(),
                middle.bytes(),
                type,
                middle_type,
                x.dim(2),
                out.dim(2),
                x.dim(3),
                x.dim(0) * x.dim(1) * out.dim(2)});
  enqueue_pass(cpu,
               "resize_height",
               {height_table.table,
                middle.bytes(),
                out.bytes(),
                middle_type,
                type,
                x.dim(1),
                out.dim(1),
                out.dim(2) * x.dim(3),
                x.dim(0) * out.dim(1)});
}

void upsample_nearest_2x(Stream& stream, const Tensor& x, Tensor& out) {
  check_pictures(x, out);
  MSTAR_CHECK(out.dim(1) == 2 * x.dim(1) && out.dim(2) == 2 * x.dim(2),
              "x ",
              x.to_string(),
              " out ",
              out.to_string());
  if (out.num_elements() > 0) {
    resize_nearest(as_cpu(stream), x, out);
  }
}

}  // namespace mstar::ops

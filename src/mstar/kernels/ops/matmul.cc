#include "mstar/kernels/ops/matmul.h"

#include <algorithm>
#include <array>

#include "mstar/kernels/cpu/packed_weight.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

namespace {

bool is_activation(const Tensor& x) {
  return (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) && x.num_dims() == 2 &&
         x.has_dense_rows();
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// How a problem is cut into tasks: a grid of ranges, rows first.
struct Grid {
  int64_t num_tiles = 0;
  int64_t num_panels = 0;
  int64_t tiles_per_task = 1;
  int64_t panels_per_task = 1;
  int64_t row_tasks = 1;
  int64_t panel_tasks = 1;

  int num_tasks() const { return static_cast<int>(row_tasks * panel_tasks); }

  MatmulRange range(int64_t task) const {
    const int64_t row_task = task % row_tasks;
    const int64_t panel_task = task / row_tasks;
    return {row_task * tiles_per_task,
            std::min(num_tiles, (row_task + 1) * tiles_per_task),
            panel_task * panels_per_task,
            std::min(num_panels, (panel_task + 1) * panels_per_task)};
  }
};

// Rows that one task takes: as many as keep their activations for a stretch of k in the
// second-level cache.
constexpr int64_t kTaskRows = 192;
// Tiles are so fast that weights would arrive too slowly for so few rows.
constexpr int64_t kTaskRowsOfTiles = 384;

// Rounded activations of a task, which come back for every panel: the second-level cache of
// processors with tiles (2 MiB) holds them beside the weights.
constexpr int64_t kInt8TaskBytes = 1280 << 10;

int64_t task_rows(PackedX form, int64_t k_padded) {
  if (is_int8_tiles(form)) {
    const int64_t row_bytes = std::max<int64_t>(packed_bytes(form, k_padded), 1);
    return std::clamp<int64_t>(kInt8TaskBytes / row_bytes / 16 * 16, 32, kInt8TileTaskRows);
  }
  return form == PackedX::kBF16Tiles ? kTaskRowsOfTiles : kTaskRows;
}

// Bytes of weight that make a task of a few rows: enough to keep the memory's prefetchers going,
// few enough that the threads finish together.
constexpr int64_t kTaskBytes = 128 << 10;
// A small weight is cut finer, or one thread would wait for the other's last task.
constexpr int64_t kFewestTasksPerThread = 4;
// Tasks for each thread where rows are many: the last one idles the others for half of itself.
constexpr int64_t kTasksPerThread = 64;
// Tiles want broad tasks, or the activations are read too often.
constexpr int64_t kTasksOfTiles = 8;

Grid make_grid(const CpuStream& stream,
               const MatmulKernels& kernels,
               const WeightPanels& weight,
               PackedX form,
               int64_t m) {
  Grid grid;
  const int tile_rows = rows_of_tile(kernels, form);
  grid.num_tiles = num_row_tiles(m, tile_rows);
  grid.num_panels = ceil_div(weight.n, kernels.panel_width);
  grid.row_tasks = ceil_div(m, task_rows(form, weight.k_padded));
  grid.tiles_per_task = ceil_div(grid.num_tiles, grid.row_tasks);
  if (form == PackedX::kBF16Tiles) {
    grid.tiles_per_task += grid.tiles_per_task % 2;  // they go in pairs
  }
  grid.row_tasks = ceil_div(grid.num_tiles, grid.tiles_per_task);
  const int64_t step = kernels.panel_step(weight.dtype, form, m);
  int64_t wanted =
      std::min(kTaskBytes / std::max<int64_t>(weight.panel_bytes, 1),
               ceil_div(grid.num_panels, kFewestTasksPerThread * stream.num_threads()));
  if (grid.num_tiles > 4) {
    const int64_t per_thread = form == PackedX::kBF16Tiles ? kTasksOfTiles : kTasksPerThread;
    const int64_t tasks = per_thread * stream.num_threads();
    wanted = std::max<int64_t>(8, grid.num_panels * grid.row_tasks / tasks);
  }
  const int64_t most =
      form == PackedX::kBF16Tiles || is_int8_tiles(form)
          ? grid.num_panels
          : kernels.scratch_floats / (grid.tiles_per_task * tile_rows * kernels.panel_width);
  grid.panels_per_task = std::max(step, std::min(wanted, most) / step * step);
  grid.panel_tasks = ceil_div(grid.num_panels, grid.panels_per_task);
  return grid;
}

struct PackParams {
  PackRowsParams rows;
  const MatmulKernels* kernels;
  int64_t num_tiles;
  int num_tasks;
};

void enqueue_pack(CpuStream& stream, const MatmulKernels& kernels, const PackRowsParams& rows) {
  PackParams params{rows, &kernels, num_row_tiles(rows.m, rows_of_tile(kernels, rows.form)), 1};
  if (rows.m * rows.k >= 32 << 10) {  // below, waking another thread costs more
    params.num_tasks =
        static_cast<int>(std::min<int64_t>(params.num_tiles, int64_t{4} * stream.num_threads()));
  }
  stream.enqueue(
      "matmul_pack_rows", params.num_tasks, params, +[](const PackParams& p, int task) {
        p.kernels->pack_rows(
            p.rows, p.num_tiles * task / p.num_tasks, p.num_tiles * (task + 1) / p.num_tasks);
      });
}

// Rows packed at a time, so that the copy of a long prompt's activations stays small.
int64_t rows_per_pass(int64_t k) {
  constexpr int64_t kPassBytes = 16 << 20;
  constexpr int64_t kStep = 3 * kTaskRowsOfTiles;
  static_assert(kStep % kTaskRows == 0);
  return std::max<int64_t>(kStep, kPassBytes / 4 / std::max<int64_t>(k, 1) / kStep * kStep);
}

void set_epilogue(const Epilogue& epilogue, const Tensor& out, MatmulProblem& problem) {
  problem.out = out.bytes();
  problem.out_stride = out.stride(0);
  problem.out_is_bf16 = out.dtype() == DType::kBF16;
  problem.alpha = epilogue.alpha;
  problem.activation = epilogue.activation;
  if (epilogue.bias.defined()) {
    problem.bias = epilogue.bias.bytes();
    problem.bias_is_bf16 = epilogue.bias.dtype() == DType::kBF16;
  }
  if (epilogue.residual.defined()) {
    problem.residual = epilogue.residual.bytes();
    problem.residual_stride = epilogue.residual.stride(0);
    problem.residual_is_bf16 = epilogue.residual.dtype() == DType::kBF16;
  }
}

void check_epilogue(const Epilogue& epilogue, const Tensor& out) {
  if (epilogue.bias.defined()) {
    MSTAR_CHECK(epilogue.bias.num_elements() == out.dim(1) && epilogue.bias.is_contiguous() &&
                    (epilogue.bias.dtype() == DType::kF32 || epilogue.bias.dtype() == DType::kBF16),
                "bias ",
                epilogue.bias.to_string());
  }
  if (epilogue.residual.defined()) {
    MSTAR_CHECK(is_activation(epilogue.residual) && epilogue.residual.shape() == out.shape(),
                "residual ",
                epilogue.residual.to_string());
  }
}

const void* row_at(const void* base, bool is_bf16, int64_t index) {
  return static_cast<const std::byte*>(base) + index * (is_bf16 ? 2 : 4);
}

// The problem of `num_rows` rows further down, the packed activations aside.
MatmulProblem rows_below(MatmulProblem problem, int64_t rows) {
  problem.out =
      const_cast<void*>(row_at(problem.out, problem.out_is_bf16, rows * problem.out_stride));
  if (problem.residual != nullptr) {
    problem.residual =
        row_at(problem.residual, problem.residual_is_bf16, rows * problem.residual_stride);
  }
  return problem;
}

struct LinearParams {
  MatmulProblem problem;
  Grid grid;
  const MatmulKernels* kernels;
};

PackRowsParams pack_params(const Tensor& x, const PackedWeight::Data& weight, PackedX form) {
  PackRowsParams rows;
  rows.x = x.bytes();
  rows.x_stride = x.stride(0);
  rows.x_is_bf16 = x.dtype() == DType::kBF16;
  rows.form = form;
  rows.m = x.dim(0);
  rows.k = weight.k;
  rows.k_padded = weight.k_padded;
  return rows;
}

}  // namespace

namespace ops {

void linear(Stream& stream,
            const Tensor& x,
            const PackedWeight& weight,
            const Epilogue& epilogue,
            Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  const PackedWeight::Data& data = weight.data();
  MSTAR_CHECK(is_activation(x) && x.dim(1) == data.k, "x ", x.to_string(), " k=", data.k);
  MSTAR_CHECK(is_activation(out) && out.dim(0) == x.dim(0) && out.dim(1) == data.n,
              "out ",
              out.to_string(),
              " n=",
              data.n);
  check_epilogue(epilogue, out);
  const MatmulKernels& kernels = matmul_kernels(data.isa);
  MatmulProblem whole;
  whole.weight = data.view();
  whole.x_form = data.form_of(x.dtype(), x.dim(0));
  set_epilogue(epilogue, out, whole);
  const int64_t m = x.dim(0);
  const int64_t pass = rows_per_pass(data.k_padded);
  for (int64_t first = 0; first < m && data.n > 0; first += pass) {
    const Tensor rows = x.slice(0, first, std::min(m, first + pass));
    LinearParams params{rows_below(whole, first), {}, &kernels};
    params.problem.m = rows.dim(0);
    params.grid = make_grid(cpu, kernels, whole.weight, whole.x_form, rows.dim(0));
    Tensor packed;
    if (rows.dim(0) == 1 && rows.dtype() == DType::kF32 && whole.x_form == PackedX::kF32 &&
        data.k == data.k_padded) {
      params.problem.x = rows.bytes();
    } else {
      packed = stream.empty(
          {packed_rows(whole.x_form, rows.dim(0)), packed_row_bytes(whole.x_form, data.k_padded)},
          DType::kU8);
      PackRowsParams pack = pack_params(rows, data, whole.x_form);
      pack.out = packed.bytes();
      enqueue_pack(cpu, kernels, pack);
      params.problem.x = packed.bytes();
    }
    cpu.enqueue(
        "linear", params.grid.num_tasks(), params, +[](const LinearParams& p, int task) {
          p.kernels->run(p.problem, p.grid.range(task));
        });
  }
}

}  // namespace ops

namespace {

// A grouped op's arguments travel in its params, so that a captured graph owns the list of
// weights; a few sizes keep small groups cheap.
template <int kCapacity>
struct GroupedParams {
  MatmulProblem common;  // all but the weight's data, the rows and x
  PackRowsParams pack;
  const int32_t* indptr;  // [num_experts + 1]
  const MatmulKernels* kernels;
  int64_t num_panels;
  int64_t panels_per_task;
  int num_experts;
  int panel_tasks;
  const uint8_t* panels[kCapacity];
  const float* row_scales[kCapacity];
};

template <int kCapacity>
void run_grouped(const GroupedParams<kCapacity>& p, int task) {
  const int expert = task / p.panel_tasks;
  const int64_t first = p.indptr[expert];
  const int64_t rows = p.indptr[expert + 1] - first;
  if (rows <= 0) {
    return;
  }
  MatmulProblem problem = rows_below(p.common, first);
  problem.m = rows;
  problem.x = static_cast<const std::byte*>(p.pack.out) +
              first * packed_row_bytes(p.pack.form, p.pack.k_padded);
  problem.weight.data = p.panels[expert];
  problem.weight.row_scales = p.row_scales[expert];
  const int tile_rows = rows_of_tile(*p.kernels, p.pack.form);
  const int64_t num_tiles = num_row_tiles(rows, tile_rows);
  const int64_t step = kTaskRows / tile_rows;
  const int64_t panel_begin = task % p.panel_tasks * p.panels_per_task;
  const int64_t panel_end = std::min(p.num_panels, panel_begin + p.panels_per_task);
  for (int64_t tile = 0; tile < num_tiles; tile += step) {
    p.kernels->run(problem, {tile, std::min(num_tiles, tile + step), panel_begin, panel_end});
  }
}

template <int kCapacity>
void pack_grouped(const GroupedParams<kCapacity>& p, int expert) {
  const int64_t first = p.indptr[expert];
  PackRowsParams rows = p.pack;
  rows.m = p.indptr[expert + 1] - first;
  if (rows.m <= 0) {
    return;
  }
  rows.x = row_at(rows.x, rows.x_is_bf16, first * rows.x_stride);
  rows.out = static_cast<std::byte*>(rows.out) + first * packed_row_bytes(rows.form, rows.k_padded);
  p.kernels->pack_rows(rows, 0, num_row_tiles(rows.m, rows_of_tile(*p.kernels, rows.form)));
}

template <int kCapacity>
void enqueue_grouped(CpuStream& stream,
                     const std::vector<PackedWeight>& weights,
                     const GroupedParams<1>& common) {
  GroupedParams<kCapacity> params{};
  params.common = common.common;
  params.pack = common.pack;
  params.indptr = common.indptr;
  params.kernels = common.kernels;
  params.num_panels = common.num_panels;
  params.panels_per_task = common.panels_per_task;
  params.num_experts = common.num_experts;
  params.panel_tasks = common.panel_tasks;
  for (size_t expert = 0; expert < weights.size(); ++expert) {
    const WeightPanels view = weights[expert].data().view();
    params.panels[expert] = view.data;
    params.row_scales[expert] = view.row_scales;
  }
  stream.enqueue("grouped_linear_pack_rows", params.num_experts, params, &pack_grouped<kCapacity>);
  stream.enqueue(
      "grouped_linear", params.num_experts * params.panel_tasks, params, &run_grouped<kCapacity>);
}

constexpr size_t kMaxExperts = 2048;

}  // namespace

namespace ops {

void grouped_linear(Stream& stream,
                    const Tensor& x,
                    const std::vector<PackedWeight>& weights,
                    const Tensor& indptr,
                    const Epilogue& epilogue,
                    Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  MSTAR_CHECK(!weights.empty() && weights.size() <= kMaxExperts, "experts=", weights.size());
  const PackedWeight::Data& first = weights.front().data();
  for (const PackedWeight& weight : weights) {
    const PackedWeight::Data& data = weight.data();
    MSTAR_CHECK(data.n == first.n && data.k == first.k && data.dtype == first.dtype &&
                    data.isa == first.isa && data.int8_activations == first.int8_activations,
                "experts differ in shape or type");
  }
  MSTAR_CHECK(is_activation(x) && x.dim(1) == first.k, "x ", x.to_string(), " k=", first.k);
  MSTAR_CHECK(is_activation(out) && out.dim(0) == x.dim(0) && out.dim(1) == first.n,
              "out ",
              out.to_string());
  MSTAR_CHECK(
      indptr.num_elements() == static_cast<int64_t>(weights.size()) + 1 && indptr.is_contiguous(),
      "indptr ",
      indptr.to_string());
  MSTAR_CHECK(!epilogue.bias.defined(), "experts have no bias");
  check_epilogue(epilogue, out);
  if (x.dim(0) == 0 || first.n == 0) {
    return;
  }
  GroupedParams<1> params{};
  params.kernels = &matmul_kernels(first.isa);
  params.common.weight = first.view();
  set_epilogue(epilogue, out, params.common);
  params.pack = pack_params(x, first, first.form_of(x.dtype(), 1));  // experts may have one row
  params.indptr = indptr.data<int32_t>();
  params.num_experts = static_cast<int>(weights.size());
  params.num_panels = ceil_div(first.n, params.kernels->panel_width);
  const int64_t most = params.kernels->scratch_floats / (kTaskRows * params.kernels->panel_width);
  const int64_t wanted = ceil_div(int64_t{8} * cpu.num_threads(), params.num_experts);
  params.panels_per_task = std::clamp<int64_t>(ceil_div(params.num_panels, wanted), 1, most);
  params.panel_tasks = static_cast<int>(ceil_div(params.num_panels, params.panels_per_task));
  params.common.x_form = params.pack.form;
  const Tensor packed =
      stream.empty({x.dim(0), packed_row_bytes(params.pack.form, first.k_padded)}, DType::kU8);
  params.pack.out = packed.bytes();
  if (weights.size() <= 16) {
    enqueue_grouped<16>(cpu, weights, params);
  } else if (weights.size() <= 128) {
    enqueue_grouped<128>(cpu, weights, params);
  } else {
    enqueue_grouped<kMaxExperts>(cpu, weights, params);
  }
}

}  // namespace ops

namespace {

// matmul_nt packs b as f32 panels into a temporary: [batch][num_panels][k_padded][panel_width].
struct MatmulNtParams {
  MatmulProblem problem;  // of batch 0
  PackRowsParams pack_a;
  const void* b;
  float* b_panels;
  int64_t b_stride;  // elements from row to row
  bool b_is_bf16;
  int64_t a_batch_stride;  // elements
  int64_t b_batch_stride;
  int64_t out_batch_stride;
  int64_t num_panels;
  Grid grid;
  const MatmulKernels* kernels;
};

void pack_b_panel(const MatmulNtParams& p, int task) {
  const int64_t batch = task / p.num_panels;
  const int64_t first = task % p.num_panels * p.kernels->panel_width;
  const int64_t width = p.kernels->panel_width;
  const WeightPanels& weight = p.problem.weight;
  float* out = p.b_panels + task * (weight.panel_bytes / 4);
  const auto* base = static_cast<const std::byte*>(
      row_at(p.b, p.b_is_bf16, batch * p.b_batch_stride + first * p.b_stride));
  const int64_t columns = std::min(width, weight.n - first);
  std::fill_n(out, weight.panel_bytes / 4, 0.0F);
  for (int64_t column = 0; column < columns; ++column) {
    const void* row = row_at(base, p.b_is_bf16, column * p.b_stride);
    for (int64_t k = 0; k < p.pack_a.k; ++k) {
      out[k * width + column] = p.b_is_bf16 ? to_float(static_cast<const bfloat16*>(row)[k])
                                            : static_cast<const float*>(row)[k];
    }
  }
}

void pack_a_batch(const MatmulNtParams& p, int batch) {
  PackRowsParams rows = p.pack_a;
  rows.x = row_at(rows.x, rows.x_is_bf16, batch * p.a_batch_stride);
  rows.out = static_cast<std::byte*>(rows.out) +
             batch * rows.m * packed_row_bytes(rows.form, rows.k_padded);
  p.kernels->pack_rows(rows, 0, p.grid.num_tiles);
}

void run_nt(const MatmulNtParams& p, int task) {
  const int64_t batch = task / p.grid.num_tasks();
  MatmulProblem problem = p.problem;
  problem.x = static_cast<const std::byte*>(p.pack_a.out) +
              batch * problem.m * packed_row_bytes(p.pack_a.form, p.pack_a.k_padded);
  problem.weight.data = reinterpret_cast<const uint8_t*>(
      p.b_panels + batch * p.num_panels * (problem.weight.panel_bytes / 4));
  problem.out =
      const_cast<void*>(row_at(problem.out, problem.out_is_bf16, batch * p.out_batch_stride));
  p.kernels->run(problem, p.grid.range(task % p.grid.num_tasks()));
}

Tensor with_batch(const Tensor& x) {
  return x.num_dims() == 2 ? x.unsqueeze(0) : x;
}

}  // namespace

namespace ops {

void matmul_nt(Stream& stream, const Tensor& a, const Tensor& b, float alpha, Tensor& out) {
  const Tensor a3 = with_batch(a);
  const Tensor b3 = with_batch(b);
  const Tensor out3 = with_batch(out);
  MSTAR_CHECK(a3.num_dims() == 3 && b3.num_dims() == 3 && out3.num_dims() == 3 &&
                  b3.dim(0) == a3.dim(0) && out3.dim(0) == a3.dim(0) && b3.dim(2) == a3.dim(2) &&
                  out3.dim(1) == a3.dim(1) && out3.dim(2) == b3.dim(1),
              a.to_string(),
              " times ",
              b.to_string(),
              " to ",
              out.to_string());
  const int64_t batch = a3.dim(0);
  const int64_t m = a3.dim(1);
  const int64_t n = b3.dim(1);
  if (batch * m * n == 0) {
    return;
  }
  for (const Tensor& x : {a3, b3, out3}) {
    MSTAR_CHECK(is_activation(x.select(0, 0)), x.to_string());
  }
  CpuStream& cpu = as_cpu(stream);
  MatmulNtParams p{};
  p.kernels = &matmul_kernels(active_isa());
  const int64_t k_padded = ceil_div(a3.dim(2), 8) * 8;
  p.problem.weight.n = n;
  p.problem.weight.k_padded = k_padded;
  p.problem.weight.panel_bytes = k_padded * p.kernels->panel_width * 4;
  p.problem.m = m;
  p.grid = make_grid(cpu, *p.kernels, p.problem.weight, PackedX::kF32, m);
  p.num_panels = p.grid.num_panels;
  set_epilogue(Epilogue{}, out3.select(0, 0), p.problem);
  p.problem.alpha = alpha;
  p.pack_a = {a3.bytes(),
              a3.stride(1),
              a3.dtype() == DType::kBF16,
              PackedX::kF32,
              m,
              a3.dim(2),
              k_padded,
              nullptr};
  p.b = b3.bytes();
  p.b_stride = b3.stride(1);
  p.b_is_bf16 = b3.dtype() == DType::kBF16;
  p.a_batch_stride = a3.stride(0);
  p.b_batch_stride = b3.stride(0);
  p.out_batch_stride = out3.stride(0);
  const Tensor a_tiles =
      stream.empty({batch * m, packed_row_bytes(PackedX::kF32, k_padded)}, DType::kU8);
  const Tensor b_panels =
      stream.empty({batch * p.num_panels, k_padded, p.kernels->panel_width}, DType::kF32);
  p.pack_a.out = a_tiles.bytes();
  p.b_panels = b_panels.data<float>();
  cpu.enqueue("matmul_nt_pack_a", static_cast<int>(batch), p, &pack_a_batch);
  cpu.enqueue("matmul_nt_pack_b", static_cast<int>(batch * p.num_panels), p, &pack_b_panel);
  cpu.enqueue("matmul_nt", static_cast<int>(batch) * p.grid.num_tasks(), p, &run_nt);
}

}  // namespace ops
}  // namespace mstar

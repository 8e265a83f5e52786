#include "mstar/kernels/ops/sampling.h"

#include <algorithm>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/kernels/cpu/philox.h"
#include "mstar/kernels/cpu/sample_row.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

namespace {

// Rows [task, task + num_tasks, …) of a matrix; each task has one piece of working memory.
struct RowTasks {
  int64_t num_rows;
  int num_tasks;
  float* scratch;
  int64_t scratch_elements;
};

// A matrix of f32 or bf16, any row stride.
struct Matrix {
  std::byte* data = nullptr;
  int64_t row_bytes = 0;
  int64_t n = 0;
  bool is_bf16 = false;
};

Matrix matrix_of(const Tensor& x) {
  if (!x.defined()) {
    return {};
  }
  MSTAR_CHECK(x.dtype() == DType::kF32 || x.dtype() == DType::kBF16, x.to_string());
  const Tensor rows = x.as_rows();
  MSTAR_CHECK(rows.has_dense_rows(), x.to_string());
  return {
      x.bytes(), rows.stride(0) * element_bytes(x.dtype()), rows.dim(1), x.dtype() == DType::kBF16};
}

SamplingInput row_of(const Matrix& x, int64_t row) {
  return {x.data + row * x.row_bytes, x.is_bf16, x.n};
}

// Row `row` of a dense matrix that may be absent.
template <typename T>
T* row_of(T* data, int64_t row, int64_t width) {
  return data == nullptr ? nullptr : data + row * width;
}

// The data of a contiguous tensor of that shape, or null when it is undefined.
template <typename T>
T* dense(const Tensor& x, const Shape& shape) {
  if (!x.defined()) {
    return nullptr;
  }
  MSTAR_CHECK(x.shape() == shape && x.is_contiguous(),
              "found ",
              x.to_string(),
              ", expected contiguous ",
              to_string(shape));
  return x.data<T>();
}

struct SampleParams {
  const SamplingKernels* kernels;
  Matrix logits;
  const std::byte* rows;
  const int32_t* seen;
  const int32_t* counts;
  const float* bias;
  int32_t* tokens;
  float* probs;
  RowTasks tasks;
};

void sample_rows(const SampleParams& p, int task) {
  const int64_t vocab = p.logits.n;
  const SampleScratch scratch =
      scratch_at(p.tasks.scratch + task * p.tasks.scratch_elements, vocab);
  for (int64_t row = task; row < p.tasks.num_rows; row += p.tasks.num_tasks) {
    SamplingRow parameters;
    std::memcpy(&parameters, p.rows + row * int64_t{sizeof(SamplingRow)}, sizeof(SamplingRow));
    const SampleInput input{row_of(p.logits, row),
                            row_of(p.seen, row, (vocab + 31) / 32),
                            row_of(p.counts, row, vocab),
                            row_of(p.bias, row, vocab)};
    p.tokens[row] = sample_row(*p.kernels, input, parameters, scratch, row_of(p.probs, row, vocab));
  }
}

struct TopKParams {
  const SamplingKernels* kernels;
  Matrix x;
  float* values;
  int32_t* indices;
  int64_t k;
  RowTasks tasks;
};

struct ArgmaxParams {
  const SamplingKernels* kernels;
  Matrix x;
  int32_t* indices;
  RowTasks tasks;
};

struct SoftmaxParams {
  const SamplingKernels* kernels;
  Matrix x;
  Matrix out;
  RowTasks tasks;
};

struct NormalParams {
  const SamplingKernels* kernels;
  uint64_t seed;
  uint64_t stream_id;
  std::byte* out;
  int64_t size;
  int64_t share;
  bool is_bf16;
};

// Through a small buffer for bf16, which is rounded from the same f32 numbers.
void fill_share(const NormalParams& p, int task) {
  const int64_t begin = task * p.share;
  const int64_t end = std::min(p.size, begin + p.share);
  if (!p.is_bf16) {
    p.kernels->normals(p.seed, p.stream_id, begin, end, reinterpret_cast<float*>(p.out) + begin);
    return;
  }
  auto* out = reinterpret_cast<bfloat16*>(p.out);
  float values[256];
  for (int64_t at = begin; at < end; at += 256) {
    const int64_t stop = std::min(end, at + 256);
    p.kernels->normals(p.seed, p.stream_id, at, stop, values);
    std::transform(values, values + (stop - at), out + at, to_bfloat16);
  }
}

int row_tasks(const CpuStream& stream, int64_t rows) {
  return static_cast<int>(std::clamp<int64_t>(rows, rows == 0 ? 0 : 1, stream.num_threads()));
}

}  // namespace

float philox_uniform(uint64_t seed, uint64_t stream, uint64_t step) {
  return static_cast<float>(philox(seed, step, stream).words[0] >> 8) * 0x1p-24F;
}

namespace ops {

void softmax(Stream& stream, const Tensor& x, Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  MSTAR_CHECK(x.shape() == out.shape(), "x ", x.to_string(), " out ", out.to_string());
  if (x.num_elements() == 0) {
    return;
  }
  const Matrix matrix = matrix_of(x);
  const int64_t rows = x.num_elements() / matrix.n;
  const int num_tasks = x.num_elements() < 8192 ? 1 : row_tasks(cpu, rows);
  const SoftmaxParams params{
      MSTAR_BY_ISA(sampling_kernels), matrix, matrix_of(out), {rows, num_tasks, nullptr, 0}};
  cpu.enqueue("softmax", num_tasks, params, [](const SoftmaxParams& p, int task) {
    for (int64_t row = task; row < p.tasks.num_rows; row += p.tasks.num_tasks) {
      p.kernels->softmax(row_of(p.x, row), p.out.data + row * p.out.row_bytes, p.out.is_bf16);
    }
  });
}

void top_k(Stream& stream, const Tensor& x, Tensor& values, Tensor& indices) {
  CpuStream& cpu = as_cpu(stream);
  const int64_t rows = x.dim(0);
  const int64_t k = values.dim(1);
  MSTAR_CHECK(x.dtype() == DType::kF32 && k <= x.dim(1), "k=", k, " of ", x.to_string());
  const int num_tasks = row_tasks(cpu, rows);
  const int64_t elements = scratch_elements(x.dim(1));
  const Tensor scratch = stream.empty({num_tasks, elements}, DType::kF32);
  const TopKParams params{MSTAR_BY_ISA(sampling_kernels),
                          matrix_of(x),
                          dense<float>(values, {rows, k}),
                          dense<int32_t>(indices, {rows, k}),
                          k,
                          {rows, num_tasks, scratch.data<float>(), elements}};
  if (k == 0) {
    return;
  }
  cpu.enqueue("top_k", num_tasks, params, [](const TopKParams& p, int task) {
    const SampleScratch memory =
        scratch_at(p.tasks.scratch + task * p.tasks.scratch_elements, p.x.n);
    for (int64_t row = task; row < p.tasks.num_rows; row += p.tasks.num_tasks) {
      top_k_row(
          *p.kernels, row_of(p.x, row), p.k, memory, p.values + row * p.k, p.indices + row * p.k);
    }
  });
}

void argmax(Stream& stream, const Tensor& x, Tensor& indices) {
  CpuStream& cpu = as_cpu(stream);
  const int64_t rows = x.dim(0);
  MSTAR_CHECK(x.dim(1) > 0, x.to_string());
  const int num_tasks = row_tasks(cpu, rows);
  const int64_t elements = (x.dim(1) / kSamplingPiece / 16 + 1) * 16;
  const Tensor scratch = stream.empty({num_tasks, elements}, DType::kF32);
  const ArgmaxParams params{MSTAR_BY_ISA(sampling_kernels),
                            matrix_of(x),
                            dense<int32_t>(indices, {rows}),
                            {rows, num_tasks, scratch.data<float>(), elements}};
  cpu.enqueue("argmax", num_tasks, params, [](const ArgmaxParams& p, int task) {
    for (int64_t row = task; row < p.tasks.num_rows; row += p.tasks.num_tasks) {
      p.indices[row] = argmax_row(
          *p.kernels, row_of(p.x, row), p.tasks.scratch + task * p.tasks.scratch_elements);
    }
  });
}

void sample(Stream& stream,
            const Tensor& logits,
            const Tensor& rows,
            const Tensor& seen,
            const Tensor& counts,
            const Tensor& logit_bias,
            Tensor& tokens,
            Tensor& probs) {
  CpuStream& cpu = as_cpu(stream);
  MSTAR_CHECK(logits.num_dims() == 2 && logits.dim(1) > 0, logits.to_string());
  const int64_t num_rows = logits.dim(0);
  const int64_t vocab = logits.dim(1);
  const int num_tasks = row_tasks(cpu, num_rows);
  const int64_t elements = scratch_elements(vocab);
  const Tensor scratch = stream.empty({num_tasks, elements}, DType::kF32);
  const SampleParams params{MSTAR_BY_ISA(sampling_kernels),
                            matrix_of(logits),
                            reinterpret_cast<const std::byte*>(
                                dense<uint8_t>(rows, {num_rows, int64_t{sizeof(SamplingRow)}})),
                            dense<int32_t>(seen, {num_rows, (vocab + 31) / 32}),
                            dense<int32_t>(counts, {num_rows, vocab}),
                            dense<float>(logit_bias, {num_rows, vocab}),
                            dense<int32_t>(tokens, {num_rows}),
                            dense<float>(probs, {num_rows, vocab}),
                            {num_rows, num_tasks, scratch.data<float>(), elements}};
  cpu.enqueue("sample", num_tasks, params, &sample_rows);
}

void fill_normal(Stream& stream, uint64_t seed, uint64_t stream_id, Tensor& out) {
  CpuStream& cpu = as_cpu(stream);
  MSTAR_CHECK(out.is_contiguous() && (out.dtype() == DType::kF32 || out.dtype() == DType::kBF16),
              out.to_string());
  const int64_t size = out.num_elements();
  const int64_t most = size / 4096 + 1;
  const int64_t wanted = std::min<int64_t>(most, 4 * cpu.num_threads());
  const int64_t share = ((size + wanted - 1) / wanted + 63) / 64 * 64;
  if (size == 0) {
    return;
  }
  const NormalParams params{MSTAR_BY_ISA(sampling_kernels),
                            seed,
                            stream_id,
                            out.bytes(),
                            size,
                            share,
                            out.dtype() == DType::kBF16};
  cpu.enqueue("fill_normal", static_cast<int>((size + share - 1) / share), params, &fill_share);
}

}  // namespace ops
}  // namespace mstar

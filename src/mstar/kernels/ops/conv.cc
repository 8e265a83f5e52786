#include "mstar/kernels/ops/conv.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/kernels/cpu/packed_conv.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::ops {

namespace {

// A tensor of four dims, the last dense.
ConvView view_of(const Tensor& tensor) {
  if (!tensor.defined()) {
    return {};
  }
  MSTAR_CHECK(tensor.num_dims() == 4 && tensor.has_dense_rows() &&
                  (tensor.dtype() == DType::kF32 || tensor.dtype() == DType::kBF16),
              "found ",
              tensor.to_string(),
              ", expected dense channels last in f32 or bf16");
  return {tensor.bytes(),
          {tensor.stride(0), tensor.stride(1), tensor.stride(2)},
          tensor.dtype() == DType::kBF16};
}

void check_packed(const PackedConv::Data& data, const Tensor& x, const Tensor& out) {
  MSTAR_CHECK(data.isa == active_isa(), "packed for ", to_string(data.isa));
  MSTAR_CHECK(x.dim(-1) == data.filter.in_channels && out.dim(-1) == data.filter.out_channels,
              "x ",
              x.to_string(),
              " out ",
              out.to_string(),
              " filter ",
              data.filter.in_channels,
              " -> ",
              data.filter.out_channels);
}

// How a problem is computed: the tiles of a set, and a function of the problem and a task.
struct ConvKernel {
  const ConvShape& shape;
  void (*task)(const ConvProblem&, int);
};

ConvKernel choose_kernel(const ConvProblem& p, const ConvShape& shape) {
#if defined(__x86_64__)
  if (active_isa() == Isa::kAmx && p.x.is_bf16 && p.filter.is_bf16 &&
      p.filter.in_channels % 32 == 0 &&
      (p.history.data == nullptr || p.history.stride[2] == p.x.stride[2])) {
    return {amx::conv_shape, &amx::conv_task};
  }
#endif
  return {shape, MSTAR_BY_ISA(conv_task)};
}

// Cuts the work into enough tasks to balance, none of them needlessly small, and runs it.
void enqueue_conv(CpuStream& stream,
                  const char* name,
                  ConvProblem& p,
                  const ConvShape& packed_shape) {
  const ConvKernel kernel = choose_kernel(p, packed_shape);
  const ConvShape& shape = kernel.shape;
  p.num_rows = int64_t{p.out_size[0]} * p.out_size[1] * p.out_size[2];
  if (p.num_rows == 0) {
    return;
  }
  const int num_panels = (p.filter.out_channels + shape.columns - 1) / shape.columns;
  const auto tasks_of = [&](int64_t rows, int64_t panels) {
    return (p.num_rows + rows - 1) / rows * ((num_panels + panels - 1) / panels);
  };
  const int64_t filter_bytes = p.filter.panel_bytes * num_panels;
  const int64_t pixel_bytes = int64_t{p.in_size[0]} * p.in_size[1] * p.in_size[2] *
                              p.filter.in_channels * (p.x.is_bf16 ? 2 : 4);
  p.panels_outermost = filter_bytes > pixel_bytes;
  // Few tasks where filters are what is read: each row block reads them again.
  const int64_t per_thread = p.panels_outermost ? 2 : shape.tasks_per_thread;
  const int64_t wanted = stream.num_threads() == 1 ? 1 : per_thread * stream.num_threads();
  int rows = p.x.is_bf16 ? shape.max_bf16_rows : shape.max_rows;
  int panels = std::min(shape.max_panels, num_panels);
  while (tasks_of(rows, panels) < wanted && (rows > shape.rows_multiple || panels > 1)) {
    if (panels > 1 && (panels > 2 || rows == shape.rows_multiple)) {
      --panels;
    } else {
      rows = rows / 2 / shape.rows_multiple * shape.rows_multiple;
    }
  }
  // Evenly: the last block of rows would be the smallest.
  const int64_t blocks = (p.num_rows + rows - 1) / rows;
  const int64_t even = (p.num_rows + blocks - 1) / blocks;
  rows = static_cast<int>((even + shape.rows_multiple - 1) / shape.rows_multiple) *
         shape.rows_multiple;
  p.rows_per_task = rows;
  const int groups = (num_panels + panels - 1) / panels;
  p.panels_per_task = (num_panels + groups - 1) / groups;
  p.num_row_blocks = static_cast<int32_t>((p.num_rows + rows - 1) / rows);
  p.num_panel_groups = groups;
  stream.enqueue(name, p.num_row_blocks * p.num_panel_groups, p, kernel.task);
}

// x, history, residual and out as [t, h, w, c].
void run_conv(Stream& stream,
              const char* name,
              const Tensor& x,
              const Tensor& history,
              const PackedConv::Data& data,
              const ConvOptions& options,
              const Tensor& residual,
              const Tensor& out) {
  check_packed(data, x, out);
  MSTAR_CHECK(!data.transposed, "packed for a transposed convolution");
  MSTAR_CHECK(!history.defined() || (history.dtype() == x.dtype() && history.num_dims() == 4 &&
                                     history.dim(1) == x.dim(1) && history.dim(2) == x.dim(2) &&
                                     history.dim(3) == x.dim(3)),
              "history ",
              history.to_string(),
              " x ",
              x.to_string());
  MSTAR_CHECK(!residual.defined() || residual.shape() == out.shape(), residual.to_string());
  ConvProblem p;
  p.x = view_of(x);
  p.history = view_of(history);
  p.residual = view_of(residual);
  p.out = view_of(out);
  p.filter = data.filter;
  p.history_frames = history.defined() ? static_cast<int32_t>(history.dim(0)) : 0;
  p.activation = options.activation;
  for (int axis = 0; axis < 3; ++axis) {
    const auto at = static_cast<size_t>(axis);
    p.in_size[axis] = static_cast<int32_t>(x.dim(axis)) + (axis == 0 ? p.history_frames : 0);
    p.out_size[axis] = static_cast<int32_t>(out.dim(axis));
    p.kernel[axis] = data.kernel[at];
    p.stride[axis] = options.stride[at];
    p.dilation[axis] = options.dilation[at];
    p.pad[axis] = options.pad_before[at];
    MSTAR_CHECK(p.stride[axis] > 0 && p.dilation[axis] > 0, "axis ", axis);
    const int32_t reach = p.in_size[axis] + options.pad_before[at] + options.pad_after[at] -
                          p.dilation[axis] * (p.kernel[axis] - 1) - 1;
    MSTAR_CHECK(reach >= 0 ? p.out_size[axis] == reach / p.stride[axis] + 1 : p.out_size[axis] == 0,
                "axis ",
                axis,
                " of out ",
                out.to_string(),
                " for x ",
                x.to_string());
  }
  enqueue_conv(as_cpu(stream), name, p, data.shape);
}

}  // namespace

void conv3d(Stream& stream,
            const Tensor& x,
            const Tensor& history,
            const PackedConv& conv,
            const ConvOptions& options,
            Tensor& out) {
  MSTAR_CHECK(conv.data().num_axes == 3, "filter of ", conv.data().num_axes, " axes");
  run_conv(stream, "conv3d", x, history, conv.data(), options, options.residual, out);
}

// Pictures are frames that a kernel of one frame visits one by one.
void conv2d(Stream& stream,
            const Tensor& x,
            const PackedConv& conv,
            const ConvOptions& options,
            Tensor& out) {
  MSTAR_CHECK(conv.data().num_axes == 2, "filter of ", conv.data().num_axes, " axes");
  run_conv(stream, "conv2d", x, {}, conv.data(), options, options.residual, out);
}

void conv1d(Stream& stream,
            const Tensor& x,
            const PackedConv& conv,
            const ConvOptions& options,
            Tensor& out) {
  MSTAR_CHECK(conv.data().num_axes == 1, "filter of ", conv.data().num_axes, " axes");
  const Tensor residual =
      options.residual.defined() ? options.residual.unsqueeze(1) : options.residual;
  run_conv(stream, "conv1d", x.unsqueeze(1), {}, conv.data(), options, residual, out.unsqueeze(1));
}

// Output sample o takes tap k of input i where o + pad = i * stride + k. The outputs of one
// remainder r of o + pad are a plain convolution with every stride-th tap, read backwards.
void conv_transpose1d(Stream& stream,
                      const Tensor& x,
                      const PackedConv& conv,
                      int32_t stride,
                      int32_t pad,
                      int32_t output_padding,
                      Tensor& out) {
  const PackedConv::Data& data = conv.data();
  check_packed(data, x, out);
  MSTAR_CHECK(data.transposed, "packed for a plain convolution");
  const int32_t taps = data.kernel[2];
  const auto length = static_cast<int32_t>(out.dim(1));
  MSTAR_CHECK(stride > 0 && length == (x.dim(1) - 1) * stride - 2 * pad + taps + output_padding,
              "out ",
              out.to_string(),
              " for x ",
              x.to_string());
  const ConvView in = view_of(x.unsqueeze(1));
  const ConvView to = view_of(out.unsqueeze(1));
  for (int32_t first = 0; first < std::min(stride, length); ++first) {
    const int32_t remainder = (first + pad) % stride;
    ConvProblem p;
    p.x = in;
    p.out = to;
    p.out.data =
        static_cast<std::byte*>(to.data) + first * to.stride[2] * element_bytes(out.dtype());
    p.out.stride[2] = to.stride[2] * stride;
    p.filter = data.filter;
    p.in_size[0] = static_cast<int32_t>(x.dim(0));
    p.in_size[2] = static_cast<int32_t>(x.dim(1));
    p.out_size[0] = p.in_size[0];
    p.out_size[2] = (length - first + stride - 1) / stride;
    p.kernel[2] = std::max(0, (taps - remainder + stride - 1) / stride);
    p.dilation[2] = -1;
    p.pad[2] = -((first + pad) / stride);
    p.first_tap = remainder;
    p.tap_step = stride;
    enqueue_conv(as_cpu(stream), "conv_transpose1d", p, data.shape);
  }
}

}  // namespace mstar::ops

#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/ops/activation.h"

// Convolution as an implicit matrix product: what is compiled once per instruction set. Plain
// data only; the functions never throw, allocate or log.
namespace mstar {

// A channels-last tensor [t, h, w, c] with dense channels; strides of t, h, w in elements.
struct ConvView {
  void* data = nullptr;  // null: absent
  int64_t stride[3] = {0, 0, 0};
  bool is_bf16 = false;
};

// Filters in panels of `columns` output channels, as the tiles read them front to back:
// [panel][tap][in][columns] f32, or [panel][tap][in / 2][columns][2] bf16 with an odd number of
// input channels padded by a zero. The last panel is only as many vectors wide as it needs.
struct ConvFilter {
  const uint8_t* data = nullptr;
  const float* bias = nullptr;  // [out padded to whole vectors], or null
  bool is_bf16 = false;
  int32_t in_channels = 0;
  int32_t out_channels = 0;
  int32_t num_taps = 0;     // as packed
  int64_t panel_bytes = 0;  // of a full panel
};

// One convolution, or one phase of a transposed one. Axes are (t, h, w).
struct ConvProblem {
  ConvView x;
  ConvView history;   // frames in front of x
  ConvView residual;  // shaped like out
  ConvView out;
  ConvFilter filter;
  int32_t history_frames = 0;
  int32_t in_size[3] = {1, 1, 1};  // t counts history and x
  int32_t out_size[3] = {1, 1, 1};
  int32_t kernel[3] = {1, 1, 1};
  int32_t stride[3] = {1, 1, 1};
  int32_t dilation[3] = {1, 1, 1};  // negative when taps walk backwards
  int32_t pad[3] = {0, 0, 0};       // negative when the first tap starts inside
  int32_t first_tap = 0;            // tap number j of the kernel is filter tap first_tap + j * step
  int32_t tap_step = 1;
  Activation activation = Activation::kNone;

  // How the work is cut; results do not depend on it.
  int64_t num_rows = 0;         // output positions, t * h * w
  int32_t rows_per_task = 0;    // at most ConvShape::max_rows or max_bf16_rows
  int32_t panels_per_task = 0;  // at most ConvShape::max_panels
  int32_t num_row_blocks = 0;
  int32_t num_panel_groups = 0;
  bool panels_outermost = false;  // consecutive tasks share filters instead of pixels
};

// Of an instruction set's tiles.
struct ConvShape {
  int32_t lanes;          // columns of a vector
  int32_t columns;        // of a full panel
  int32_t rows_multiple;  // rows_per_task: a multiple of this
  int32_t max_rows;
  int32_t max_bf16_rows;  // the same for bf16 pixels
  int32_t max_panels;
  int32_t tasks_per_thread;  // wanted, so that threads finish together
};

}  // namespace mstar

// cpu/conv_amx.cc: bf16 pixels and filters whose input channels are a multiple of 32.
namespace mstar::amx {
void conv_task(const ConvProblem& problem, int task);
extern const ConvShape conv_shape;
}  // namespace mstar::amx

MSTAR_DECLARE_PER_ISA(
    // Tasks: [0, num_row_blocks * num_panel_groups).
    void conv_task(const ConvProblem& problem, int task); extern const ConvShape conv_shape;)

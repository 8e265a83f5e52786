#include "mstar/kernels/cpu/packed_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/kernels/ref/dequantize.h"
#include "mstar/tensor/arena.h"

namespace mstar {

int panel_block_size(DType dtype) {
  if (dtype == DType::kQ8_0 || dtype == DType::kQ4_0) {
    return 64;  // two of the format's
  }
  return is_quantized(dtype) ? info(dtype).block_size : 8;
}

int panel_block_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 32;
    case DType::kBF16: return 16;
    case DType::kF16: return 16;
    case DType::kI8: return 8;
    case DType::kQ8_0: return 68;
    case DType::kQ4_0: return 36;
    case DType::kQ4_K: return 148;  // its scales and minima widened from 6 to 8 bits
    case DType::kQ5_K: return 180;
    default: break;
  }
  MSTAR_CHECK(is_quantized(dtype), "no panels of ", to_string(dtype));
  return info(dtype).block_bytes;
}

const MatmulKernels& matmul_kernels(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kPortable: break;
    case Isa::kAvx2: return avx2::matmul_kernel_table;
    case Isa::kAvx512: return avx512::matmul_kernel_table;
    case Isa::kAvx512Bf16: return avx512_bf16::matmul_kernel_table;
    case Isa::kAmx: return amx::matmul_kernel_table;
  }
#endif
  (void)isa;
  return portable::matmul_kernel_table;
}

namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

// Writes one weight row into column `column` of a panel of width w.
class ColumnWriter {
 public:
  ColumnWriter(const PackedWeight::Data& data, std::byte* panel, int column)
      : data_(data), panel_(panel), column_(column), width_(data.panel_width) {}

  // `source` holds k values of the panel's own type.
  void write_plain(const std::byte* source) {
    const int64_t bytes = element_bytes(data_.dtype);
    if (data_.dtype == DType::kBF16) {
      for (int64_t k = 0; k < data_.k; ++k) {
        std::memcpy(entry(k / 2 * 4, 4) + k % 2 * 2, source + 2 * k, 2);
      }
      return;
    }
    for (int64_t k = 0; k < data_.k; ++k) {
      std::memcpy(entry(k * bytes, bytes), source + k * bytes, static_cast<size_t>(bytes));
    }
  }

  void write_int8(const int8_t* codes) {
    for (int64_t k = 0; k < data_.k_padded; ++k) {
      const int code = k < data_.k ? codes[k] : 0;
      put(entry(k / 4 * 4, 4) + k % 4, static_cast<uint8_t>(code + 128));
    }
  }

  void write_blocks(const std::byte* source) {
    const int size = panel_block_size(data_.dtype);
    const int64_t bytes = panel_block_bytes(data_.dtype);
    QuantizedBlock block;
    for (int64_t begin = 0; begin < data_.k; begin += info(data_.dtype).block_size) {
      read_block(data_.dtype, source, block);
      base_ = begin / size * bytes;
      write_block(block, source, static_cast<int>(begin % size / 32));
      source += info(data_.dtype).block_bytes;
    }
  }

 private:
  // The entry of this column that begins `offset` bytes (a column's) into the current block, in
  // a run of entries of `size` bytes side by side.
  std::byte* entry(int64_t offset, int64_t size) {
    return panel_ + (base_ + offset) * width_ + column_ * size;
  }

  // `half`: which of two blocks, for the types whose panels hold pairs.
  void write_block(const QuantizedBlock& block, const std::byte* source, int half) {
    switch (data_.dtype) {
      case DType::kQ8_0:
        std::memcpy(entry(2 * half, 2), source, 2);
        for (int k = 0; k < 32; ++k) {
          put(entry(4 + 32 * half + k / 4 * 4, 4) + k % 4,
              static_cast<uint8_t>(block.code[k] + 128));
        }
        return;
      case DType::kQ4_0:
        std::memcpy(entry(2 * half, 2), source, 2);
        return write_words(block, 32, 8, 4 + 16 * half, -1);
      case DType::kQ4_1: write_halfs(source); return write_words(block, 32, 0, 4, -1);
      case DType::kQ5_0:
        std::memcpy(entry(0, 2), source, 2);
        return write_words(block, 32, 16, 6, 2);
      case DType::kQ5_1: write_halfs(source); return write_words(block, 32, 0, 8, 4);
      case DType::kQ4_K:
      case DType::kQ5_K: {
        write_halfs(source);
        for (int sub = 0; sub < 8; ++sub) {
          put(entry(4 + sub, 1), static_cast<uint8_t>(block.scale[2 * sub]));
          put(entry(12 + sub, 1), block.min[2 * sub]);
        }
        const bool five = data_.dtype == DType::kQ5_K;
        return write_words(block, 256, 0, five ? 52 : 20, five ? 20 : -1);
      }
      case DType::kQ6_K: return write_q6_k(block, source);
      default: MSTAR_CHECK(false, "no panels of ", to_string(data_.dtype));
    }
  }

  void write_halfs(const std::byte* source) {
    std::memcpy(entry(0, 2), source, 2);
    std::memcpy(entry(2, 2), source + 2, 2);
  }

  void write_words(const QuantizedBlock& block, int size, int offset, int words_at, int high_at) {
    for (int begin = 0; begin < size; begin += 8) {
      uint32_t word = 0;
      for (int j = 0; j < 8; ++j) {
        word |= (static_cast<uint32_t>(block.code[begin + j] + offset) & 15U) << (4 * j);
      }
      put(entry(words_at + begin / 2, 4), word);
    }
    for (int begin = 0; high_at >= 0 && begin < size; begin += 32) {
      uint32_t high = 0;
      for (int j = 0; j < 32; ++j) {
        const int at = j % 8 / 2 * 8 + j / 8 * 2 + j % 2;  // see panel_reader-inl.h
        high |= (static_cast<uint32_t>(block.code[begin + j] + offset) >> 4 & 1U) << at;
      }
      put(entry(high_at + begin / 8, 4), high);
    }
  }

  void write_q6_k(const QuantizedBlock& block, const std::byte* source) {
    std::memcpy(entry(0, 2), source + 208, 2);
    for (int sixteen = 0; sixteen < 16; ++sixteen) {
      put(entry(2 + sixteen, 1), block.scale[sixteen]);
      uint32_t high = 0;
      for (int j = 0; j < 16; ++j) {
        const int at = j % 8 / 2 * 8 + j / 8 * 4 + j % 2 * 2;
        high |= (static_cast<uint32_t>(block.code[sixteen * 16 + j] + 32) >> 4 & 3U) << at;
      }
      put(entry(18 + sixteen * 4, 4), high);
    }
    write_words(block, 256, 32, 82, -1);
  }

  const PackedWeight::Data& data_;
  std::byte* panel_;
  int column_;
  int64_t width_;
  int64_t base_ = 0;
};

DType stored_dtype(DType dtype, WeightFormat format) {
  switch (format) {
    case WeightFormat::kKeep: return dtype;
    case WeightFormat::kF32: return DType::kF32;
    case WeightFormat::kBF16: return DType::kBF16;
    case WeightFormat::kInt8: return DType::kI8;
  }
  return dtype;
}

// The rows of several matrices, one below the other.
class Rows {
 public:
  explicit Rows(std::span<const Tensor> parts) : parts_(parts) {
    const DTypeInfo& layout = info(dtype());
    width_bytes_ = width() / layout.block_size * layout.block_bytes;
    for (const Tensor& part : parts) {
      size_ += part.dim(0);
    }
  }

  DType dtype() const { return parts_.front().dtype(); }

  int64_t width() const { return parts_.front().dim(1); }

  int64_t size() const { return size_; }

  const std::byte* at(int64_t row) const {
    size_t part = 0;
    for (; row >= parts_[part].dim(0); ++part) {
      row -= parts_[part].dim(0);
    }
    const int64_t stride =
        is_quantized(dtype()) ? width_bytes_ : parts_[part].stride(0) * element_bytes(dtype());
    return parts_[part].bytes() + row * stride;
  }

 private:
  std::span<const Tensor> parts_;
  int64_t size_ = 0;
  int64_t width_bytes_ = 0;
};

// Symmetric: the largest magnitude of the row becomes 127.
float quantize_row(std::span<const float> row, int8_t* codes) {
  float largest = 0.0F;
  for (const float value : row) {
    largest = std::max(largest, std::abs(value));
  }
  const float scale = largest / 127.0F;
  const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
  for (size_t k = 0; k < row.size(); ++k) {
    const float code = std::nearbyint(row[k] * inverse);
    codes[k] = static_cast<int8_t>(code > -127.0F ? std::min(code, 127.0F) : -127.0F);
  }
  return scale;
}

// Whole panels of words that stay what they are, one f32 or two bf16 each, are written front to
// back: a column at a time would visit every cache line of the panel once for each column.
void interleave_words(const Rows& rows, const PackedWeight::Data& data, int64_t panel) {
  constexpr int kMostColumns = 16;
  MSTAR_CHECK(data.panel_width <= kMostColumns, data.panel_width);
  const int64_t num_words = data.k * element_bytes(data.dtype) / 4;
  const std::byte* source[kMostColumns];
  for (int column = 0; column < data.panel_width; ++column) {
    source[column] = rows.at(panel * data.panel_width + column);
  }
  std::byte* out = data.panels.bytes() + panel * data.panel_bytes;
  for (int64_t word = 0; word < num_words; ++word) {
    for (int column = 0; column < data.panel_width; ++column, out += 4) {
      std::memcpy(out, source[column] + 4 * word, 4);
    }
  }
  std::memset(
      out, 0, static_cast<size_t>(data.panels.bytes() + (panel + 1) * data.panel_bytes - out));
}

bool is_whole_words(const Rows& rows, const PackedWeight::Data& data, int64_t panel) {
  const bool plain = data.dtype == rows.dtype() &&
                     (data.dtype == DType::kF32 || (data.dtype == DType::kBF16 && data.k % 2 == 0));
  return plain && (panel + 1) * data.panel_width <= data.n;
}

void pack_panel(const Rows& rows, PackedWeight::Data& data, int64_t panel) {
  if (is_whole_words(rows, data, panel)) {
    interleave_words(rows, data, panel);
    return;
  }
  std::byte* out = data.panels.bytes() + panel * data.panel_bytes;
  std::memset(out, 0, static_cast<size_t>(data.panel_bytes));
  std::vector<float> row_values(static_cast<size_t>(data.k));
  std::vector<int8_t> codes(data.dtype == DType::kI8 ? static_cast<size_t>(data.k) : 0);
  for (int column = 0; column < data.panel_width; ++column) {
    const int64_t row = panel * data.panel_width + column;
    if (row >= data.n) {
      break;
    }
    ColumnWriter writer(data, out, column);
    const std::byte* source = rows.at(row);
    if (is_quantized(data.dtype)) {
      writer.write_blocks(source);
    } else if (data.dtype == rows.dtype()) {
      writer.write_plain(source);
    } else {
      dequantize(rows.dtype(), source, data.k, row_values.data());
      Tensor values = Tensor::borrow(row_values.data(), {1, data.k}, DType::kF32);
      if (data.dtype == DType::kI8) {
        data.row_scales.data<float>()[row] = quantize_row(row_values, codes.data());
        writer.write_int8(codes.data());
      } else {
        values = data.dtype == DType::kF32 ? values : values.to(data.dtype);
        writer.write_plain(values.bytes());
      }
    }
  }
}

}  // namespace

WeightPanels PackedWeight::Data::view() const {
  return {reinterpret_cast<const uint8_t*>(panels.bytes()),
          row_scales.defined() ? row_scales.data<float>() : nullptr,
          n,
          k_padded,
          panel_bytes,
          dtype};
}

namespace {

// Whether bf16 activations meet such weights as they are: tiles take int8 codes as bf16 too.
bool meets_bf16(Isa isa, DType weight) {
  return weight == DType::kBF16 ||
         (weight == DType::kI8 && matmul_kernels(isa).bf16_form == PackedX::kBF16Tiles);
}

}  // namespace

PackedX PackedWeight::Data::form_of(DType x, int64_t rows) const {
  if (int8_activations) {
    const int64_t fewest = matmul_kernels(isa).int8_tile_rows;
    if (fewest > 0 && rows >= fewest) {
      return dtype == DType::kQ8_0 ? PackedX::kInt8Tiles : PackedX::kInt8NibbleTiles;
    }
    return dtype == DType::kQ8_0 ? PackedX::kInt8 : PackedX::kInt8Nibbles;
  }
  return x == DType::kBF16 && meets_bf16(isa, dtype) ? matmul_kernels(isa).bf16_form
                                                     : PackedX::kF32;
}

PackedWeight PackedWeight::pack(const Tensor& weight,
                                ThreadPool& pool,
                                WeightFormat format,
                                Activations activations) {
  return pack(std::span(&weight, 1), pool, format, activations);
}

PackedWeight PackedWeight::pack(std::span<const Tensor> parts,
                                ThreadPool& pool,
                                WeightFormat format,
                                Activations activations) {
  MSTAR_CHECK(!parts.empty());
  for (const Tensor& part : parts) {
    MSTAR_CHECK(part.num_dims() == 2 && part.dim(1) == parts.front().dim(1) &&
                    part.dtype() == parts.front().dtype() && part.has_dense_rows(),
                "weight is ",
                part.to_string());
    MSTAR_CHECK(
        is_floating(part.dtype()) || is_quantized(part.dtype()), "weight is ", part.to_string());
  }
  const Rows rows(parts);
  auto data = std::make_shared<Data>();
  data->dtype = stored_dtype(rows.dtype(), format);
  data->n = rows.size();
  data->k = rows.width();
  data->int8_activations = activations == Activations::kInt8 && is_quantized(data->dtype);
  data->isa = active_isa();
  data->panel_width = matmul_kernels(data->isa).panel_width;
  int block = panel_block_size(data->dtype);
  if (matmul_kernels(data->isa).bf16_form == PackedX::kBF16Tiles &&
      meets_bf16(data->isa, data->dtype)) {
    block = 32;  // a tile's worth
  }
  data->k_padded = ceil_div(data->k, block) * block;
  data->panel_bytes = data->k_padded / panel_block_size(data->dtype) *
                      panel_block_bytes(data->dtype) * data->panel_width;
  data->panel_bytes = (data->panel_bytes + 63) / 64 * 64;  // panels begin at cache lines
  const int64_t num_panels = ceil_div(data->n, data->panel_width);
  data->panels = Tensor::empty({num_panels * data->panel_bytes}, DType::kU8, weight_arena());
  if (data->dtype == DType::kI8) {
    data->row_scales = Tensor::zeros({num_panels * data->panel_width}, DType::kF32);
  }
  pool.parallel_for(static_cast<int>(num_panels),
                    [&](int panel) { pack_panel(rows, *data, panel); });
  PackedWeight packed;
  packed.data_ = std::move(data);
  return packed;
}

Tensor PackedWeight::unpack() const {
  const Data& d = *data_;
  const MatmulKernels& kernels = matmul_kernels(d.isa);
  Tensor values = Tensor::empty({d.n, d.k}, DType::kF32);
  std::vector<float> panel_values(static_cast<size_t>(d.k_padded * d.panel_width));
  for (int64_t first = 0; first < d.n; first += d.panel_width) {
    kernels.decode(d.view(), first / d.panel_width, panel_values.data());
    for (int64_t row = first; row < std::min(d.n, first + d.panel_width); ++row) {
      const float scale = d.row_scales.defined() ? d.row_scales.data<float>()[row] : 1.0F;
      float* out = values.data<float>() + row * d.k;
      for (int64_t k = 0; k < d.k; ++k) {
        out[k] = scale * panel_values[static_cast<size_t>(k * d.panel_width + row - first)];
      }
    }
  }
  return values;
}

int64_t PackedWeight::out_features() const {
  return data_->n;
}

int64_t PackedWeight::in_features() const {
  return data_->k;
}

DType PackedWeight::dtype() const {
  return data_->dtype;
}

bool PackedWeight::rounds_activations() const {
  return data_->int8_activations;
}

int64_t PackedWeight::size_bytes() const {
  return data_->panels.size_bytes() +
         (data_->row_scales.defined() ? data_->row_scales.size_bytes() : 0);
}

}  // namespace mstar

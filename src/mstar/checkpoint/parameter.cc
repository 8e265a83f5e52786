#include "mstar/checkpoint/parameter.h"

#include <algorithm>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

const char* expected_types(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kFloating: return "f32, bf16 or f16";
    case ParameterKind::kMatrix: return "f32, bf16, f16 or a GGUF block type";
    case ParameterKind::kInteger: return "i32 or i64";
    case ParameterKind::kBoolean: return "bool or u8";
  }
  return "";
}

}  // namespace

Shape ShardSpec::local_shape() const {
  Shape local = shape;
  if (size >= 0) {
    local[dim] = size;
  }
  return local;
}

Tensor narrow(const Tensor& tensor, int dim, int64_t begin, int64_t size) {
  const DTypeInfo& type = info(tensor.dtype());
  const bool is_last = dim == tensor.num_dims() - 1;
  if (begin == 0 && size == tensor.dim(dim)) {
    return tensor;
  }
  if (type.block_size == 1 || dim == 0) {
    return tensor.slice(dim, begin, begin + size);
  }
  if (is_last && (begin % type.block_size != 0 || size % type.block_size != 0)) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[narrow] columns ",
                        begin,
                        " to ",
                        begin + size,
                        " of ",
                        to_string(tensor.shape()),
                        " would cut a block of ",
                        type.block_size,
                        " ",
                        type.name,
                        " elements; use fewer ranks or another weight format"));
  }
  MSTAR_CHECK(tensor.is_contiguous(), tensor.to_string());
  Shape shape = tensor.shape();
  shape[dim] = size;
  Tensor out = Tensor::empty(shape, tensor.dtype());
  int64_t inner = 1;  // elements below one index of dim
  for (int below = dim + 1; below < tensor.num_dims(); ++below) {
    inner *= tensor.dim(below);
  }
  const auto bytes = [&](int64_t elements) {
    return elements / type.block_size * type.block_bytes;
  };
  const int64_t source_step = bytes(tensor.dim(dim) * inner);
  const int64_t target_step = bytes(size * inner);
  const int64_t outer = target_step == 0 ? 0 : out.size_bytes() / target_step;
  for (int64_t index = 0; index < outer; ++index) {
    std::memcpy(out.bytes() + index * target_step,
                tensor.bytes() + index * source_step + bytes(begin * inner),
                static_cast<size_t>(target_step));
  }
  return out;
}

Parameter::Parameter(std::string name, const Shape& shape, ParameterKind kind)
    : name_(std::move(name)), whole_(shape), kind_(kind) {
  ShardSpec whole;
  whole.shape = shape;
  shards_.push_back(std::move(whole));
  pieces_.resize(1);
}

Parameter::Parameter(std::string name,
                     std::vector<ShardSpec> shards,
                     const Shape& whole,
                     ParameterKind kind)
    : name_(std::move(name)), shards_(std::move(shards)), whole_(whole), kind_(kind) {
  pieces_.resize(shards_.size());
}

bool Parameter::accepts(DType dtype) const {
  switch (kind_) {
    case ParameterKind::kFloating: return is_floating(dtype);
    case ParameterKind::kMatrix: return is_floating(dtype) || is_quantized(dtype);
    case ParameterKind::kInteger: return dtype == DType::kI32 || dtype == DType::kI64;
    case ParameterKind::kBoolean: return dtype == DType::kBool || dtype == DType::kU8;
  }
  return false;
}

int Parameter::find_shard(std::string_view shard_id) const {
  for (size_t index = 0; index < shards_.size(); ++index) {
    if (shards_[index].id == shard_id) {
      return static_cast<int>(index);
    }
  }
  return -1;
}

namespace {

// A shard id that ends with ':' names all shards that begin so, in their order, as one tensor with
// a further first dim: how GGUF keeps the gates of all experts ("gate:" of "gate:0", "gate:1" …).
bool is_group(std::string_view shard_id) {
  return shard_id.ends_with(':');
}

// A vector for a matrix of one row: GGUF writes such matrices without their first dim.
bool is_only_row(const Shape& shape, const Shape& expected) {
  return shape.size() == 1 && expected.size() == 2 && expected[0] == 1 && expected[1] == shape[0];
}

// Indices of the group's shards; empty when there is none, or when their shapes differ.
std::vector<int> group_members(const std::vector<ShardSpec>& shards, std::string_view shard_id) {
  std::vector<int> members;
  for (size_t index = 0; index < shards.size(); ++index) {
    if (shards[index].id.starts_with(shard_id)) {
      members.push_back(static_cast<int>(index));
      if (!(shards[index].shape == shards[static_cast<size_t>(members.front())].shape)) {
        return {};
      }
    }
  }
  return members;
}

}  // namespace

Misfit Parameter::misfit(const Shape& shape, DType dtype, std::string_view shard_id) const {
  if (const auto members = group_members(shards_, shard_id);
      is_group(shard_id) && !members.empty()) {
    std::vector<int64_t> dims{static_cast<int64_t>(members.size())};
    for (const int64_t size : shards_[static_cast<size_t>(members.front())].shape) {
      dims.push_back(size);
    }
    const Shape expected{std::span<const int64_t>(dims)};
    if (!(shape == expected)) {
      return {Misfit::Kind::kShape,
              str_cat("shape ", to_string(shape), ", expected ", to_string(expected))};
    }
    return accepts(dtype)
               ? Misfit{}
               : Misfit{Misfit::Kind::kType,
                        str_cat("dtype ", to_string(dtype), ", expected ", expected_types(kind_))};
  }
  const int shard = find_shard(shard_id);
  const bool whole = shard < 0 && shard_id.empty() && !whole_.empty();
  if (shard < 0 && !whole) {
    std::vector<std::string> ids;
    for (const ShardSpec& spec : shards_) {
      if (ids.size() < 8) {
        ids.push_back(spec.id);
      }
    }
    return {Misfit::Kind::kShard,
            str_cat("no shard \"", shard_id, "\", expected one of ", str_join(ids, ", "))};
  }
  const Shape& expected = whole ? whole_ : shards_[static_cast<size_t>(shard)].shape;
  if (!(shape == expected) && !is_only_row(shape, expected)) {
    return {Misfit::Kind::kShape,
            str_cat("shape ", to_string(shape), ", expected ", to_string(expected))};
  }
  if (!accepts(dtype)) {
    return {Misfit::Kind::kType,
            str_cat("dtype ", to_string(dtype), ", expected ", expected_types(kind_))};
  }
  return {};
}

void Parameter::load(const Tensor& loaded, std::string_view shard_id) {
  const Misfit wrong = misfit(loaded.shape(), loaded.dtype(), shard_id);
  if (wrong.kind != Misfit::Kind::kNone) {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[", name_, "] ", wrong.detail));
  }
  if (is_group(shard_id)) {
    int64_t place = 0;
    for (const int member : group_members(shards_, shard_id)) {
      load_piece(member, loaded.select(0, place++));
    }
    return;
  }
  const int shard = find_shard(shard_id);
  if (shard >= 0) {
    const Shape& expected = shards_[static_cast<size_t>(shard)].shape;
    load_piece(shard, is_only_row(loaded.shape(), expected) ? loaded.view(expected) : loaded);
    return;
  }
  for (size_t index = 0; index < shards_.size(); ++index) {
    const ShardSpec& spec = shards_[index];
    Tensor piece = loaded;
    if (spec.stack_index >= 0) {
      piece = piece.select(0, spec.stack_index);
    }
    const int64_t rows = spec.shape[0];
    load_piece(static_cast<int>(index), piece.slice(0, spec.stack_row, spec.stack_row + rows));
  }
}

void Parameter::load_piece(int shard, const Tensor& loaded) {
  const ShardSpec& spec = shards_[static_cast<size_t>(shard)];
  Tensor& piece = pieces_[static_cast<size_t>(shard)];
  if (piece.defined()) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", name_, "] shard \"", spec.id, "\" is loaded twice"));
  }
  piece = spec.size < 0 ? loaded : narrow(loaded, spec.dim, spec.begin, spec.size);
}

bool Parameter::is_complete() const {
  for (size_t index = 0; index < shards_.size(); ++index) {
    if (!pieces_[index].defined() && !shards_[index].optional) {
      return false;
    }
  }
  return true;
}

bool Parameter::have_one_dtype(int begin, int end) const {
  for (int index = begin; index < end; ++index) {
    if (pieces_[static_cast<size_t>(index)].dtype() !=
        pieces_[static_cast<size_t>(begin)].dtype()) {
      return false;
    }
  }
  return true;
}

Tensor Parameter::join() const {
  return join(0, static_cast<int>(pieces_.size()));
}

Tensor Parameter::join(int begin, int end) const {
  MSTAR_CHECK(begin < end && have_one_dtype(begin, end), name_);
  const Tensor& first = pieces_[static_cast<size_t>(begin)];
  MSTAR_CHECK(first.defined(), name_, " is not loaded");
  if (end - begin == 1) {
    return first;
  }
  Shape shape = first.shape();
  shape[0] = 0;
  for (int index = begin; index < end; ++index) {
    shape[0] += pieces_[static_cast<size_t>(index)].dim(0);
  }
  Tensor joined = Tensor::empty(shape, first.dtype());
  std::byte* target = joined.bytes();
  for (int index = begin; index < end; ++index) {
    const Tensor& piece = pieces_[static_cast<size_t>(index)];
    const Tensor dense = piece.is_contiguous() ? piece : piece.copy();
    if (dense.size_bytes() > 0) {
      std::memcpy(target, dense.bytes(), static_cast<size_t>(dense.size_bytes()));
    }
    target += dense.size_bytes();
  }
  return joined;
}

void Parameter::release() {
  for (Tensor& piece : pieces_) {
    piece = Tensor();
  }
}

}  // namespace mstar

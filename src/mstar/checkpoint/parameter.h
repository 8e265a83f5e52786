#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/tensor/tensor.h"

namespace mstar {

// The element types a parameter may come in.
enum class ParameterKind : uint8_t {
  kFloating,  // f32, bf16, f16: norms, biases, tables that are not packed
  kMatrix,    // and the GGUF block types: what PackedWeight and embedding tables take
  kInteger,   // i32, i64
  kBoolean,
};

// One piece of a parameter: a tensor of the checkpoint and the part of it that this rank keeps.
struct ShardSpec {
  std::string id;  // "q", "0", "gate:3"; "" when the parameter is one piece
  Shape shape;     // of the whole tensor in the checkpoint
  int dim = 0;     // this rank keeps [begin, begin + size) along dim; size < 0 keeps all
  int64_t begin = 0;
  int64_t size = -1;
  bool optional = false;  // may be absent
  // Where the piece stands when the checkpoint has all pieces of the parameter as one tensor:
  // index along dim 0 first (experts, -1: none), then the rows from here on.
  int64_t stack_index = -1;
  int64_t stack_row = 0;

  // What this rank holds of it.
  Shape local_shape() const;
};

// Why a tensor does not fit a parameter.
struct Misfit {
  enum class Kind : uint8_t { kNone, kShard, kShape, kType };

  Kind kind = Kind::kNone;
  std::string detail;  // "shape [2, 3], expected [3, 2]"
};

// A named weight of a module while it is being loaded. Pieces are views of the mapped checkpoint
// where possible, cut to what this rank keeps; the module turns them into what it computes with
// and drops them (Module::finalize). Thread-compatible.
class Parameter {
 public:
  // One piece that the checkpoint holds under the parameter's own name.
  Parameter(std::string name, const Shape& shape, ParameterKind kind = ParameterKind::kMatrix);

  // Several pieces, in the order of their place. `whole` is the shape of one tensor holding them
  // all, or undefined sizes (empty) when a checkpoint never has it so.
  Parameter(std::string name,
            std::vector<ShardSpec> shards,
            const Shape& whole,
            ParameterKind kind);

  const std::string& name() const { return name_; }

  ParameterKind kind() const { return kind_; }

  const std::vector<ShardSpec>& shards() const { return shards_; }

  const Shape& whole_shape() const { return whole_; }

  bool accepts(DType dtype) const;

  // Index into shards(), or -1.
  int find_shard(std::string_view shard_id) const;

  // Whether a tensor of this shape and type can be loaded as `shard_id` ("" for the whole).
  Misfit misfit(const Shape& shape, DType dtype, std::string_view shard_id) const;

  // Keeps this rank's part of `loaded`. Throws Error(kInvalidArgument) naming the parameter for
  // an unknown shard, another shape or type, a piece that is already there, or a cut through a
  // quantized block.
  void load(const Tensor& loaded, std::string_view shard_id = {});

  bool is_loaded(int shard) const { return pieces_[static_cast<size_t>(shard)].defined(); }

  bool is_complete() const;  // every piece that is not optional

  // The loaded pieces in order of shards(); undefined for optional ones that never came.
  const std::vector<Tensor>& pieces() const { return pieces_; }

  // All pieces one after the other along dim 0, as one tensor: the only piece itself, or a new
  // tensor. They must have one type (check); see have_one_dtype().
  Tensor join() const;

  // join() of some of the pieces, [begin, end).
  Tensor join(int begin, int end) const;

  bool have_one_dtype(int begin, int end) const;

  // Drops the pieces: the module has taken what it needs.
  void release();

 private:
  void load_piece(int shard, const Tensor& loaded);

  std::string name_;
  std::vector<ShardSpec> shards_;
  Shape whole_;
  ParameterKind kind_;
  std::vector<Tensor> pieces_;
};

// [begin, begin + size) of `tensor` along `dim`: a view, or for quantized rows cut in dim 1 a copy
// (blocks stay whole; Error(kUnsupported) when they would not). Host memory.
Tensor narrow(const Tensor& tensor, int dim, int64_t begin, int64_t size);

}  // namespace mstar

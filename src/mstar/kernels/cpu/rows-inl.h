// Rows read and written as f32 vectors: shared by the row kernels, compiled once per instruction
// set. Part of those files, inside their namespace.

// One row of a known element type.
template <typename T>
struct RowOf {
  T* data;

  MSTAR_VEC Vec get(int64_t i) const { return load(data + i); }

  MSTAR_VEC Vec get(int64_t i, int n) const { return load_n(data + i, n); }

  MSTAR_VEC void put(int64_t i, Vec x) const { store(data + i, x); }

  MSTAR_VEC void put(int64_t i, Vec x, int n) const { store_n(data + i, x, n); }
};

// One row of f32 or bf16, decided at every access: for operands whose type is free.
struct AnyRow {
  void* data;
  bool narrow;

  MSTAR_VEC Vec get(int64_t i) const {
    return narrow ? load(static_cast<const bfloat16*>(data) + i)
                  : load(static_cast<const float*>(data) + i);
  }

  MSTAR_VEC Vec get(int64_t i, int n) const {
    return narrow ? load_n(static_cast<const bfloat16*>(data) + i, n)
                  : load_n(static_cast<const float*>(data) + i, n);
  }

  MSTAR_VEC void put(int64_t i, Vec x) const {
    narrow ? store(static_cast<bfloat16*>(data) + i, x) : store(static_cast<float*>(data) + i, x);
  }

  MSTAR_VEC void put(int64_t i, Vec x, int n) const {
    narrow ? store_n(static_cast<bfloat16*>(data) + i, x, n)
           : store_n(static_cast<float*>(data) + i, x, n);
  }
};

template <typename Row>
MSTAR_VEC Row row_at(const Rows& rows, int64_t row);

template <>
MSTAR_VEC RowOf<float> row_at(const Rows& rows, int64_t row) {
  return {static_cast<float*>(rows.data) + row * rows.stride};
}

template <>
MSTAR_VEC RowOf<bfloat16> row_at(const Rows& rows, int64_t row) {
  return {static_cast<bfloat16*>(rows.data) + row * rows.stride};
}

template <>
MSTAR_VEC AnyRow row_at(const Rows& rows, int64_t row) {
  const bool narrow = rows.dtype == DType::kBF16;
  const int64_t bytes = rows.data == nullptr ? 0 : row * rows.stride * (narrow ? 2 : 4);
  return {static_cast<char*>(rows.data) + bytes, narrow};
}

// Calls function.template operator()<Row>() with the fastest row type for operands of these
// types.
template <typename Function>
MSTAR_VEC void with_row_type(DType a, DType b, Function&& function) {
  if (a == DType::kF32 && b == DType::kF32) {
    function.template operator()<RowOf<float>>();
  } else if (a == DType::kBF16 && b == DType::kBF16) {
    function.template operator()<RowOf<bfloat16>>();
  } else {
    function.template operator()<AnyRow>();
  }
}

// function(i, n) for every step of kLanes elements of [begin, end); n < kLanes only in the last.
template <typename Full, typename Rest>
MSTAR_VEC void for_vectors(int64_t begin, int64_t end, Full&& full, Rest&& rest) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    full(i);
  }
  if (i < end) {
    rest(i, static_cast<int>(end - i));
  }
}

struct Share {
  int64_t begin;
  int64_t end;
};

MSTAR_VEC Share share_of(int64_t size, int task, int num_tasks) {
  return {size * task / num_tasks, size * (task + 1) / num_tasks};
}

// Where keys and values are: shared by the attention kernels, compiled once per instruction set.
// Part of those files, inside their namespace.

MSTAR_VEC int32_t first_query(const AttentionParams& p, int32_t sequence) {
  return p.qo_indptr != nullptr ? p.qo_indptr[sequence] : 0;
}

MSTAR_VEC int32_t num_queries(const AttentionParams& p, int32_t sequence) {
  return p.qo_indptr != nullptr ? p.qo_indptr[sequence + 1] - p.qo_indptr[sequence]
                                : static_cast<int32_t>(p.num_rows);
}

inline int32_t kv_length(const KvSource& kv, int32_t sequence) {
  if (kv.pages != nullptr) {
    const int32_t num_pages = kv.indptr[sequence + 1] - kv.indptr[sequence];
    return num_pages == 0 ? 0 : (num_pages - 1) * kv.page_size + kv.last_page_len[sequence];
  }
  if (kv.kv_indptr != nullptr) {
    return kv.kv_indptr[sequence + 1] - kv.kv_indptr[sequence];
  }
  return static_cast<int32_t>(kv.piece[0].tokens + kv.piece[1].tokens);
}

// Rows of one head of the tokens [begin, end) of a sequence.
template <typename T>
void find_paged_rows(const KvSource& kv,
                     int32_t sequence,
                     int32_t head,
                     int32_t begin,
                     int32_t end,
                     const T** k,
                     const T** v) {
  const int32_t* pages = kv.indices + kv.indptr[sequence];
  int32_t token = begin;
  while (token < end) {
    const int32_t page = token / kv.page_size;
    int32_t slot = token - page * kv.page_size;
    const T* base =
        static_cast<const T*>(kv.pages) + pages[page] * kv.page_stride + head * kv.head_stride;
    for (; slot < kv.page_size && token < end; ++slot, ++token) {
      *k++ = base + slot * kv.slot_stride;
      *v++ = base + slot * kv.slot_stride + kv.value_offset;
    }
  }
}

template <typename T>
void find_rows(const KvSource& kv,
               int32_t sequence,
               int32_t head,
               int32_t begin,
               int32_t end,
               const T** k,
               const T** v) {
  if (kv.pages != nullptr) {
    find_paged_rows(kv, sequence, head, begin, end, k, v);
    return;
  }
  const int64_t first = kv.kv_indptr != nullptr ? kv.kv_indptr[sequence] : 0;
  for (int64_t token = first + begin; token < first + end; ++token) {
    const bool second = kv.kv_indptr == nullptr && token >= kv.piece[0].tokens;
    const KvPiece& piece = kv.piece[second ? 1 : 0];
    const int64_t row = second ? token - kv.piece[0].tokens : token;
    *k++ = static_cast<const T*>(piece.k) + row * piece.k_token_stride + head * piece.k_head_stride;
    *v++ = static_cast<const T*>(piece.v) + row * piece.v_token_stride + head * piece.v_head_stride;
  }
}

// to[i] = from[i] * factor, converted.
template <typename From, typename To>
MSTAR_VEC void convert_row(const From* from, float factor, int64_t count, To* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(to + i, load(from + i) * factor);
  }
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    store_n(to + i, load_n(from + i, rest) * factor, rest);
  }
}

// The query row of one head as f32, times the scale.
inline void load_query(const AttentionParams& p, int64_t row, int32_t head, float* to) {
  const int64_t element = row * p.q_token_stride + head * p.q_head_stride;
  if (p.q_dtype == DType::kBF16) {
    convert_row(static_cast<const bfloat16*>(p.q) + element, p.scale, p.head_dim, to);
  } else {
    convert_row(static_cast<const float*>(p.q) + element, p.scale, p.head_dim, to);
  }
}

// out row = sums / total; no keys: zeros.
inline void store_output(const AttentionParams& p,
                         int64_t row,
                         int32_t head,
                         const float* sums,
                         float total) {
  const float factor = total > 0.0F ? 1.0F / total : 0.0F;
  const int64_t element = row * p.out_token_stride + head * p.out_head_stride;
  if (p.out_dtype == DType::kBF16) {
    convert_row(sums, factor, p.head_dim, static_cast<bfloat16*>(p.out) + element);
  } else {
    convert_row(sums, factor, p.head_dim, static_cast<float*>(p.out) + element);
  }
}

// Keys [begin, end) stay, those outside become `other`. `row` holds `width` (a multiple of
// kLanes) keys.
MSTAR_VEC void keep_keys(float* row, int32_t begin, int32_t end, int32_t width, float other) {
  for (int32_t key = 0; key < width; key += kLanes) {
    const bool all_in = key >= begin && key + kLanes <= end;
    if (!all_in) {
      const IVec index = iota() + set_int(key);
      const Vec upper = select(index < set_int(end), load(row + key), set(other));
      store(row + key, select(index < set_int(begin), set(other), upper));
    }
  }
}

MSTAR_VEC void scale_scores(float* score, float scale, int32_t width) {
  for (int32_t key = 0; key < width; key += kLanes) {
    store(score + key, load(score + key) * scale);
  }
}

MSTAR_VEC void soften_scores(float* score, float cap, int32_t width) {
  for (int32_t key = 0; key < width; key += kLanes) {
    store(score + key, tanh(load(score + key) * (1.0F / cap)) * cap);
  }
}

MSTAR_VEC float max_score(const float* score, int32_t width) {
  Vec most = set(-kInfinity);
  for (int32_t key = 0; key < width; key += kLanes) {
    most = max(load(score + key), most);
  }
  return reduce_max(most);
}

// Scores of the keys outside [begin, end) count as minus infinity. `row` becomes the weights
// e^(score * scale - shift), zero outside; returns their sum.
MSTAR_VEC float exponentiate(float* row,
                             int32_t begin,
                             int32_t end,
                             int32_t width,
                             float scale,
                             float shift) {
  Vec sum = zero();
  const auto weigh = [factor = set(scale), minus_shift = set(-shift)](Vec score) {
    return exp_for_softmax(fma(score, factor, minus_shift));
  };
  if (begin <= 0 && end >= width) {
    for (int32_t key = 0; key < width; key += kLanes) {
      const Vec weight = weigh(load(row + key));
      store(row + key, weight);
      sum = sum + weight;
    }
    return reduce_add(sum);
  }
  for (int32_t key = 0; key < width; key += kLanes) {
    store(row + key, weigh(load(row + key)));
  }
  keep_keys(row, begin, end, width, 0.0F);
  for (int32_t key = 0; key < width; key += kLanes) {
    sum = sum + load(row + key);
  }
  return reduce_add(sum);
}

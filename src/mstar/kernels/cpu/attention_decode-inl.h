// Attention of one query token against a whole cache: bound by the reading of keys and values.
// Part of attention_kernels.cc, inside its namespace.
//
// Each key row is read once for all heads of the group. Chunks of kAttentionChunk keys have a
// softmax of their own; the running result is the fold of the chunks in order.

inline constexpr int kHeadsAtOnce = 2;

struct DecodeScratch {
  float* q;       // [group, width], scaled, zero past head_dim
  float* rows;    // [kLanes, width] keys or values of a step as f32
  float* scores;  // [group, kAttentionChunk]
  float* chunk;   // [group, width + 2]: sums, maximum, total of a chunk
  float* result;  // [group, width + 2]: the fold so far
};

inline int64_t decode_width(int32_t head_dim) {
  return round_up(head_dim, kLanes);
}

inline int64_t decode_scratch_floats(int32_t group, int32_t head_dim) {
  const int64_t width = decode_width(head_dim);
  return group * width + kLanes * width + static_cast<int64_t>(group) * kAttentionChunk +
         2 * group * (width + 2);
}

inline DecodeScratch cut_decode_scratch(float* scratch, int32_t group, int32_t head_dim) {
  const int64_t width = decode_width(head_dim);
  DecodeScratch s;
  s.q = scratch;
  s.rows = s.q + group * width;
  s.scores = s.rows + kLanes * width;
  s.chunk = s.scores + static_cast<int64_t>(group) * kAttentionChunk;
  s.result = s.chunk + group * (width + 2);
  return s;
}

// Up to kLanes rows as f32, [kLanes, width]; zeros past head_dim and for rows that are not there.
template <typename T>
void widen_rows(const T* const* rows, int32_t count, int32_t head_dim, float* to) {
  const int64_t width = decode_width(head_dim);
  for (int lane = 0; lane < kLanes; ++lane) {
    float* row = to + lane * width;
    for (int32_t c = 0; c < head_dim; c += kLanes) {
      const int32_t rest = head_dim - c;
      Vec x = zero();
      if (lane < count) {
        x = rest >= kLanes ? load(rows[lane] + c) : load_n(rows[lane] + c, rest);
      }
      store(row + c, x);
    }
  }
}

// scores[head][lane] of kLanes keys for kHeads heads.
template <int kHeads>
MSTAR_VEC void score_heads(const float* q,
                           const float* keys,
                           int64_t width,
                           float* scores,
                           int64_t score_stride) {
  constexpr int kKeys = kLanes < 4 ? kLanes : 4;  // keys whose sums are in registers at once
  Vec dots[kHeads][kLanes];
  for (int key = 0; key < kLanes; key += kKeys) {
    Vec acc[kHeads][kKeys] = {};
    for (int64_t c = 0; c < width; c += kLanes) {
      Vec query[kHeads];
      for (int head = 0; head < kHeads; ++head) {
        query[head] = load(q + head * width + c);
      }
      for (int i = 0; i < kKeys; ++i) {
        const Vec x = load(keys + (key + i) * width + c);
        for (int head = 0; head < kHeads; ++head) {
          acc[head][i] = fma(query[head], x, acc[head][i]);
        }
      }
    }
    for (int head = 0; head < kHeads; ++head) {
      for (int i = 0; i < kKeys; ++i) {
        dots[head][key + i] = acc[head][i];
      }
    }
  }
  for (int head = 0; head < kHeads; ++head) {
    store(scores + head * score_stride, reduce_add_each(dots[head]));
  }
}

// sums[head] += sum of the lanes' weights times the value rows.
template <int kHeads>
MSTAR_VEC void add_value_rows(const float* weights,
                              int64_t weight_stride,
                              const float* values,
                              int64_t width,
                              float* sums,
                              int64_t sum_stride) {
  for (int64_t c = 0; c < width; c += kLanes) {
    Vec acc[kHeads];
    for (int head = 0; head < kHeads; ++head) {
      acc[head] = load(sums + head * sum_stride + c);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      const Vec x = load(values + lane * width + c);
      for (int head = 0; head < kHeads; ++head) {
        acc[head] = fma(set(weights[head * weight_stride + lane]), x, acc[head]);
      }
    }
    for (int head = 0; head < kHeads; ++head) {
      store(sums + head * sum_stride + c, acc[head]);
    }
  }
}

// result = fold of result and chunk: both are [group, width + 2].
inline void fold_chunk(int32_t group, int64_t width, const float* chunk, float* result) {
  for (int32_t head = 0; head < group; ++head) {
    const float* from = chunk + head * (width + 2);
    float* to = result + head * (width + 2);
    const float most = from[width] > to[width] ? from[width] : to[width];
    const float shift = most == -kInfinity ? 0.0F : most;
    float factors[kLanes + 1] = {to[width] - shift, from[width] - shift};
    const Vec scaled = exp_not_positive(load_n(factors, kLanes < 2 ? 1 : 2));
    if constexpr (kLanes < 2) {
      store(factors + 1, exp_not_positive(load(factors + 1)));
      store(factors, scaled);
    } else {
      store_n(factors, scaled, 2);
    }
    for (int64_t c = 0; c < width; c += kLanes) {
      store(to + c, fma(load(from + c), set(factors[1]), load(to + c) * factors[0]));
    }
    to[width] = most;
    to[width + 1] = to[width + 1] * factors[0] + from[width + 1] * factors[1];
  }
}

inline void clear_result(int32_t group, int64_t width, float* result) {
  for (int32_t head = 0; head < group; ++head) {
    float* to = result + head * (width + 2);
    for (int64_t c = 0; c < width + 2; ++c) {
      to[c] = 0.0F;
    }
    to[width] = -kInfinity;
  }
}

// Calls function.template operator()<kHeads>(head) until all heads of the group are done.
template <typename Function>
MSTAR_VEC void for_heads(int32_t group, Function&& function) {
  int32_t head = 0;
  for (; head + kHeadsAtOnce <= group; head += kHeadsAtOnce) {
    function.template operator()<kHeadsAtOnce>(head);
  }
  for (; head < group; ++head) {
    function.template operator()<1>(head);
  }
}

// Keys [begin, end) of a chunk that starts at `first`, into s.chunk.
template <typename T>
void attend_chunk(const AttentionParams& p,
                  const AttentionItem& item,
                  const DecodeScratch& s,
                  int32_t begin,
                  int32_t end,
                  int32_t first) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int64_t width = decode_width(p.head_dim);
  const T* k[kAttentionChunk];
  const T* v[kAttentionChunk];
  // Steps of kLanes keys from the chunk's start on: a step's lanes never move with the mask.
  const int32_t low = (begin - first) / kLanes * kLanes;
  const int32_t count = end - first;
  const int32_t padded = static_cast<int32_t>(round_up(count, kLanes));
  find_rows(p.kv, item.sequence, item.kv_head, first + low, end, k + low, v + low);
  for (int32_t key = low; key < count; key += kLanes) {
    widen_rows(k + key, count - key, p.head_dim, s.rows);
    for_heads(group, [&]<int kHeads>(int32_t head) {
      score_heads<kHeads>(s.q + head * width,
                          s.rows,
                          width,
                          s.scores + head * kAttentionChunk + key,
                          kAttentionChunk);
    });
  }
  clear_result(group, width, s.chunk);
  for (int32_t head = 0; head < group; ++head) {
    float* scores = s.scores + head * kAttentionChunk + low;
    float* chunk = s.chunk + head * (width + 2);
    if (p.soft_cap > 0.0F) {
      soften_scores(scores, p.soft_cap, padded - low);
    }
    const int32_t from = begin - first - low;
    keep_keys(scores, from, count - low, padded - low, -kInfinity);
    chunk[width] = max_score(scores, padded - low);
    const float shift = chunk[width] == -kInfinity ? 0.0F : chunk[width];
    chunk[width + 1] = exponentiate(scores, from, count - low, padded - low, shift);
  }
  for (int32_t key = low; key < count; key += kLanes) {
    widen_rows(v + key, count - key, p.head_dim, s.rows);
    for_heads(group, [&]<int kHeads>(int32_t head) {
      add_value_rows<kHeads>(s.scores + head * kAttentionChunk + key,
                             kAttentionChunk,
                             s.rows,
                             width,
                             s.chunk + head * (width + 2),
                             width + 2);
    });
  }
}

// The last task of a (sequence, kv head) folds all its chunks.
inline bool leave_partial(const AttentionParams& p,
                          const AttentionItem& item,
                          const DecodeScratch& s,
                          int32_t chunks) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int64_t width = decode_width(p.head_dim);
  const int64_t size = group * (width + 2);
  float* mine = p.partial + (item.partial + item.begin) * size;
  for (int64_t i = 0; i < size; ++i) {
    mine[i] = s.chunk[i];
  }
  int32_t* pending = p.pending + item.sequence * p.num_kv_heads + item.kv_head;
  if (__atomic_sub_fetch(pending, 1, __ATOMIC_ACQ_REL) > 0) {
    return false;
  }
  clear_result(group, width, s.result);
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    fold_chunk(group, width, p.partial + (item.partial + chunk) * size, s.result);
  }
  return true;
}

template <typename T>
void attend_decode(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int64_t width = decode_width(p.head_dim);
  const int32_t kv_len = kv_length(p.kv, item.sequence);
  const int32_t begin = p.window > 0 && kv_len > p.window ? kv_len - p.window : 0;
  const int64_t row = first_query(p, item.sequence);
  const DecodeScratch s = cut_decode_scratch(scratch, group, p.head_dim);
  for (int32_t head = 0; head < group; ++head) {
    for (int64_t c = 0; c < width; c += kLanes) {
      store(s.q + head * width + c, zero());
    }
    load_query(p, row, item.kv_head * group + head, s.q + head * width);
  }
  clear_result(group, width, s.result);
  for (int32_t chunk = item.begin; chunk < item.begin + item.chunks; ++chunk) {
    const int32_t first = chunk * kAttentionChunk;
    const int32_t end = first + kAttentionChunk < kv_len ? first + kAttentionChunk : kv_len;
    const int32_t from = begin > first ? begin : first;
    if (from < end) {
      attend_chunk<T>(p, item, s, from, end, first);
    } else {
      clear_result(group, width, s.chunk);
    }
    if (item.partial < 0) {
      fold_chunk(group, width, s.chunk, s.result);
    }
  }
  const int32_t all = (kv_len + kAttentionChunk - 1) / kAttentionChunk;
  if (item.partial >= 0 && !leave_partial(p, item, s, all)) {
    return;
  }
  for (int32_t head = 0; head < group; ++head) {
    const float* result = s.result + head * (width + 2);
    store_output(p, row, item.kv_head * group + head, result, result[width + 1]);
  }
}

// Attention of one query token against a whole cache: bound by the reading of keys and values.
// Part of attention_kernels.cc, inside its namespace.
//
// Each key row is read once for two heads of the group, straight from the cache's pages. Chunks of
// kAttentionChunk keys have a softmax of their own; the running result is the fold of the chunks in
// order. kPairs: see attention_pack-inl.h.

inline constexpr int kHeadsAtOnce = 2;

struct DecodeScratch {
  float* q;       // [group, width] words, zero past head_dim; f32 ones are scaled
  float* scores;  // [group, kAttentionChunk]
  float* chunk;   // [group, width + 2]: sums, maximum, total of a chunk
  float* result;  // [group, width + 2]: the fold so far
};

inline int64_t decode_width(int32_t head_dim) {
  return round_up(head_dim, kLanes);
}

inline int64_t decode_scratch_floats(int32_t group, int32_t head_dim) {
  const int64_t width = decode_width(head_dim);
  return group * width + static_cast<int64_t>(group) * kAttentionChunk + 2 * group * (width + 2);
}

inline DecodeScratch cut_decode_scratch(float* scratch, int32_t group, int32_t head_dim) {
  const int64_t width = decode_width(head_dim);
  DecodeScratch s;
  s.q = scratch;
  s.scores = s.q + group * width;
  s.chunk = s.scores + static_cast<int64_t>(group) * kAttentionChunk;
  s.result = s.chunk + group * (width + 2);
  return s;
}

// kLanes words of a row from word c on, zeros past head_dim.
template <bool kPairs, typename T>
MSTAR_VEC Vec row_words(const T* row, int32_t c, int32_t head_dim) {
  if constexpr (kPairs) {
    return load_words(row, c, head_dim);
  } else {
    const int32_t rest = head_dim - c;
    return rest >= kLanes ? load(row + c) : load_n(row + c, rest);
  }
}

// Asks for a row that is read soon: the rows of one head are too far apart for the machine to see.
template <typename T>
MSTAR_VEC void prefetch_row(const T* row, int32_t head_dim) {
  const auto* bytes = reinterpret_cast<const char*>(row);
  for (size_t at = 0; at < static_cast<size_t>(head_dim) * sizeof(T); at += 64) {
    __builtin_prefetch(bytes + at, 0, 3);
  }
}

// scores[head][lane] of kLanes keys for kHeads heads.
template <bool kPairs, int kHeads, typename T>
MSTAR_VEC void score_heads(const float* q,
                           const T* const* keys,
                           int32_t head_dim,
                           float* scores,
                           int64_t score_stride) {
  constexpr int kKeys = kLanes < 4 ? kLanes : 4;  // keys whose sums are in registers at once
  const int64_t width = decode_width(head_dim);
  Vec dots[kHeads][kLanes];
  for (int key = 0; key < kLanes; key += kKeys) {
    Vec acc[kHeads][kKeys] = {};
    for (int32_t c = 0; c < num_words<kPairs>(head_dim); c += kLanes) {
      Vec query[kHeads];
#pragma GCC unroll 4
      for (int head = 0; head < kHeads; ++head) {
        query[head] = load(q + head * width + c);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        const Vec x = row_words<kPairs>(keys[key + i], c, head_dim);
#pragma GCC unroll 4
        for (int head = 0; head < kHeads; ++head) {
          if constexpr (kPairs) {
            acc[head][i] = dot_pairs(acc[head][i], query[head], x);
          } else {
            acc[head][i] = fma(query[head], x, acc[head][i]);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int head = 0; head < kHeads; ++head) {
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        dots[head][key + i] = acc[head][i];
      }
    }
  }
  for (int head = 0; head < kHeads; ++head) {
    store(scores + head * score_stride, reduce_add_each(dots[head]));
  }
}

// sums[head] += sum of the keys' weights times their value rows, for kVecs vectors of columns from
// `column` on; `last` of them count in the last one.
template <int kHeads, int kVecs, typename T>
MSTAR_VEC void add_value_columns(const float* weights,
                                 int64_t weight_stride,
                                 const T* const* values,
                                 int32_t count,
                                 int32_t head_dim,
                                 int32_t column,
                                 float* sums,
                                 int64_t sum_stride) {
  constexpr int32_t kAhead = 8;
  const int32_t left = head_dim - column;
  const int last = left < kVecs * kLanes ? left - (kVecs - 1) * kLanes : kLanes;
  Vec acc[kHeads][kVecs];
#pragma GCC unroll 4
  for (int head = 0; head < kHeads; ++head) {
#pragma GCC unroll 16
    for (int vec = 0; vec < kVecs; ++vec) {
      acc[head][vec] = load(sums + head * sum_stride + column + vec * kLanes);
    }
  }
  for (int32_t key = 0; key < count; ++key) {
    const T* row = values[key] + column;
    if (column == 0 && key + kAhead < count) {
      prefetch_row(values[key + kAhead], head_dim);
    }
    Vec weight[kHeads];
#pragma GCC unroll 4
    for (int head = 0; head < kHeads; ++head) {
      weight[head] = set(weights[head * weight_stride + key]);
    }
#pragma GCC unroll 16
    for (int vec = 0; vec < kVecs; ++vec) {
      const Vec x = vec + 1 < kVecs ? load(row + vec * kLanes) : load_n(row + vec * kLanes, last);
#pragma GCC unroll 4
      for (int head = 0; head < kHeads; ++head) {
        acc[head][vec] = fma(weight[head], x, acc[head][vec]);
      }
    }
  }
#pragma GCC unroll 4
  for (int head = 0; head < kHeads; ++head) {
#pragma GCC unroll 16
    for (int vec = 0; vec < kVecs; ++vec) {
      store(sums + head * sum_stride + column + vec * kLanes, acc[head][vec]);
    }
  }
}

// The same for all columns.
template <int kHeads, typename T>
void add_value_rows(const float* weights,
                    int64_t weight_stride,
                    const T* const* values,
                    int32_t count,
                    int32_t head_dim,
                    float* sums,
                    int64_t sum_stride) {
  constexpr int32_t kWide = kLanes == 16 ? 8 : 4;  // with two heads as many sums as registers hold
  int32_t column = 0;
  for (; column + (kWide - 1) * kLanes < head_dim; column += kWide * kLanes) {
    add_value_columns<kHeads, kWide>(
        weights, weight_stride, values, count, head_dim, column, sums, sum_stride);
  }
  for (; column + kLanes < head_dim; column += 2 * kLanes) {
    add_value_columns<kHeads, 2>(
        weights, weight_stride, values, count, head_dim, column, sums, sum_stride);
  }
  if (column < head_dim) {
    add_value_columns<kHeads, 1>(
        weights, weight_stride, values, count, head_dim, column, sums, sum_stride);
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
template <typename T, bool kPairs>
void attend_chunk(const AttentionParams& p,
                  const AttentionItem& item,
                  const DecodeScratch& s,
                  int32_t begin,
                  int32_t end,
                  int32_t first) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int64_t width = decode_width(p.head_dim);
  const T* k[kAttentionChunk + kLanes];
  const T* v[kAttentionChunk];
  // Steps of kLanes keys from the chunk's start on: a step's lanes never move with the mask.
  const int32_t low = (begin - first) / kLanes * kLanes;
  const int32_t count = end - first;
  const int32_t padded = static_cast<int32_t>(round_up(count, kLanes));
  find_rows(p.kv, item.sequence, item.kv_head, first + low, end, k + low, v + low);
  for (int32_t key = count; key < padded; ++key) {
    k[key] = k[count - 1];  // masked below
  }
  for (int32_t key = low; key < count; key += kLanes) {
    for (int32_t next = key + kLanes; next < key + 2 * kLanes && next < count; ++next) {
      prefetch_row(k[next], p.head_dim);
    }
    for_heads(group, [&]<int kHeads>(int32_t head) {
      score_heads<kPairs, kHeads>(s.q + head * width,
                                  k + key,
                                  p.head_dim,
                                  s.scores + head * kAttentionChunk + key,
                                  kAttentionChunk);
    });
  }
  clear_result(group, width, s.chunk);
  const bool scale_later = kPairs && p.scale > 0.0F && p.soft_cap == 0.0F;
  const float scale = scale_later ? p.scale : 1.0F;
  for (int32_t head = 0; head < group; ++head) {
    float* scores = s.scores + head * kAttentionChunk + low;
    float* chunk = s.chunk + head * (width + 2);
    if (kPairs && !scale_later) {
      scale_scores(scores, p.scale, padded - low);
    }
    if (p.soft_cap > 0.0F) {
      soften_scores(scores, p.soft_cap, padded - low);
    }
    const int32_t from = begin - first - low;
    keep_keys(scores, from, count - low, padded - low, -kInfinity);
    chunk[width] = max_score(scores, padded - low) * scale;
    const float shift = chunk[width] == -kInfinity ? 0.0F : chunk[width];
    chunk[width + 1] = exponentiate(scores, from, count - low, padded - low, scale, shift);
  }
  for_heads(group, [&]<int kHeads>(int32_t head) {
    add_value_rows<kHeads>(s.scores + head * kAttentionChunk + low,
                           kAttentionChunk,
                           v + low,
                           count - low,
                           p.head_dim,
                           s.chunk + head * (width + 2),
                           width + 2);
  });
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

template <typename T, bool kPairs>
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
    load_query_words<kPairs>(p, row, item.kv_head * group + head, 1, s.q + head * width);
  }
  clear_result(group, width, s.result);
  for (int32_t chunk = item.begin; chunk < item.begin + item.chunks; ++chunk) {
    const int32_t first = chunk * kAttentionChunk;
    const int32_t end = first + kAttentionChunk < kv_len ? first + kAttentionChunk : kv_len;
    const int32_t from = begin > first ? begin : first;
    if (from < end) {
      attend_chunk<T, kPairs>(p, item, s, from, end, first);
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

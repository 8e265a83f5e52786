// Attention of one query token against a whole cache: bound by the reading of keys and values.
// Part of attention_kernels.cc, inside its namespace.
//
// Rows are read once for two heads of the group, straight from the cache's pages and in the order
// of memory: token after token, the heads of each. Chunks of kAttentionChunk keys have a softmax of
// their own; the running result is the fold of the chunks in order. kPairs: attention_pack-inl.h.

inline constexpr int kHeadsAtOnce = 2;

struct DecodeScratch {
  float* q;       // [heads, width] words, zero past head_dim; f32 ones are scaled
  float* dots;    // [heads, kLanes keys, kLanes] what is to be added up to a score
  float* scores;  // [heads, kAttentionChunk]
  float* chunk;   // [heads, width + 2]: sums, maximum, total of a chunk
  float* result;  // [heads, width + 2]: the fold so far
};

inline int64_t decode_width(int32_t head_dim) {
  return round_up(head_dim, kLanes);
}

inline int64_t decode_scratch_floats(int32_t heads, int32_t head_dim) {
  const int64_t width = decode_width(head_dim);
  return heads * (width + kLanes * kLanes + kAttentionChunk + 2 * (width + 2)) + kLanes;
}

inline DecodeScratch cut_decode_scratch(float* scratch, int32_t heads, int32_t head_dim) {
  const int64_t width = decode_width(head_dim);
  DecodeScratch s;
  s.q = scratch;
  s.dots = s.q + heads * width;
  s.scores = s.dots + heads * kLanes * kLanes;
  s.chunk = s.scores + static_cast<int64_t>(heads) * kAttentionChunk;
  s.result = s.chunk + heads * (width + 2);
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

// dots[head * kLanes * kLanes …] of one key row for kHeads heads of the group.
template <bool kPairs, int kHeads, typename T>
MSTAR_VEC void dot_heads(const float* q, const T* row, int32_t head_dim, float* dots) {
  const int64_t width = decode_width(head_dim);
  Vec acc[kHeads] = {};
  for (int32_t c = 0; c < num_words<kPairs>(head_dim); c += kLanes) {
    const Vec x = row_words<kPairs>(row, c, head_dim);
#pragma GCC unroll 4
    for (int head = 0; head < kHeads; ++head) {
      const Vec query = load(q + head * width + c);
      if constexpr (kPairs) {
        acc[head] = dot_pairs(acc[head], query, x);
      } else {
        acc[head] = fma(query, x, acc[head]);
      }
    }
  }
#pragma GCC unroll 4
  for (int head = 0; head < kHeads; ++head) {
    store(dots + head * kLanes * kLanes, acc[head]);
  }
}

// Tokens between what is read and what is asked for. Asking nearer, or for the first-level cache,
// halves the speed on Zen 4.
inline constexpr int32_t kTokensAhead = 32;

// Asks for bytes that are read soon, into the second-level cache.
MSTAR_VEC void prefetch_bytes(const void* begin, int64_t size) {
  const auto* bytes = static_cast<const char*>(begin);
  for (int64_t at = 0; at < size; at += 64) {
    __builtin_prefetch(bytes + at, 0, 2);
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

// Scores of the keys [low, count) for all heads of the item, token after token.
template <typename T, bool kPairs>
void score_chunk(const AttentionParams& p,
                 const AttentionItem& item,
                 const DecodeScratch& s,
                 const T* const* k,
                 int32_t low,
                 int32_t count) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int64_t width = decode_width(p.head_dim);
  constexpr int64_t kDots = kLanes * kLanes;
  for (int32_t key = low; key < count; key += kLanes) {
    for (int32_t lane = 0; lane < kLanes; ++lane) {
      const int32_t at = key + lane < count ? key + lane : count - 1;  // masked later
      const int32_t ahead = at + kTokensAhead < count ? at + kTokensAhead : at;
      for (int32_t kv = 0; kv < item.kv_heads; ++kv) {
        prefetch_bytes(k[ahead] + kv * p.kv.head_stride, p.head_dim * int64_t{sizeof(T)});
        for_heads(group, [&]<int kHeads>(int32_t head) {
          const int64_t index = kv * group + head;
          dot_heads<kPairs, kHeads>(s.q + index * width,
                                    k[at] + kv * p.kv.head_stride,
                                    p.head_dim,
                                    s.dots + index * kDots + lane * kLanes);
        });
      }
    }
    for (int32_t head = 0; head < item.kv_heads * group; ++head) {
      Vec dots[kLanes];
#pragma GCC unroll 16
      for (int lane = 0; lane < kLanes; ++lane) {
        dots[lane] = load(s.dots + head * kDots + lane * kLanes);
      }
      store(s.scores + head * kAttentionChunk + key, reduce_add_each(dots));
    }
  }
}

// Weighted values of the keys [low, count), a few tokens at a time for all heads of the item.
template <typename T>
void add_chunk_values(const AttentionParams& p,
                      const AttentionItem& item,
                      const DecodeScratch& s,
                      const T* const* v,
                      int32_t low,
                      int32_t count) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int64_t width = decode_width(p.head_dim);
  constexpr int32_t kTokens = 4;
  for (int32_t key = low; key < count; key += kTokens) {
    const int32_t tokens = count - key < kTokens ? count - key : kTokens;
    for (int32_t kv = 0; kv < item.kv_heads; ++kv) {
      const T* rows[kTokens];
      for (int32_t token = 0; token < tokens; ++token) {
        rows[token] = v[key + token] + kv * p.kv.head_stride;
        const int32_t ahead = key + token + kTokensAhead;
        if (ahead < count) {
          prefetch_bytes(v[ahead] + kv * p.kv.head_stride, p.head_dim * int64_t{sizeof(T)});
        }
      }
      for_heads(group, [&]<int kHeads>(int32_t head) {
        const int64_t index = kv * group + head;
        add_value_rows<kHeads>(s.scores + index * kAttentionChunk + key,
                               kAttentionChunk,
                               rows,
                               tokens,
                               p.head_dim,
                               s.chunk + index * (width + 2),
                               width + 2);
      });
    }
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
  const int32_t heads = item.kv_heads * (p.num_heads / p.num_kv_heads);
  const int64_t width = decode_width(p.head_dim);
  const T* k[kAttentionChunk];
  const T* v[kAttentionChunk];
  // Steps of kLanes keys from the chunk's start on: a step's lanes never move with the mask.
  const int32_t low = (begin - first) / kLanes * kLanes;
  const int32_t count = end - first;
  const int32_t padded = static_cast<int32_t>(round_up(count, kLanes));
  find_rows(p.kv, item.sequence, item.kv_head, first + low, end, k + low, v + low);
  score_chunk<T, kPairs>(p, item, s, k, low, count);
  clear_result(heads, width, s.chunk);
  const bool scale_later = kPairs && p.scale > 0.0F && p.soft_cap == 0.0F;
  const float scale = scale_later ? p.scale : 1.0F;
  for (int32_t head = 0; head < heads; ++head) {
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
  add_chunk_values(p, item, s, v, low, count);
}

// The last task of a sequence's heads folds all their chunks.
inline bool leave_partial(const AttentionParams& p,
                          const AttentionItem& item,
                          const DecodeScratch& s,
                          int32_t chunks) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int64_t width = decode_width(p.head_dim);
  const int64_t head_floats = group * (width + 2);
  const int64_t size = item.kv_heads * head_floats;
  // Where the results of the item's heads for the sequence's first chunk are.
  float* first = p.partial + (int64_t{item.partial} * p.num_kv_heads + item.kv_head) * head_floats;
  const int64_t chunk_floats = p.num_kv_heads * head_floats;
  float* mine = first + item.begin * chunk_floats;
  for (int64_t i = 0; i < size; ++i) {
    mine[i] = s.chunk[i];
  }
  int32_t* pending = p.pending + item.sequence * p.num_kv_heads + item.kv_head;
  if (__atomic_sub_fetch(pending, 1, __ATOMIC_ACQ_REL) > 0) {
    return false;
  }
  const int32_t heads = item.kv_heads * group;
  clear_result(heads, width, s.result);
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    fold_chunk(heads, width, first + chunk * chunk_floats, s.result);
  }
  return true;
}

template <typename T, bool kPairs>
void attend_decode(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int32_t heads = item.kv_heads * group;
  const int32_t first_head = item.kv_head * group;
  const int64_t width = decode_width(p.head_dim);
  const int32_t kv_len = kv_length(p.kv, item.sequence);
  const int32_t begin = p.window > 0 && kv_len > p.window ? kv_len - p.window : 0;
  const int64_t row = first_query(p, item.sequence);
  const DecodeScratch s = cut_decode_scratch(scratch, heads, p.head_dim);
  for (int32_t head = 0; head < heads; ++head) {
    for (int64_t c = 0; c < width; c += kLanes) {
      store(s.q + head * width + c, zero());
    }
    load_query_words<kPairs>(p, row, first_head + head, 1, s.q + head * width);
  }
  clear_result(heads, width, s.result);
  for (int32_t chunk = item.begin; chunk < item.begin + item.chunks; ++chunk) {
    const int32_t first = chunk * kAttentionChunk;
    const int32_t end = first + kAttentionChunk < kv_len ? first + kAttentionChunk : kv_len;
    const int32_t from = begin > first ? begin : first;
    if (from < end) {
      attend_chunk<T, kPairs>(p, item, s, from, end, first);
    } else {
      clear_result(heads, width, s.chunk);
    }
    if (item.partial < 0) {
      fold_chunk(heads, width, s.chunk, s.result);
    }
  }
  const int32_t all = (kv_len + kAttentionChunk - 1) / kAttentionChunk;
  if (item.partial >= 0 && !leave_partial(p, item, s, all)) {
    return;
  }
  for (int32_t head = 0; head < heads; ++head) {
    const float* result = s.result + head * (width + 2);
    store_output(p, row, first_head + head, result, result[width + 1]);
  }
}

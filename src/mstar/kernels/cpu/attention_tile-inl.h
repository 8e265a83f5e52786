// Flash attention of a block of query rows against tiles of keys; compiled once per instruction
// set. Part of attention_kernels.cc, inside its namespace.
//
// Rows of a block are (query token, head of the group) pairs, so that a key tile, once packed,
// serves the whole group. Keys are packed as panels [head_dim][kPanel keys], values as panels
// [keys][kPanel columns]: both products are then the same microkernel, which multiplies kTileRows
// broadcast words with a panel row. Tiles begin at multiples of their width, whatever the mask:
// a row's result depends on its own keys alone, never on the rows beside it.
//
// Where the machine dots pairs of bf16 (kPairs), bf16 queries meet bf16 keys as they are, and the
// weights of the values are rounded to bf16; the scale waits until the scores are exponentiated.

// What one item works in, cut from its task's scratch.
struct BlockScratch {
  float* q;        // [rows, head_dim], scaled; pairs: of each tile [head_dim / 2][its rows], as is
  float* sums;     // [rows, width]
  float* keys;     // words [tile_keys / kPanel][of head_dim][kPanel]
  float* values;   // words [width / kPanel][of tile_keys][kPanel]
  float* scores;   // [kTilesAbreast * kTileRows, kScoreStride]; then the weights, as words
  float* most;     // [rows] running maximum
  float* total;    // [rows] running sum of weights
  int32_t* begin;  // [rows] keys that a row sees
  int32_t* end;
};

inline int64_t block_scratch_floats(int32_t rows, int32_t head_dim) {
  const int64_t width = round_up(head_dim, kPanel);
  const int64_t keys = tile_keys(head_dim);
  return round_up(static_cast<int64_t>(rows) * head_dim, 16) + rows * width +
         round_up(keys * head_dim, 16) + keys * width + kTilesAbreast * kTileRows * kScoreStride +
         4 * round_up(rows, 16);
}

inline BlockScratch cut_block_scratch(float* scratch, int32_t rows, int32_t head_dim) {
  const int64_t width = round_up(head_dim, kPanel);
  const int64_t keys = tile_keys(head_dim);
  const auto take = [&scratch](int64_t size) {
    float* taken = scratch;
    scratch += size;
    return taken;
  };
  BlockScratch s;
  s.q = take(round_up(static_cast<int64_t>(rows) * head_dim, 16));
  s.sums = take(rows * width);
  s.keys = take(round_up(keys * head_dim, 16));
  s.values = take(keys * width);
  s.scores = take(kTilesAbreast * kTileRows * kScoreStride);
  s.most = take(round_up(rows, 16));
  s.total = take(round_up(rows, 16));
  s.begin = reinterpret_cast<int32_t*>(take(round_up(rows, 16)));
  s.end = reinterpret_cast<int32_t*>(take(round_up(rows, 16)));
  return s;
}

// A tile of `count` keys from `first` on.
struct Tile {
  int32_t first;
  int32_t count;
  int32_t width;  // tile_keys()
};

// acc[row] += sum over depth of a[row * stride + i * step] * b[i * kPanel …], all words.
template <bool kPairs, int kRows>
MSTAR_VEC void multiply_panel(const float* a,
                              int64_t stride,
                              int64_t step,
                              const float* b,
                              int64_t depth,
                              Vec (&acc)[kRows][kTileVecs]) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < depth; ++i) {
    Vec panel[kTileVecs];
#pragma GCC unroll 4
    for (int vec = 0; vec < kTileVecs; ++vec) {
      panel[vec] = load(b + i * kPanel + vec * kLanes);
    }
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Vec x = set(a[row * stride + i * step]);
#pragma GCC unroll 4
      for (int vec = 0; vec < kTileVecs; ++vec) {
        if constexpr (kPairs) {
          acc[row][vec] = dot_pairs(acc[row][vec], x, panel[vec]);
        } else {
          accumulate(acc[row][vec], x, panel[vec]);
        }
      }
    }
  }
}

// scores[row][key] for the panels [begin, end).
template <bool kPairs, int kRows>
void score_panels(const BlockScratch& s,
                  const float* q,
                  int64_t depth,  // words
                  int32_t begin,
                  int32_t end) {
  constexpr int kStep = kRows < kTileRows ? kRows : kTileRows;
  for (int32_t panel = begin; panel < end; ++panel) {
    const float* keys = s.keys + panel * depth * kPanel;
    for (int first = 0; first < kRows; first += kStep) {
      Vec acc[kStep][kTileVecs] = {};
      multiply_panel<kPairs, kStep>(
          q + first * depth, kPairs ? 1 : depth, kPairs ? kStep : 1, keys, depth, acc);
      float* scores = s.scores + first * kScoreStride + panel * kPanel;
      for (int row = 0; row < kStep; ++row) {
        for (int vec = 0; vec < kTileVecs; ++vec) {
          store(scores + row * kScoreStride + vec * kLanes, acc[row][vec]);
        }
      }
    }
  }
}

// sums = sums * decay + weights @ values, for the keys [begin, end) of the tile.
template <bool kPairs, int kRows>
void add_values(const BlockScratch& s,
                float* sums,
                int64_t width,
                const Tile& tile,
                int32_t begin,
                int32_t end,
                const float* decay) {
  constexpr int kStep = kRows < kTileRows ? kRows : kTileRows;
  const int32_t first_word = num_words<kPairs>(begin);
  const int32_t depth = num_words<kPairs>(end) - first_word;
  const float* values = s.values + static_cast<int64_t>(first_word) * kPanel;
  for (int64_t column = 0; column < width; column += kPanel) {
    for (int first = 0; first < kRows; first += kStep) {
      float* to = sums + first * width + column;
      Vec acc[kStep][kTileVecs];
      for (int row = 0; row < kStep; ++row) {
        for (int vec = 0; vec < kTileVecs; ++vec) {
          acc[row][vec] = load(to + row * width + vec * kLanes) * decay[first + row];
        }
      }
      const float* weights = s.scores + first * kScoreStride + first_word;
      multiply_panel<kPairs, kStep>(weights, kScoreStride, 1, values, depth, acc);
      for (int row = 0; row < kStep; ++row) {
        for (int vec = 0; vec < kTileVecs; ++vec) {
          store(to + row * width + vec * kLanes, acc[row][vec]);
        }
      }
    }
    values += static_cast<int64_t>(num_words<kPairs>(tile.width)) * kPanel;
  }
}

// kRows rows of the block, from `row` on, against one tile.
template <bool kPairs, int kRows>
void attend_rows(const AttentionParams& p, const BlockScratch& s, int32_t row, const Tile& tile) {
  int32_t low[kRows];
  int32_t high[kRows];
  int32_t begin = tile.count;
  int32_t end = 0;
  for (int i = 0; i < kRows; ++i) {
    const int32_t from = s.begin[row + i] - tile.first;
    const int32_t to = s.end[row + i] - tile.first;
    low[i] = from < 0 ? 0 : from;
    high[i] = to > tile.count ? tile.count : to;
    begin = low[i] < begin ? low[i] : begin;
    end = high[i] > end ? high[i] : end;
  }
  if (begin >= end) {
    return;
  }
  const int32_t first_panel = begin / kPanel;
  const int32_t end_panel = (end + kPanel - 1) / kPanel;
  begin = first_panel * kPanel;
  const int32_t keys = end_panel * kPanel - begin;
  const int64_t depth = num_words<kPairs>(p.head_dim);
  score_panels<kPairs, kRows>(s, s.q + row * depth, depth, first_panel, end_panel);
  // Scores of f32 queries are scaled already; those of pairs are where it costs nothing.
  const bool scale_later = kPairs && p.scale > 0.0F && p.soft_cap == 0.0F;
  const float scale = scale_later ? p.scale : 1.0F;
  float change[round_up(kRows, kLanes)];
  float shift[kRows];
  for (int i = 0; i < kRows; ++i) {
    float* scores = s.scores + i * kScoreStride + begin;
    if (kPairs && !scale_later) {
      scale_scores(scores, p.scale, keys);
    }
    if (p.soft_cap > 0.0F) {
      soften_scores(scores, p.soft_cap, keys);
    }
    keep_keys(scores, low[i] - begin, high[i] - begin, keys, -kInfinity);
    const float before = s.most[row + i];
    const float most = max_score(scores, keys) * scale;
    s.most[row + i] = most > before ? most : before;
    shift[i] = s.most[row + i] == -kInfinity ? 0.0F : s.most[row + i];
    change[i] = before - shift[i];
  }
  for (int i = 0; i < kRows; i += kLanes) {
    const int rest = kRows - i < kLanes ? kRows - i : kLanes;
    store(change + i, exp_not_positive(load_n(change + i, rest)));
  }
  for (int i = 0; i < kRows; ++i) {
    float* scores = s.scores + i * kScoreStride + begin;
    const float sum = exponentiate(scores, low[i] - begin, high[i] - begin, keys, scale, shift[i]);
    s.total[row + i] = s.total[row + i] * change[i] + sum;
    if constexpr (kPairs) {
      pair_weights(s.scores + i * kScoreStride, begin, begin + keys);
    }
  }
  const int64_t width = round_up(p.head_dim, kPanel);
  add_values<kPairs, kRows>(s, s.sums + row * width, width, tile, begin, end, change);
}

template <bool kPairs>
void attend_tile(const AttentionParams& p, const BlockScratch& s, int32_t rows, const Tile& tile) {
  int32_t row = 0;
  constexpr int kMostRows = kTilesAbreast * kTileRows;
  for (; row + kMostRows <= rows; row += kMostRows) {
    attend_rows<kPairs, kMostRows>(p, s, row, tile);
  }
  for (; kTilesAbreast > 1 && row + kTileRows <= rows; row += kTileRows) {
    attend_rows<kPairs, kTileRows>(p, s, row, tile);
  }
  for (; row + kTileRows / 2 <= rows; row += kTileRows / 2) {
    attend_rows<kPairs, kTileRows / 2>(p, s, row, tile);
  }
  for (; row < rows; ++row) {
    attend_rows<kPairs, 1>(p, s, row, tile);
  }
}

// Where the queries of a row begin and how far apart their words are, in words. Pairs are stored
// word by word for all rows of the tile that attend_tile gives them.
struct QueryPlace {
  int64_t first;
  int64_t stride;
};

template <bool kPairs>
QueryPlace query_place(int32_t row, int32_t rows, int32_t head_dim) {
  if constexpr (!kPairs) {
    return {static_cast<int64_t>(row) * head_dim, 1};
  }
  constexpr int32_t kHalf = kTileRows / 2;
  int32_t height = kTileRows;
  if (row >= rows / kTileRows * kTileRows) {
    height = row < rows / kHalf * kHalf ? kHalf : 1;
  }
  const int32_t first = row / height * height;
  return {static_cast<int64_t>(first) * num_words<true>(head_dim) + (row - first), height};
}

// Copies the block's queries and notes which keys each row sees.
template <bool kPairs>
void begin_block(const AttentionParams& p, const AttentionItem& item, BlockScratch& s) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int32_t kv_len = kv_length(p.kv, item.sequence);
  const int32_t before = kv_len - num_queries(p, item.sequence);  // position of the first query
  const int64_t width = round_up(p.head_dim, kPanel);
  for (int32_t token = 0; token < item.rows; ++token) {
    const int32_t position = before + item.begin + token;
    int32_t end = p.causal ? position + 1 : kv_len;
    end = end < 0 ? 0 : end;
    const int32_t begin = p.window > 0 && position - p.window + 1 > 0 ? position - p.window + 1 : 0;
    for (int32_t i = 0; i < group; ++i) {
      const int32_t row = token * group + i;
      const int64_t query = first_query(p, item.sequence) + item.begin + token;
      const QueryPlace place = query_place<kPairs>(row, item.rows * group, p.head_dim);
      load_query_words<kPairs>(p, query, item.kv_head * group + i, place.stride, s.q + place.first);
      s.begin[row] = begin;
      s.end[row] = end;
      s.most[row] = -kInfinity;
      s.total[row] = 0.0F;
    }
  }
  const int64_t num_sums = static_cast<int64_t>(item.rows) * group * width;
  for (int64_t i = 0; i < num_sums; i += kLanes) {
    store(s.sums + i, zero());
  }
}

template <typename T, bool kPairs>
void attend_block(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int32_t rows = item.rows * group;
  BlockScratch s = cut_block_scratch(scratch, rows, p.head_dim);
  begin_block<kPairs>(p, item, s);
  // Positions rise with the tokens: the first row sees the earliest key, the last row the latest.
  const int32_t last_key = s.end[rows - 1];
  const int32_t width = tile_keys(p.head_dim);
  for (int32_t first = s.begin[0] / width * width; first < last_key; first += width) {
    const int32_t left = last_key - first;
    const Tile tile{first, left < width ? left : width, width};
    const T* k[kMaxTileKeys];
    const T* v[kMaxTileKeys];
    find_rows(p.kv, item.sequence, item.kv_head, first, first + tile.count, k, v);
    pack_keys<T, kPairs>(k, tile.count, p.head_dim, num_words<kPairs>(p.head_dim), s.keys);
    if constexpr (kPairs) {
      pack_value_pairs(v, tile.count, p.head_dim, width, s.values);
    } else {
      pack_values(v, tile.count, p.head_dim, width, s.values);
    }
    attend_tile<kPairs>(p, s, rows, tile);
  }
  const int64_t columns = round_up(p.head_dim, kPanel);
  for (int32_t row = 0; row < rows; ++row) {
    store_output(p,
                 first_query(p, item.sequence) + item.begin + row / group,
                 item.kv_head * group + row % group,
                 s.sums + row * columns,
                 s.total[row]);
  }
}

// Flash attention of a block of query rows against tiles of keys; compiled once per instruction
// set. Part of attention_kernels.cc, inside its namespace.
//
// Rows of a block are (query token, head of the group) pairs, so that a key tile, once packed,
// serves the whole group. Keys are packed as panels [head_dim][kPanel keys], values as panels
// [keys][kPanel columns]: both products are then the same microkernel, which multiplies kTileRows
// broadcast scalars with a panel row. Tiles begin at multiples of their width, whatever the mask:
// a row's result depends on its own keys alone, never on the rows beside it.

#if defined(MSTAR_ISA_IS_avx512) || defined(MSTAR_ISA_IS_avx512_bf16)
inline constexpr int kTileRows = 12;  // 24 of 32 registers accumulate
inline constexpr int kTileVecs = 2;
inline constexpr int kTilesAbreast = 1;
#elif defined(MSTAR_ISA_IS_avx2)
inline constexpr int kTileRows = 6;  // 12 of 16
inline constexpr int kTileVecs = 2;
inline constexpr int kTilesAbreast = 2;  // both use a panel while it is in the first-level cache
#else
inline constexpr int kTileRows = 4;
inline constexpr int kTileVecs = 4;
inline constexpr int kTilesAbreast = 1;
#endif
inline constexpr int kPanel = kTileVecs * kLanes;
inline constexpr int kMaxTileKeys = 128;

MSTAR_VEC constexpr int64_t round_up(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// Keys of a tile: packed keys and values together stay within the second-level cache.
inline int32_t tile_keys(int32_t head_dim) {
  const int64_t width = round_up(head_dim, kPanel);
  int32_t keys = kMaxTileKeys;
  while (keys > 32 && keys * width > (16 << 10)) {
    keys /= 2;
  }
  return keys;
}

// What one item works in, cut from its task's scratch.
struct BlockScratch {
  float* q;        // [rows, head_dim], scaled
  float* sums;     // [rows, width]
  float* keys;     // [tile_keys / kPanel][head_dim][kPanel]
  float* values;   // [width / kPanel][tile_keys][kPanel]
  float* scores;   // [kTilesAbreast * kTileRows, tile_keys]
  float* most;     // [rows] running maximum
  float* total;    // [rows] running sum of weights
  int32_t* begin;  // [rows] keys that a row sees
  int32_t* end;
};

inline int64_t block_scratch_floats(int32_t rows, int32_t head_dim) {
  const int64_t width = round_up(head_dim, kPanel);
  const int64_t keys = tile_keys(head_dim);
  return round_up(static_cast<int64_t>(rows) * head_dim, 16) + rows * width +
         round_up(keys * head_dim, 16) + keys * width + kTilesAbreast * kTileRows * keys +
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
  s.scores = take(kTilesAbreast * kTileRows * keys);
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
  int32_t width;  // tile_keys(): the distance of score rows
};

// kLanes key rows become columns of a panel: to[c * kPanel + lane] = k[lane][c].
template <typename T>
void pack_key_lanes(const T* const* k, int32_t head_dim, float* to) {
  Vec rows[kLanes];
  int32_t c = 0;
  for (; c + kLanes <= head_dim; c += kLanes) {
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane) {
      rows[lane] = load(k[lane] + c);
    }
    transpose(rows);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      store(to + static_cast<int64_t>(c + i) * kPanel, rows[i]);
    }
  }
  if (c < head_dim) {
    for (int lane = 0; lane < kLanes; ++lane) {
      rows[lane] = load_n(k[lane] + c, head_dim - c);
    }
    transpose(rows);
    for (int i = 0; c + i < head_dim; ++i) {
      store(to + static_cast<int64_t>(c + i) * kPanel, rows[i]);
    }
  }
}

// Places behind the last key repeat it; their scores are masked.
template <typename T>
void pack_keys(const T* const* k, int32_t count, int32_t head_dim, float* to) {
  for (int32_t key = 0; key < count; key += kPanel) {
    for (int vec = 0; vec < kTileVecs; ++vec) {
      const T* rows[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        const int32_t index = key + vec * kLanes + lane;
        rows[lane] = k[index < count ? index : count - 1];
      }
      pack_key_lanes(rows, head_dim, to + vec * kLanes);
    }
    to += static_cast<int64_t>(head_dim) * kPanel;
  }
}

// Value rows, cut into panels; columns past head_dim are zero.
template <typename T>
void pack_values(const T* const* v, int32_t count, int32_t head_dim, int32_t width, float* to) {
  for (int32_t key = 0; key < count; ++key) {
    const T* from = v[key];
    float* row = to + static_cast<int64_t>(key) * kPanel;
    int32_t c = 0;
    for (; c + kPanel <= head_dim; c += kPanel) {
      for (int vec = 0; vec < kTileVecs; ++vec) {
        store(row + vec * kLanes, load(from + c + vec * kLanes));
      }
      row += static_cast<int64_t>(width) * kPanel;
    }
    for (int vec = 0; vec < kTileVecs && c < head_dim; ++vec) {
      const int32_t rest = head_dim - c - vec * kLanes;
      const int lanes = rest < 0 ? 0 : rest < kLanes ? rest : kLanes;
      store(row + vec * kLanes, load_n(from + c + (lanes > 0 ? vec * kLanes : 0), lanes));
    }
  }
}

// acc[row] += sum over depth of a[row * stride + i] * b[i * kPanel …].
template <int kRows>
MSTAR_VEC void multiply_panel(const float* a,
                              int64_t stride,
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
      const Vec x = set(a[row * stride + i]);
#pragma GCC unroll 4
      for (int vec = 0; vec < kTileVecs; ++vec) {
        acc[row][vec] = fma(x, panel[vec], acc[row][vec]);
      }
    }
  }
}

// scores[row][key] for the panels [begin, end).
template <int kRows>
void score_panels(const BlockScratch& s,
                  const float* q,
                  int32_t head_dim,
                  const Tile& tile,
                  int32_t begin,
                  int32_t end) {
  constexpr int kStep = kRows < kTileRows ? kRows : kTileRows;
  for (int32_t panel = begin; panel < end; ++panel) {
    const float* keys = s.keys + static_cast<int64_t>(panel) * head_dim * kPanel;
    for (int first = 0; first < kRows; first += kStep) {
      Vec acc[kStep][kTileVecs] = {};
      multiply_panel<kStep>(
          q + static_cast<int64_t>(first) * head_dim, head_dim, keys, head_dim, acc);
      float* scores = s.scores + first * tile.width + panel * kPanel;
      for (int row = 0; row < kStep; ++row) {
        for (int vec = 0; vec < kTileVecs; ++vec) {
          store(scores + row * tile.width + vec * kLanes, acc[row][vec]);
        }
      }
    }
  }
}

// sums = sums * decay + weights @ values, for the keys [begin, end) of the tile.
template <int kRows>
void add_values(const BlockScratch& s,
                float* sums,
                int64_t width,
                const Tile& tile,
                int32_t begin,
                int32_t end,
                const float* decay) {
  constexpr int kStep = kRows < kTileRows ? kRows : kTileRows;
  const float* values = s.values + static_cast<int64_t>(begin) * kPanel;
  for (int64_t column = 0; column < width; column += kPanel) {
    for (int first = 0; first < kRows; first += kStep) {
      float* to = sums + first * width + column;
      Vec acc[kStep][kTileVecs];
      for (int row = 0; row < kStep; ++row) {
        for (int vec = 0; vec < kTileVecs; ++vec) {
          acc[row][vec] = load(to + row * width + vec * kLanes) * decay[first + row];
        }
      }
      const float* weights = s.scores + first * tile.width + begin;
      multiply_panel<kStep>(weights, tile.width, values, end - begin, acc);
      for (int row = 0; row < kStep; ++row) {
        for (int vec = 0; vec < kTileVecs; ++vec) {
          store(to + row * width + vec * kLanes, acc[row][vec]);
        }
      }
    }
    values += static_cast<int64_t>(tile.width) * kPanel;
  }
}

// kRows rows of the block, from `row` on, against one tile.
template <int kRows>
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
  score_panels<kRows>(
      s, s.q + static_cast<int64_t>(row) * p.head_dim, p.head_dim, tile, first_panel, end_panel);
  float change[round_up(kRows, kLanes)];
  float shift[kRows];
  for (int i = 0; i < kRows; ++i) {
    float* scores = s.scores + i * tile.width + begin;
    if (p.soft_cap > 0.0F) {
      soften_scores(scores, p.soft_cap, keys);
    }
    keep_keys(scores, low[i] - begin, high[i] - begin, keys, -kInfinity);
    const float before = s.most[row + i];
    const float most = max_score(scores, keys);
    s.most[row + i] = most > before ? most : before;
    shift[i] = s.most[row + i] == -kInfinity ? 0.0F : s.most[row + i];
    change[i] = before - shift[i];
  }
  for (int i = 0; i < kRows; i += kLanes) {
    const int rest = kRows - i < kLanes ? kRows - i : kLanes;
    store(change + i, exp_not_positive(load_n(change + i, rest)));
  }
  for (int i = 0; i < kRows; ++i) {
    float* scores = s.scores + i * tile.width + begin;
    const float sum = exponentiate(scores, low[i] - begin, high[i] - begin, keys, shift[i]);
    s.total[row + i] = s.total[row + i] * change[i] + sum;
  }
  const int64_t width = round_up(p.head_dim, kPanel);
  add_values<kRows>(s, s.sums + row * width, width, tile, begin, end, change);
}

inline void attend_tile(const AttentionParams& p,
                        const BlockScratch& s,
                        int32_t rows,
                        const Tile& tile) {
  int32_t row = 0;
  constexpr int kMostRows = kTilesAbreast * kTileRows;
  for (; row + kMostRows <= rows; row += kMostRows) {
    attend_rows<kMostRows>(p, s, row, tile);
  }
  for (; kTilesAbreast > 1 && row + kTileRows <= rows; row += kTileRows) {
    attend_rows<kTileRows>(p, s, row, tile);
  }
  for (; row + kTileRows / 2 <= rows; row += kTileRows / 2) {
    attend_rows<kTileRows / 2>(p, s, row, tile);
  }
  for (; row < rows; ++row) {
    attend_rows<1>(p, s, row, tile);
  }
}

// Copies the block's queries and notes which keys each row sees.
inline void begin_block(const AttentionParams& p, const AttentionItem& item, BlockScratch& s) {
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
      load_query(p,
                 first_query(p, item.sequence) + item.begin + token,
                 item.kv_head * group + i,
                 s.q + static_cast<int64_t>(row) * p.head_dim);
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

template <typename T>
void attend_block(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int32_t rows = item.rows * group;
  BlockScratch s = cut_block_scratch(scratch, rows, p.head_dim);
  begin_block(p, item, s);
  // Positions rise with the tokens: the first row sees the earliest key, the last row the latest.
  const int32_t last_key = s.end[rows - 1];
  const int32_t width = tile_keys(p.head_dim);
  for (int32_t first = s.begin[0] / width * width; first < last_key; first += width) {
    const int32_t left = last_key - first;
    const Tile tile{first, left < width ? left : width, width};
    const T* k[kMaxTileKeys];
    const T* v[kMaxTileKeys];
    find_rows(p.kv, item.sequence, item.kv_head, first, first + tile.count, k, v);
    pack_keys(k, tile.count, p.head_dim, s.keys);
    pack_values(v, tile.count, p.head_dim, width, s.values);
    attend_tile(p, s, rows, tile);
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

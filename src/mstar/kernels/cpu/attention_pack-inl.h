// Keys, values and queries into the panels and tiles that attention_tile-inl.h multiplies; compiled
// once per instruction set. Part of attention_kernels.cc, inside its namespace.
//
// A word is an f32, or (kPairs) two bf16 that the machine's dot product takes at once.

#if defined(__AVX512F__)
inline constexpr int kTileRows = 12;  // 24 of 32 registers accumulate
inline constexpr int kTileVecs = 2;
inline constexpr int kTilesAbreast = 1;
#elif defined(__AVX2__)
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
inline constexpr int kScoreStride = kMaxTileKeys;  // of score rows, in words

#if defined(__AVX512BF16__)
inline constexpr bool kDotsPairs = true;
#else
inline constexpr bool kDotsPairs = false;
#endif

// Words that so many values take.
template <bool kPairs>
MSTAR_VEC constexpr int32_t num_words(int32_t values) {
  return kPairs ? (values + 1) / 2 : values;
}

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

#if defined(__AVX512BF16__)

// kLanes words of a bf16 row of `count` values, zeros behind it.
MSTAR_VEC Vec load_words(const bfloat16* row, int32_t word, int32_t count) {
  const int32_t left = count - 2 * word;
  return load_pairs(row + 2 * word, left < 2 * kLanes ? left : 2 * kLanes);
}

// The same as pack_key_lanes in words: to[word * kPanel + lane].
inline void pack_key_pair_lanes(const bfloat16* const* k, int32_t head_dim, float* to) {
  const int32_t depth = num_words<true>(head_dim);
  for (int32_t word = 0; word < depth; word += kLanes) {
    Vec rows[kLanes];
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane) {
      rows[lane] = load_words(k[lane], word, head_dim);
    }
    transpose(rows);
    for (int i = 0; i < kLanes && word + i < depth; ++i) {
      store(to + static_cast<int64_t>(word + i) * kPanel, rows[i]);
    }
  }
}

// A key's values beside the next one's, as words; the last of an odd number has zeros as partner.
inline void pack_value_pairs(const bfloat16* const* v,
                             int32_t count,
                             int32_t head_dim,
                             int32_t width,
                             float* to) {
  static_assert(kPanel == 2 * kLanes);
  for (int32_t key = 0; key < count; key += 2) {
    float* row = to + static_cast<int64_t>(key / 2) * kPanel;
    const bool alone = key + 1 == count;
    for (int32_t c = 0; c < head_dim; c += kPanel) {
      const int lanes = head_dim - c < kPanel ? head_dim - c : kPanel;
      const Vec low = load_pairs(v[key] + c, lanes);
      const Vec high = alone ? zero() : load_pairs(v[key + 1] + c, lanes);
      store(row, interleave_pairs(low, high, false));
      store(row + kLanes, interleave_pairs(low, high, true));
      row += static_cast<int64_t>(width / 2) * kPanel;
    }
  }
}
#endif

// The query row of one head as words, `stride` apart; f32 ones times the scale.
template <bool kPairs>
void load_query_words(const AttentionParams& p,
                      int64_t query,
                      int32_t head,
                      int64_t stride,
                      float* to) {
  if constexpr (!kPairs) {
    load_query(p, query, head, to);
    return;
  }
  const auto* from =
      static_cast<const bfloat16*>(p.q) + query * p.q_token_stride + head * p.q_head_stride;
  for (int32_t i = 0; i < p.head_dim; i += 2, to += stride) {
    const bfloat16 pair[2] = {from[i], i + 1 < p.head_dim ? from[i + 1] : bfloat16{}};
    __builtin_memcpy(to, pair, sizeof(pair));
  }
}

// f32 weights of the keys [begin, end), multiples of kPanel, become words, at the front of the row.
inline void pair_weights([[maybe_unused]] float* row,
                         [[maybe_unused]] int32_t begin,
                         [[maybe_unused]] int32_t end) {
#if defined(__AVX512BF16__)
  auto* narrow = reinterpret_cast<bfloat16*>(row);
  for (int32_t key = begin; key < end; key += kPanel) {
    // Never ahead of what is still to be read. Subnormal weights become zero.
    const __m512bh pairs = _mm512_cvtne2ps_pbh(load(row + key + kLanes).v, load(row + key).v);
    _mm512_storeu_si512(narrow + key, reinterpret_cast<__m512i>(pairs));
  }
#endif
}

// Places behind the last key repeat it; their scores are masked. A panel has `depth` words, those
// of the head or more.
template <typename T, bool kPairs>
void pack_keys(const T* const* k, int32_t count, int32_t head_dim, int32_t depth, float* to) {
  for (int32_t key = 0; key < count; key += kPanel) {
    for (int vec = 0; vec < kTileVecs; ++vec) {
      const T* rows[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        const int32_t index = key + vec * kLanes + lane;
        rows[lane] = k[index < count ? index : count - 1];
      }
      if constexpr (kPairs) {
        pack_key_pair_lanes(rows, head_dim, to + vec * kLanes);
      } else {
        pack_key_lanes(rows, head_dim, to + vec * kLanes);
      }
    }
    to += static_cast<int64_t>(depth) * kPanel;
  }
}

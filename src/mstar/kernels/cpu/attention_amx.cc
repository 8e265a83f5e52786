// Flash attention of a block of bf16 query rows against tiles of bf16 keys and values, through the
// tile registers. What attention_tile-inl.h says of rows, tiles and masks holds here: keys and
// values are packed into the same panels, 32 keys or columns wide, which two registers of weights
// fit; rows go two registers at a time. Head dims that are no multiple of 32 are padded with zeros.
#include "mstar/kernels/cpu/amx-inl.h"
#include "mstar/kernels/cpu/attention.h"
#include "mstar/kernels/cpu/vec.h"

namespace mstar::amx {

namespace {

// clang-format off
#include "mstar/kernels/cpu/attention_kv-inl.h"
#include "mstar/kernels/cpu/attention_pack-inl.h"

// clang-format on

constexpr int kRowsAbreast = 2 * kAmxRows;
constexpr int64_t kPanelStride = kPanel * sizeof(float);  // bytes between rows of a panel
constexpr int64_t kStepWords = int64_t{kAmxRows} * kPanel;
static_assert(kPanel == 32 && kLanes == 16);

// What one item works in, cut from its task's scratch. Rows are padded to whole registers, head
// dims to `depth`.
struct BlockScratch {
  bfloat16* q;     // [rows, depth]
  float* sums;     // [rows, depth]
  float* keys;     // words [tile_keys / 32][depth / 2][32]
  float* values;   // words [depth / 32][tile_keys / 2][32]
  float* scores;   // [32, kScoreStride]; then the weights as bf16 at the front of each row
  float* shift;    // [rows] what a weight 2^(score - shift) is relative to
  float* total;    // [rows, kLanes] running sums of weights
  int32_t* begin;  // [rows] keys that a row sees
  int32_t* end;
};

// With `scratch` null: how many floats it takes.
int64_t cut_scratch(float* scratch, int32_t rows, int32_t head_dim, BlockScratch& s) {
  const int64_t padded = round_up(rows, kRowsAbreast);
  const int64_t depth = round_up(head_dim, kPanel);
  const int64_t keys = tile_keys(head_dim);
  int64_t used = 0;
  const auto take = [&](int64_t size) {
    float* taken = scratch == nullptr ? nullptr : scratch + used;
    used += round_up(size, 16);
    return taken;
  };
  s.q = reinterpret_cast<bfloat16*>(take(padded * depth / 2));
  s.sums = take(padded * depth);
  s.keys = take(keys * depth / 2);
  s.values = take(keys * depth / 2);
  s.scores = take(kRowsAbreast * kScoreStride);
  s.shift = take(padded);
  s.total = take(padded * kLanes);
  s.begin = reinterpret_cast<int32_t*>(take(padded));
  s.end = reinterpret_cast<int32_t*>(take(padded));
  return used;
}

// A tile of `count` keys from `first` on.
struct KeyTile {
  int32_t first;
  int32_t count;
  int32_t width;  // tile_keys()
};

// Sums in 0 to 3, two rows of registers by two columns; rows of `a` in 4 and 5, panel rows in 6, 7.
MSTAR_TILE void multiply_step(const uint8_t* a, int64_t a_stride, const float* panel) {
  load_tile<6>(panel, kPanelStride);
  load_tile<4>(a, a_stride);
  dot_bf16_tiles<0, 4, 6>();
  load_tile<5>(a + kAmxRows * a_stride, a_stride);
  dot_bf16_tiles<2, 5, 6>();
  load_tile<7>(panel + kLanes, kPanelStride);
  dot_bf16_tiles<1, 4, 7>();
  dot_bf16_tiles<3, 5, 7>();
}

MSTAR_TILE void load_sums(const float* sums, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  load_tile<0>(sums, bytes);
  load_tile<1>(sums + kLanes, bytes);
  load_tile<2>(sums + kAmxRows * stride, bytes);
  load_tile<3>(sums + kAmxRows * stride + kLanes, bytes);
}

MSTAR_TILE void store_sums(float* sums, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  store_tile<0>(sums, bytes);
  store_tile<1>(sums + kLanes, bytes);
  store_tile<2>(sums + kAmxRows * stride, bytes);
  store_tile<3>(sums + kAmxRows * stride + kLanes, bytes);
}

// scores[row][key] of 32 rows for the panels [begin, end).
void score_panels(const BlockScratch& s,
                  const bfloat16* q,
                  int64_t depth,
                  int32_t begin,
                  int32_t end) {
  for (int32_t panel = begin; panel < end; ++panel) {
    const float* keys = s.keys + panel * depth / 2 * kPanel;
    zero_tile<0>();
    zero_tile<1>();
    zero_tile<2>();
    zero_tile<3>();
    for (int64_t c = 0; c < depth; c += kTileDepth, keys += kStepWords) {
      multiply_step(reinterpret_cast<const uint8_t*>(q + c), 2 * depth, keys);
    }
    store_sums(s.scores + panel * kPanel, kScoreStride);
  }
}

// sums = sums * decay + weights @ values of 32 rows, for the keys [begin, end), whole panels.
void add_values(const BlockScratch& s,
                float* sums,
                int64_t depth,
                const KeyTile& tile,
                int32_t begin,
                int32_t end,
                int32_t num_rows,
                const float* decay) {
  for (int32_t row = 0; row < num_rows; ++row) {
    if (decay[row] != 1.0F) {
      for (int64_t c = 0; c < depth; c += kLanes) {
        store(sums + row * depth + c, load(sums + row * depth + c) * decay[row]);
      }
    }
  }
  const float* values = s.values + static_cast<int64_t>(begin) / 2 * kPanel;
  for (int64_t column = 0; column < depth; column += kPanel) {
    load_sums(sums + column, depth);
    const float* panel = values;
    for (int32_t key = begin; key < end; key += kTileDepth, panel += kStepWords) {
      multiply_step(reinterpret_cast<const uint8_t*>(s.scores) + 2 * key,
                    kScoreStride * static_cast<int64_t>(sizeof(float)),
                    panel);
    }
    store_sums(sums + column, depth);
    values += static_cast<int64_t>(tile.width) / 2 * kPanel;
  }
}

// 2^x, relative error 2.6e-6 (a bf16 rounds by 2e-3); zero for minus infinity, NaN for NaN. The
// fraction and the whole part cost one instruction each.
MSTAR_VEC Vec exp2_of_weight(Vec x) {
  constexpr float kSeries[] = {1.0F, 0.693003835F, 0.241442757F, 0.0520114612F, 0.0135341676F};
  constexpr int kFloor = 0x9;  // round down, without exceptions
  const Vec fraction{_mm512_reduce_ps(x.v, kFloor)};
  return {_mm512_scalef_ps(polynomial(fraction, kSeries).v, x.v)};
}

// Of whole panels, two maxima side by side.
MSTAR_VEC float max_of_panels(const float* scores, int32_t keys) {
  Vec most[2] = {load(scores), load(scores + kLanes)};
  for (int32_t key = kPanel; key < keys; key += kPanel) {
    most[0] = max(load(scores + key), most[0]);
    most[1] = max(load(scores + key + kLanes), most[1]);
  }
  return reduce_max(max(most[0], most[1]));
}

// Scores are scaled where they are exponentiated, if nothing else is done to them.
MSTAR_VEC bool scales_later(const AttentionParams& p) {
  return p.scale > 0.0F && p.soft_cap == 0.0F;
}

// What turns a score into a logarithm of 2.
MSTAR_VEC float score_factor(const AttentionParams& p) {
  constexpr float kLog2E = 1.44269504F;
  return scales_later(p) ? p.scale * kLog2E : kLog2E;
}

// Chooses what the weights of a row are relative to; returns what its earlier sums shrink by. The
// choice moves only when a score is 2^kSlack times as heavy, so that sums are seldom rescaled.
float choose_shift(const AttentionParams& p,
                   const BlockScratch& s,
                   int32_t row,
                   float* scores,  // of the keys at work, `keys` of them
                   int32_t low,    // keys [low, high) that the row sees
                   int32_t high,
                   int32_t keys) {
  constexpr float kSlack = 8.0F;
  if (!scales_later(p)) {
    scale_scores(scores, p.scale, keys);
  }
  if (p.soft_cap > 0.0F) {
    soften_scores(scores, p.soft_cap, keys);
  }
  keep_keys(scores, low, high, keys, -kInfinity);
  const float most = max_of_panels(scores, keys) * score_factor(p);
  const float before = s.shift[row];
  if (!(most > before + kSlack)) {
    return 1.0F;
  }
  s.shift[row] = most;
  if (before == -kInfinity) {
    return 1.0F;  // of nothing
  }
  float change[kLanes];
  store(change, exp2_of_weight(set(before - most)));
  store(s.total + row * kLanes, load(s.total + row * kLanes) * change[0]);
  return change[0];
}

// The scores of one row become bf16 weights at `weights`, never ahead of what is still to be read.
void weigh(const AttentionParams& p,
           const BlockScratch& s,
           int32_t row,
           const float* scores,
           bfloat16* weights,
           int32_t keys) {
  const Vec factor = set(score_factor(p));
  const Vec minus_shift = set(s.shift[row] == -kInfinity ? 0.0F : -s.shift[row]);
  Vec total = load(s.total + row * kLanes);
  for (int32_t key = 0; key < keys; key += kPanel) {
    const Vec first = exp2_of_weight(fma(load(scores + key), factor, minus_shift));
    const Vec second = exp2_of_weight(fma(load(scores + key + kLanes), factor, minus_shift));
    total = total + (first + second);
    // Subnormal weights become zero.
    const __m512bh pairs = _mm512_cvtne2ps_pbh(second.v, first.v);
    _mm512_storeu_si512(weights + key, reinterpret_cast<__m512i>(pairs));
  }
  store(s.total + row * kLanes, total);
}

// `num_rows` rows of the block, at most 32, from `row` on, against one tile.
void attend_rows(const AttentionParams& p,
                 const BlockScratch& s,
                 int32_t row,
                 int32_t num_rows,
                 const KeyTile& tile) {
  int32_t low[kRowsAbreast];
  int32_t high[kRowsAbreast];
  int32_t begin = tile.count;
  int32_t end = 0;
  for (int i = 0; i < num_rows; ++i) {
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
  const int64_t depth = round_up(p.head_dim, kPanel);
  score_panels(s, s.q + row * depth, depth, first_panel, end_panel);
  float decay[kRowsAbreast];
  for (int i = 0; i < num_rows; ++i) {
    float* scores = s.scores + i * kScoreStride;
    decay[i] = choose_shift(p, s, row + i, scores + begin, low[i] - begin, high[i] - begin, keys);
  }
  for (int i = 0; i < num_rows; ++i) {
    float* scores = s.scores + i * kScoreStride;
    auto* weights = reinterpret_cast<bfloat16*>(scores) + begin;
    weigh(p, s, row + i, scores + begin, weights, keys);
  }
  add_values(s, s.sums + row * depth, depth, tile, begin, begin + keys, num_rows, decay);
}

// Copies the block's queries and notes which keys each row sees. Places that are only padding are
// zeros, because what stands against them may be zero too: zero times a stray NaN is NaN.
void begin_block(const AttentionParams& p, const AttentionItem& item, BlockScratch& s) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int32_t kv_len = kv_length(p.kv, item.sequence);
  const int32_t before = kv_len - num_queries(p, item.sequence);  // position of the first query
  const int64_t depth = round_up(p.head_dim, kPanel);
  const int64_t padded = round_up(item.rows * group, kRowsAbreast);
  __builtin_memset(
      static_cast<void*>(s.q), 0, static_cast<size_t>(padded * depth) * sizeof(bfloat16));
  __builtin_memset(s.sums, 0, static_cast<size_t>(padded * depth) * sizeof(float));
  const auto panel_bytes = static_cast<size_t>(tile_keys(p.head_dim) * depth / 2) * sizeof(float);
  __builtin_memset(s.keys, 0, panel_bytes);
  __builtin_memset(s.values, 0, panel_bytes);
  for (int32_t token = 0; token < item.rows; ++token) {
    const int32_t position = before + item.begin + token;
    int32_t end = p.causal ? position + 1 : kv_len;
    end = end < 0 ? 0 : end;
    const int32_t begin = p.window > 0 && position - p.window + 1 > 0 ? position - p.window + 1 : 0;
    const int64_t query = first_query(p, item.sequence) + item.begin + token;
    for (int32_t i = 0; i < group; ++i) {
      const int32_t row = token * group + i;
      const auto* from = static_cast<const bfloat16*>(p.q) + query * p.q_token_stride +
                         (item.kv_head * group + i) * p.q_head_stride;
      __builtin_memcpy(s.q + row * depth, from, static_cast<size_t>(p.head_dim) * sizeof(bfloat16));
      s.begin[row] = begin;
      s.end[row] = end;
      s.shift[row] = -kInfinity;
      store(s.total + row * kLanes, zero());
    }
  }
}

// A tile of fewer keys than the one before leaves that one's values behind its own.
void clear_values_behind(const KeyTile& tile, int64_t depth, float* values) {
  const int32_t end = static_cast<int32_t>(round_up(tile.count, kPanel)) / 2;
  for (int64_t column = 0; column < depth; column += kPanel) {
    for (int32_t word = (tile.count + 1) / 2; word < end; ++word) {
      store(values + word * kPanel, zero());
      store(values + word * kPanel + kLanes, zero());
    }
    values += static_cast<int64_t>(tile.width) / 2 * kPanel;
  }
}

void attend_block(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int32_t rows = item.rows * group;
  BlockScratch s;
  cut_scratch(scratch, rows, p.head_dim, s);
  begin_block(p, item, s);
  // Positions rise with the tokens: the first row sees the earliest key, the last row the latest.
  const int32_t last_key = s.end[rows - 1];
  const int32_t width = tile_keys(p.head_dim);
  const int64_t depth = round_up(p.head_dim, kPanel);
  for (int32_t first = s.begin[0] / width * width; first < last_key; first += width) {
    const int32_t left = last_key - first;
    const KeyTile tile{first, left < width ? left : width, width};
    const bfloat16* k[kMaxTileKeys];
    const bfloat16* v[kMaxTileKeys];
    find_rows(p.kv, item.sequence, item.kv_head, first, first + tile.count, k, v);
    pack_keys<bfloat16, true>(k, tile.count, p.head_dim, static_cast<int32_t>(depth / 2), s.keys);
    pack_value_pairs(v, tile.count, p.head_dim, width, s.values);
    clear_values_behind(tile, depth, s.values);
    for (int32_t row = 0; row < rows; row += kRowsAbreast) {
      attend_rows(p, s, row, rows - row < kRowsAbreast ? rows - row : kRowsAbreast, tile);
    }
  }
  for (int32_t row = 0; row < rows; ++row) {
    store_output(p,
                 first_query(p, item.sequence) + item.begin + row / group,
                 item.kv_head * group + row % group,
                 s.sums + row * depth,
                 reduce_add(load(s.total + row * kLanes)));
  }
}

}  // namespace

void attention_item(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  if (item.rows == 0) {
    avx512_bf16::attention_item(p, item, scratch);
    return;
  }
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.set(tile, kAmxRows);
  }
  configure_tiles(shapes);
  attend_block(p, item, scratch);
  release_tiles();
}

int64_t attention_scratch_floats(int32_t max_rows, int32_t num_heads, int32_t head_dim) {
  BlockScratch s;
  const int64_t block = cut_scratch(nullptr, max_rows, head_dim, s);
  const int64_t decode = avx512_bf16::attention_scratch_floats(1, num_heads, head_dim);
  return block > decode ? block : decode;
}

}  // namespace mstar::amx

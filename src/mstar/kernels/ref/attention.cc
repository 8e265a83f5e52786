#include "mstar/kernels/ref/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mstar/kernels/ref/element.h"

namespace mstar::ref {

namespace {

// Tokens of `sequence` that are in its pages.
int64_t paged_length(const KvSource& kv, int64_t sequence) {
  const int64_t num_pages = kv.indptr[sequence + 1] - kv.indptr[sequence];
  return num_pages == 0 ? 0 : (num_pages - 1) * kv.page_size + kv.last_page_len[sequence];
}

int64_t kv_length(const KvSource& kv, int64_t sequence) {
  if (kv.pages != nullptr) {
    return paged_length(kv, sequence);
  }
  if (kv.kv_indptr != nullptr) {
    return kv.kv_indptr[sequence + 1] - kv.kv_indptr[sequence];
  }
  return kv.piece[0].tokens + kv.piece[1].tokens;
}

// Where the head's key (or value) row of one token begins, as an element index from `base`.
struct KvPlace {
  const void* base;
  int64_t index;
};

KvPlace place(const KvSource& kv, int64_t sequence, int64_t token, int64_t head, bool value) {
  if (kv.pages != nullptr) {
    const int64_t page = kv.indices[kv.indptr[sequence] + token / kv.page_size];
    return {kv.pages,
            page * kv.page_stride + (value ? kv.value_offset : 0) +
                token % kv.page_size * kv.slot_stride + head * kv.head_stride};
  }
  if (kv.kv_indptr != nullptr) {
    token += kv.kv_indptr[sequence];
  }
  const bool second = kv.kv_indptr == nullptr && token >= kv.piece[0].tokens;
  const KvPiece& piece = kv.piece[second ? 1 : 0];
  token -= second ? kv.piece[0].tokens : 0;
  return value ? KvPlace{piece.v, token * piece.v_token_stride + head * piece.v_head_stride}
               : KvPlace{piece.k, token * piece.k_token_stride + head * piece.k_head_stride};
}

double score(const AttentionParams& p, int64_t q_index, const KvPlace& key) {
  double sum = 0.0;
  for (int64_t index = 0; index < p.head_dim; ++index) {
    sum += load(p.q, p.q_dtype, q_index + index) * load(key.base, p.kv.dtype, key.index + index);
  }
  sum *= p.scale;
  return p.soft_cap > 0.0F ? p.soft_cap * std::tanh(sum / p.soft_cap) : sum;
}

// Row `row` of q and out, the `offset`-th from the end of its sequence (the last one: 0).
void attend_row(const AttentionParams& p, int64_t sequence, int64_t row, int64_t offset, int head) {
  const int64_t kv_len = kv_length(p.kv, sequence);
  const int64_t position = kv_len - 1 - offset;
  const int64_t end = p.causal ? position + 1 : kv_len;
  const int64_t begin = p.window > 0 ? std::max<int64_t>(0, position - p.window + 1) : 0;
  const int64_t kv_head = head / (p.num_heads / p.num_kv_heads);
  const int64_t q_index = row * p.q_token_stride + head * p.q_head_stride;
  const int64_t out_index = row * p.out_token_stride + head * p.out_head_stride;

  double max_score = -std::numeric_limits<double>::infinity();
  for (int64_t token = begin; token < end; ++token) {
    max_score =
        std::max(max_score, score(p, q_index, place(p.kv, sequence, token, kv_head, false)));
  }
  double total = 0.0;
  for (int64_t token = begin; token < end; ++token) {
    total += std::exp(score(p, q_index, place(p.kv, sequence, token, kv_head, false)) - max_score);
  }
  for (int64_t index = 0; index < p.head_dim; ++index) {
    store(p.out, p.out_dtype, out_index + index, 0.0);
  }
  constexpr int64_t kColumns = 64;  // keeps the sums off the heap
  for (int64_t column = 0; column < p.head_dim; column += kColumns) {
    const int64_t count = std::min<int64_t>(kColumns, p.head_dim - column);
    double sum[kColumns] = {};
    for (int64_t token = begin; token < end; ++token) {
      const double weight =
          std::exp(score(p, q_index, place(p.kv, sequence, token, kv_head, false)) - max_score);
      const KvPlace value = place(p.kv, sequence, token, kv_head, true);
      for (int64_t index = 0; index < count; ++index) {
        sum[index] += weight * load(value.base, p.kv.dtype, value.index + column + index);
      }
    }
    for (int64_t index = 0; index < count && begin < end; ++index) {
      store(p.out, p.out_dtype, out_index + column + index, sum[index] / total);
    }
  }
}

int64_t first_row(const AttentionParams& p, int64_t sequence) {
  if (p.qo_indptr != nullptr) {
    return p.qo_indptr[sequence];
  }
  return sequence == 0 ? 0 : p.num_rows;
}

}  // namespace

// Tasks share the query heads.
void attention(const AttentionParams& p, int task) {
  const Range heads = share(p.num_heads, task, p.num_tasks);
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    for (int64_t sequence = 0; sequence < p.num_seqs; ++sequence) {
      const int64_t end = first_row(p, sequence + 1);
      for (int64_t row = first_row(p, sequence); row < end; ++row) {
        attend_row(p, sequence, row, end - 1 - row, static_cast<int>(head));
      }
    }
    for (int64_t row = first_row(p, p.num_seqs); row < p.num_rows; ++row) {
      for (int64_t index = 0; index < p.head_dim; ++index) {
        store(p.out, p.out_dtype, row * p.out_token_stride + head * p.out_head_stride + index, 0.0);
      }
    }
  }
}

void write_paged_kv(const PagedWriteParams& p, int task) {
  const Range tokens = share(p.tokens, task, p.num_tasks);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const int64_t page = p.token_to_page[token];
    if (page < 0) {
      continue;
    }
    for (int64_t head = 0; head < p.num_kv_heads; ++head) {
      const int64_t to =
          page * p.page_stride + p.token_to_slot[token] * p.slot_stride + head * p.head_stride;
      const int64_t k = token * p.k_token_stride + head * p.k_head_stride;
      const int64_t v = token * p.v_token_stride + head * p.v_head_stride;
      for (int64_t index = 0; index < p.head_dim; ++index) {
        store(p.pages, p.pages_dtype, to + index, load(p.k, p.dtype, k + index));
        store(p.pages, p.pages_dtype, to + p.value_offset + index, load(p.v, p.dtype, v + index));
      }
    }
  }
}

void gather_paged_kv(const PagedGatherParams& p, int task) {
  const Range tokens = share(p.tokens, task, p.num_tasks);
  const int64_t resident = paged_length(p.kv, p.sequence);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    for (int64_t head = 0; head < p.num_kv_heads; ++head) {
      const int64_t k = token * p.k_token_stride + head * p.k_head_stride;
      const int64_t v = token * p.v_token_stride + head * p.v_head_stride;
      for (int64_t index = 0; index < p.head_dim; ++index) {
        double key = 0.0;
        double value = 0.0;
        if (token < resident) {
          const KvPlace from = place(p.kv, p.sequence, token, head, false);
          key = load(from.base, p.kv.dtype, from.index + index);
          value = load(from.base, p.kv.dtype, from.index + p.kv.value_offset + index);
        }
        store(p.k, p.dtype, k + index, key);
        store(p.v, p.dtype, v + index, value);
      }
    }
  }
}

}  // namespace mstar::ref

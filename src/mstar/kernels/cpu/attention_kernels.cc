#include "mstar/kernels/cpu/attention.h"
#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

// clang-format off
#include "mstar/kernels/cpu/attention_kv-inl.h"
#include "mstar/kernels/cpu/attention_pack-inl.h"
#include "mstar/kernels/cpu/attention_tile-inl.h"
#include "mstar/kernels/cpu/attention_decode-inl.h"

// clang-format on

template <typename T, bool kPairs>
void attend(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  if (item.rows > 0) {
    attend_block<T, kPairs>(p, item, scratch);
  } else {
    attend_decode<T, kPairs>(p, item, scratch);
  }
}

template <typename From, typename To>
void write_rows(const PagedWriteParams& p, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    const int64_t page = p.token_to_page[token];
    if (page < 0) {
      continue;
    }
    To* to =
        static_cast<To*>(p.pages) + page * p.page_stride + p.token_to_slot[token] * p.slot_stride;
    const From* k = static_cast<const From*>(p.k) + token * p.k_token_stride;
    const From* v = static_cast<const From*>(p.v) + token * p.v_token_stride;
    for (int64_t head = 0; head < p.num_kv_heads; ++head) {
      convert_row(k + head * p.k_head_stride, 1.0F, p.head_dim, to + head * p.head_stride);
      convert_row(
          v + head * p.v_head_stride, 1.0F, p.head_dim, to + head * p.head_stride + p.value_offset);
    }
  }
}

template <typename From, typename To>
void gather_rows(const PagedGatherParams& p, int64_t begin, int64_t end) {
  const auto sequence = static_cast<int32_t>(p.sequence);
  const int32_t resident = kv_length(p.kv, sequence);
  for (int64_t token = begin; token < end; ++token) {
    for (int32_t head = 0; head < p.num_kv_heads; ++head) {
      To* k = static_cast<To*>(p.k) + token * p.k_token_stride + head * p.k_head_stride;
      To* v = static_cast<To*>(p.v) + token * p.v_token_stride + head * p.v_head_stride;
      if (token >= resident) {
        for (int32_t i = 0; i < p.head_dim; ++i) {
          k[i] = v[i] = To{};
        }
        continue;
      }
      const From* key = nullptr;
      const From* value = nullptr;
      const auto place = static_cast<int32_t>(token);
      find_paged_rows(p.kv, sequence, head, place, place + 1, &key, &value);
      convert_row(key, 1.0F, p.head_dim, k);
      convert_row(value, 1.0F, p.head_dim, v);
    }
  }
}

}  // namespace

void attention_item(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  if (p.kv.dtype == DType::kF32) {
    attend<float, false>(p, item, scratch);
    return;
  }
  if constexpr (kDotsPairs) {
    if (p.q_dtype == DType::kBF16) {
      attend<bfloat16, true>(p, item, scratch);
      return;
    }
  }
  attend<bfloat16, false>(p, item, scratch);
}

int64_t attention_scratch_floats(int32_t max_rows, int32_t num_heads, int32_t head_dim) {
  const int64_t block = block_scratch_floats(max_rows, head_dim);
  const int64_t decode = decode_scratch_floats(num_heads, head_dim);
  return round_up(block > decode ? block : decode, 16);
}

void write_paged_kv(const PagedWriteParams& p, int task) {
  const int64_t begin = p.tokens * task / p.num_tasks;
  const int64_t end = p.tokens * (task + 1) / p.num_tasks;
  const bool narrow = p.dtype == DType::kBF16;
  if (p.pages_dtype == DType::kBF16) {
    narrow ? write_rows<bfloat16, bfloat16>(p, begin, end)
           : write_rows<float, bfloat16>(p, begin, end);
  } else {
    narrow ? write_rows<bfloat16, float>(p, begin, end) : write_rows<float, float>(p, begin, end);
  }
}

void gather_paged_kv(const PagedGatherParams& p, int task) {
  const int64_t begin = p.tokens * task / p.num_tasks;
  const int64_t end = p.tokens * (task + 1) / p.num_tasks;
  const bool narrow = p.kv.dtype == DType::kBF16;
  if (p.dtype == DType::kBF16) {
    narrow ? gather_rows<bfloat16, bfloat16>(p, begin, end)
           : gather_rows<float, bfloat16>(p, begin, end);
  } else {
    narrow ? gather_rows<bfloat16, float>(p, begin, end) : gather_rows<float, float>(p, begin, end);
  }
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE

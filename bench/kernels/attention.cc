#include "mstar/kernels/ops/attention.h"

#include <algorithm>
#include <memory>

#include "mstar/base/str_cat.h"

#include "bench/kernels/families.h"

namespace mstar::bench {

namespace {

struct Heads {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
};

// Every token of one sequence sees all of them: a denoise step, a vision tower.
Case dense_case(Heads heads, int64_t tokens, DType dtype) {
  Case result;
  result.name = str_cat("attention/dense/",
                        to_string(dtype),
                        "/h",
                        heads.num_heads,
                        "/kv",
                        heads.num_kv_heads,
                        "/d",
                        heads.head_dim,
                        "/n",
                        tokens);
  result.flops = 4.0 * static_cast<double>(heads.num_heads * heads.head_dim) *
                 static_cast<double>(tokens * tokens);
  result.peak = dtype == DType::kBF16 ? Peak::kBF16 : Peak::kF32;
  result.prepare = [=](CpuStream& stream) {
    const Tensor q = random_tensor({tokens, heads.num_heads, heads.head_dim}, dtype, 1);
    const Tensor k = random_tensor({tokens, heads.num_kv_heads, heads.head_dim}, dtype, 2);
    const Tensor v = random_tensor({tokens, heads.num_kv_heads, heads.head_dim}, dtype, 3);
    const Tensor none = k.slice(0, 0, 0);
    const auto out = std::make_shared<Tensor>(Tensor::empty(q.shape(), dtype));
    return Case::Runs{[=, &stream] {
      ops::two_part_attention(stream, q, none, none, k, v, {.causal = false}, *out);
    }};
  };
  return result;
}

struct Paged {
  Tensor q;
  Tensor out;
  Tensor qo_indptr;
  PagedKv kv;
};

// `num_seqs` sequences of `kv_len` tokens, each with `q_len` new rows; the pages of a sequence are
// scattered over the pool.
std::shared_ptr<Paged> make_paged(Heads heads,
                                  int64_t num_seqs,
                                  int64_t q_len,
                                  int64_t kv_len,
                                  DType dtype) {
  constexpr int64_t kPageSize = 16;
  const int64_t pages = (kv_len + kPageSize - 1) / kPageSize;
  std::vector<int32_t> qo{0};
  std::vector<int32_t> indptr{0};
  std::vector<int32_t> indices;
  for (int64_t sequence = 0; sequence < num_seqs; ++sequence) {
    qo.push_back(static_cast<int32_t>((sequence + 1) * q_len));
    indptr.push_back(static_cast<int32_t>((sequence + 1) * pages));
    for (int64_t page = 0; page < pages; ++page) {
      indices.push_back(static_cast<int32_t>(page * num_seqs + sequence));
    }
  }
  const std::vector<int32_t> last(static_cast<size_t>(num_seqs),
                                  static_cast<int32_t>((kv_len - 1) % kPageSize + 1));
  auto paged = std::make_shared<Paged>();
  paged->q = random_tensor({num_seqs * q_len, heads.num_heads, heads.head_dim}, dtype, 1);
  paged->out = Tensor::empty(paged->q.shape(), dtype);
  paged->qo_indptr = Tensor::from(qo, {num_seqs + 1});
  paged->kv.pages =
      random_tensor({num_seqs * pages, 2, kPageSize, heads.num_kv_heads, heads.head_dim}, dtype, 2);
  paged->kv.paged_kv_indptr = Tensor::from(indptr, {num_seqs + 1});
  paged->kv.paged_kv_indices = Tensor::from(indices, {num_seqs * pages});
  paged->kv.paged_kv_last_page_len = Tensor::from(last, {num_seqs});
  return paged;
}

Case paged_case(Heads heads, int64_t num_seqs, int64_t q_len, int64_t kv_len, DType dtype) {
  Case result;
  result.name = str_cat("attention/",
                        q_len == 1 ? "decode/" : "prefill/",
                        to_string(dtype),
                        "/s",
                        num_seqs,
                        "/h",
                        heads.num_heads,
                        "/kv",
                        heads.num_kv_heads,
                        "/d",
                        heads.head_dim,
                        "/len",
                        kv_len);
  // A causal row at position p meets p + 1 keys.
  const double pairs = static_cast<double>(q_len) *
                       (static_cast<double>(kv_len) - static_cast<double>(q_len - 1) / 2.0);
  result.flops = 4.0 * static_cast<double>(num_seqs * heads.num_heads * heads.head_dim) * pairs;
  if (q_len == 1) {
    result.bytes = static_cast<double>(2 * num_seqs * kv_len * heads.num_kv_heads * heads.head_dim *
                                       element_bytes(dtype));
  }
  result.peak = dtype == DType::kBF16 ? Peak::kBF16 : Peak::kF32;
  result.prepare = [=](CpuStream& stream) {
    const auto paged = make_paged(heads, num_seqs, q_len, kv_len, dtype);
    return Case::Runs{[=, &stream] {
      ops::paged_attention(stream, paged->q, paged->qo_indptr, paged->kv, {}, paged->out);
    }};
  };
  return result;
}

}  // namespace

void add_attention_cases(Cases& cases) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    cases.push_back(dense_case({12, 12, 128}, 1560, dtype));
    cases.push_back(dense_case({16, 16, 72}, 729, dtype));
    cases.push_back(paged_case({16, 8, 128}, 1, 512, 512, dtype));
    cases.push_back(paged_case({16, 8, 128}, 1, 1, 8192, dtype));
    cases.push_back(paged_case({16, 8, 128}, 32, 1, 1024, dtype));
  }
}

}  // namespace mstar::bench

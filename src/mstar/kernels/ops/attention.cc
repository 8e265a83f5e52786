#include "mstar/kernels/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "mstar/kernels/cpu/attention.h"
#include "mstar/kernels/ops/choose.h"
#include "mstar/kernels/ref/attention.h"

namespace mstar::ops {

namespace {

void check_i32(const Tensor& x, int64_t size, const char* what) {
  MSTAR_CHECK(
      x.num_dims() == 1 && x.dim(0) == size && x.is_contiguous() && x.dtype() == DType::kI32,
      what,
      " is ",
      x.to_string(),
      ", expected i32[",
      size,
      "]");
}

void check_heads(const Tensor& x, const char* what) {
  MSTAR_CHECK(x.num_dims() == 3 && (x.stride(2) == 1 || x.dim(2) <= 1) &&
                  (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16),
              what,
              " is ",
              x.to_string(),
              ", expected [tokens, heads, head_dim] with dense heads");
}

AttentionParams params_of(const Tensor& q, const AttentionOptions& options, const Tensor& out) {
  check_heads(q, "q");
  check_heads(out, "out");
  MSTAR_CHECK(q.shape() == out.shape(), q.to_string(), " -> ", out.to_string());
  AttentionParams p;
  p.q = q.bytes();
  p.out = out.bytes();
  p.q_dtype = q.dtype();
  p.out_dtype = out.dtype();
  p.q_token_stride = q.stride(0);
  p.q_head_stride = q.stride(1);
  p.out_token_stride = out.stride(0);
  p.out_head_stride = out.stride(1);
  p.num_rows = q.dim(0);
  p.num_heads = static_cast<int32_t>(q.dim(1));
  p.head_dim = static_cast<int32_t>(q.dim(2));
  p.scale = options.scale != 0.0F
                ? options.scale
                : static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.dim(2))));
  p.soft_cap = options.soft_cap;
  p.window = options.window;
  p.causal = options.causal;
  return p;
}

void set_kv_heads(AttentionParams& p, int64_t num_kv_heads, int64_t head_dim) {
  MSTAR_CHECK(num_kv_heads > 0 && p.num_heads % num_kv_heads == 0 && head_dim == p.head_dim,
              p.num_heads,
              " heads of ",
              p.head_dim,
              " over ",
              num_kv_heads,
              " kv heads of ",
              head_dim);
  p.num_kv_heads = static_cast<int32_t>(num_kv_heads);
}

KvSource paged_source(const PagedKv& kv) {
  const Tensor& pages = kv.pages;
  MSTAR_CHECK(pages.num_dims() == 5 && pages.dim(1) == 2 && pages.stride(4) == 1 &&
                  (pages.dtype() == DType::kF32 || pages.dtype() == DType::kBF16),
              "pages are ",
              pages.to_string(),
              ", expected [num_pages, 2, page_size, num_kv_heads, head_dim]");
  const int64_t num_seqs = kv.paged_kv_last_page_len.dim(0);
  check_i32(kv.paged_kv_indptr, num_seqs + 1, "paged_kv_indptr");
  check_i32(kv.paged_kv_last_page_len, num_seqs, "paged_kv_last_page_len");
  check_i32(kv.paged_kv_indices, kv.paged_kv_indices.num_elements(), "paged_kv_indices");
  KvSource source;
  source.dtype = pages.dtype();
  source.pages = pages.bytes();
  source.page_stride = pages.stride(0);
  source.value_offset = pages.stride(1);
  source.slot_stride = pages.stride(2);
  source.head_stride = pages.stride(3);
  source.page_size = static_cast<int32_t>(pages.dim(2));
  source.indptr = kv.paged_kv_indptr.data<int32_t>();
  source.indices = kv.paged_kv_indices.data<int32_t>();
  source.last_page_len = kv.paged_kv_last_page_len.data<int32_t>();
  return source;
}

KvPiece piece_of(const Tensor& k, const Tensor& v) {
  check_heads(k, "k");
  check_heads(v, "v");
  MSTAR_CHECK(k.shape() == v.shape() && k.dtype() == v.dtype(),
              "k ",
              k.to_string(),
              " beside v ",
              v.to_string());
  return {k.bytes(), v.bytes(), k.stride(0), k.stride(1), v.stride(0), v.stride(1), k.dim(0)};
}

// Query rows (tokens x group) of one item. Enough to make the packing of key tiles cheap beside
// their use, few enough that queries and sums stay in the second-level cache, and not so many that
// threads go without. The results do not depend on it.
int32_t block_rows(const AttentionParams& p, int num_threads) {
  constexpr int64_t kFewestRows = 24;
  const int64_t group = p.num_heads / p.num_kv_heads;
  // Where pairs of bf16 are dotted, packing weighs twice as much, and there the cache is larger.
  const bool wide = p.kv.dtype == DType::kBF16 && active_isa() >= Isa::kAvx512Bf16;
  int64_t most_rows = wide ? 480 : 192;
  int64_t most_floats = wide ? 60 << 10 : 24 << 10;
  if (active_isa() == Isa::kAmx && wide && p.q_dtype == DType::kBF16) {
    // Tiles leave packing a fifth of the time, and the products stream.
    most_rows *= 2;
    most_floats *= 2;
  }
  int64_t rows = std::min(most_rows, most_floats / std::max(p.head_dim, 1));
  if (num_threads > 1) {
    const int64_t even_share = p.num_rows * p.num_heads / (4 * num_threads);
    rows = std::min(rows, std::max(even_share, kFewestRows));
  }
  return static_cast<int32_t>(std::max(rows, group));
}

// The workspace of one op: plan, items, counters, partial results, then every task's scratch.
class Workspace {
 public:
  // First with null bytes to learn the size, then with memory of that size.
  Workspace(AttentionParams& p, int64_t partial_chunks, std::byte* bytes) : bytes_(bytes) {
    const int64_t group = p.num_heads / p.num_kv_heads;
    p.plan = take<AttentionPlan>(1);
    p.items = take<AttentionItem>(p.max_items);
    p.pending = take<int32_t>(int64_t{p.num_seqs} * p.num_kv_heads);
    // Rows of partial results are rounded up to full vectors of any instruction set.
    p.partial = take<float>(partial_chunks * group * (p.head_dim + 16 + 2));
    p.scratch = take<float>(p.num_tasks * p.scratch_floats);
  }

  int64_t size_bytes() const { return used_; }

 private:
  template <typename T>
  T* take(int64_t count) {
    T* taken = bytes_ == nullptr ? nullptr : reinterpret_cast<T*>(bytes_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return taken;
  }

  std::byte* bytes_;
  int64_t used_ = 0;
};

// `kv_capacity`: the most keys that all sequences together can have when the op runs.
void run(Stream& stream, AttentionParams& p, int64_t kv_capacity) {
  CpuStream& cpu = as_cpu(stream);
  if (p.num_rows == 0 || p.num_heads == 0 || p.head_dim == 0) {
    return;
  }
  if (reference_kernels()) {
    p.num_tasks = cpu.num_threads() == 1 ? 1 : p.num_heads;
    cpu.enqueue("attention", p.num_tasks, p, &ref::attention);
    return;
  }
  const int64_t work = p.num_rows * p.num_heads * p.head_dim * kv_capacity;
  p.num_tasks = work < (int64_t{1} << 18) ? 1 : cpu.num_threads();
  p.max_rows = block_rows(p, p.num_tasks);
  const int32_t group = p.num_heads / p.num_kv_heads;
  const int64_t pairs = int64_t{p.num_seqs} * p.num_kv_heads;
  p.split_chunks = p.num_tasks > 1 && p.num_seqs < 4 * p.num_tasks;
  const int64_t chunks =
      p.split_chunks ? (kv_capacity / kAttentionChunk + p.num_seqs) * p.num_kv_heads : 0;
  const int64_t blocks = p.num_rows / std::max(1, p.max_rows / group) * p.num_kv_heads;
  p.max_items = static_cast<int32_t>(blocks + pairs + chunks);
  p.item = MSTAR_BY_ISA(attention_item);
  auto* scratch_floats = MSTAR_BY_ISA(attention_scratch_floats);
#if defined(__x86_64__)
  if (active_isa() == Isa::kAmx && p.q_dtype == DType::kBF16 && p.kv.dtype == DType::kBF16) {
    p.item = &amx::attention_item;
    scratch_floats = &amx::attention_scratch_floats;
  }
#endif
  p.scratch_floats = scratch_floats(p.max_rows, p.num_heads, p.head_dim);
  const int64_t size = Workspace(p, chunks, nullptr).size_bytes();
  const Tensor memory = stream.empty({size}, DType::kU8);
  Workspace(p, chunks, memory.bytes());
  cpu.enqueue("plan_attention", 1, p, &plan_attention);
  cpu.enqueue("attention", p.num_tasks, p, &take_attention_items);
}

}  // namespace

void paged_attention(Stream& stream,
                     const Tensor& q,
                     const Tensor& qo_indptr,
                     const PagedKv& kv,
                     const AttentionOptions& options,
                     Tensor& out) {
  AttentionParams p = params_of(q, options, out);
  set_kv_heads(p, kv.pages.dim(3), kv.pages.dim(4));
  p.kv = paged_source(kv);
  p.num_seqs = static_cast<int32_t>(kv.paged_kv_last_page_len.dim(0));
  check_i32(qo_indptr, p.num_seqs + 1, "qo_indptr");
  p.qo_indptr = qo_indptr.data<int32_t>();
  run(stream, p, kv.paged_kv_indices.dim(0) * kv.pages.dim(2));
}

void ragged_attention(Stream& stream,
                      const Tensor& q,
                      const Tensor& k,
                      const Tensor& v,
                      const Tensor& qo_indptr,
                      const Tensor& kv_indptr,
                      const AttentionOptions& options,
                      Tensor& out) {
  AttentionParams p = params_of(q, options, out);
  p.kv.dtype = k.dtype();
  p.kv.piece[0] = piece_of(k, v);
  set_kv_heads(p, k.dim(1), k.dim(2));
  p.num_seqs = static_cast<int32_t>(qo_indptr.dim(0) - 1);
  check_i32(qo_indptr, p.num_seqs + 1, "qo_indptr");
  check_i32(kv_indptr, p.num_seqs + 1, "kv_indptr");
  p.qo_indptr = qo_indptr.data<int32_t>();
  p.kv.kv_indptr = kv_indptr.data<int32_t>();
  run(stream, p, k.dim(0));
}

void two_part_attention(Stream& stream,
                        const Tensor& q,
                        const Tensor& k0,
                        const Tensor& v0,
                        const Tensor& k1,
                        const Tensor& v1,
                        const AttentionOptions& options,
                        Tensor& out) {
  AttentionParams p = params_of(q, options, out);
  p.kv.dtype = k1.dtype();
  p.kv.piece[0] = piece_of(k0, v0);
  p.kv.piece[1] = piece_of(k1, v1);
  MSTAR_CHECK(k0.dtype() == k1.dtype() && k0.dim(1) == k1.dim(1) && k0.dim(2) == k1.dim(2),
              "k0 ",
              k0.to_string(),
              " beside k1 ",
              k1.to_string());
  set_kv_heads(p, k1.dim(1), k1.dim(2));
  run(stream, p, k0.dim(0) + k1.dim(0));
}

void write_paged_kv(Stream& stream,
                    const Tensor& k,
                    const Tensor& v,
                    const Tensor& token_to_page,
                    const Tensor& token_to_slot,
                    Tensor& pages) {
  CpuStream& cpu = as_cpu(stream);
  const KvPiece piece = piece_of(k, v);
  MSTAR_CHECK(pages.num_dims() == 5 && pages.dim(1) == 2 && pages.dim(3) == k.dim(1) &&
                  pages.dim(4) == k.dim(2) && pages.stride(4) == 1 &&
                  (pages.dtype() == DType::kF32 || pages.dtype() == DType::kBF16),
              "pages ",
              pages.to_string(),
              " for k ",
              k.to_string());
  check_i32(token_to_page, k.dim(0), "token_to_page");
  check_i32(token_to_slot, k.dim(0), "token_to_slot");
  PagedWriteParams p;
  p.k = piece.k;
  p.v = piece.v;
  p.dtype = k.dtype();
  p.k_token_stride = piece.k_token_stride;
  p.k_head_stride = piece.k_head_stride;
  p.v_token_stride = piece.v_token_stride;
  p.v_head_stride = piece.v_head_stride;
  p.token_to_page = token_to_page.data<int32_t>();
  p.token_to_slot = token_to_slot.data<int32_t>();
  p.tokens = k.dim(0);
  p.num_kv_heads = static_cast<int32_t>(k.dim(1));
  p.head_dim = static_cast<int32_t>(k.dim(2));
  p.pages = pages.bytes();
  p.pages_dtype = pages.dtype();
  p.page_stride = pages.stride(0);
  p.value_offset = pages.stride(1);
  p.slot_stride = pages.stride(2);
  p.head_stride = pages.stride(3);
  if (p.tokens > 0) {
    p.num_tasks = row_tasks(cpu, p.tokens, 2 * k.dim(1) * k.dim(2));
    cpu.enqueue("write_paged_kv", p.num_tasks, p, MSTAR_KERNEL(write_paged_kv));
  }
}

void gather_paged_kv(Stream& stream, const PagedKv& kv, int64_t sequence, Tensor& k, Tensor& v) {
  CpuStream& cpu = as_cpu(stream);
  const KvPiece piece = piece_of(k, v);
  PagedGatherParams p;
  p.kv = paged_source(kv);
  MSTAR_CHECK(k.dim(1) == kv.pages.dim(3) && k.dim(2) == kv.pages.dim(4),
              "k ",
              k.to_string(),
              " from pages ",
              kv.pages.to_string());
  MSTAR_CHECK(sequence >= 0 && sequence < kv.paged_kv_last_page_len.dim(0), "sequence ", sequence);
  p.sequence = sequence;
  p.tokens = k.dim(0);
  p.num_kv_heads = static_cast<int32_t>(k.dim(1));
  p.head_dim = static_cast<int32_t>(k.dim(2));
  p.k = k.bytes();
  p.v = v.bytes();
  p.dtype = k.dtype();
  p.k_token_stride = piece.k_token_stride;
  p.k_head_stride = piece.k_head_stride;
  p.v_token_stride = piece.v_token_stride;
  p.v_head_stride = piece.v_head_stride;
  if (p.tokens > 0) {
    p.num_tasks = row_tasks(cpu, p.tokens, 2 * k.dim(1) * k.dim(2));
    cpu.enqueue("gather_paged_kv", p.num_tasks, p, MSTAR_KERNEL(gather_paged_kv));
  }
}

}  // namespace mstar::ops

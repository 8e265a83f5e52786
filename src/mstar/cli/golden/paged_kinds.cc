// Paged attention and cache writes on given pools and plans.
#include "mstar/cli/golden/registry.h"
#include "mstar/kernels/ops/attention.h"

namespace mstar::golden {

namespace {

void run_paged(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Tensor q = golden.tensor("q");
  const PagedKv kv{.pages = golden.tensor("pool"),
                   .paged_kv_indptr = golden.tensor("paged_kv_indptr"),
                   .paged_kv_indices = golden.tensor("paged_kv_indices"),
                   .paged_kv_last_page_len = golden.tensor("paged_kv_last_page_len")};
  AttentionOptions options;
  options.scale = static_cast<float>(golden.get_double("scale"));
  options.causal = golden.get_bool("causal", true);
  Tensor out = context.stream.empty(q.shape(), q.dtype());
  ops::paged_attention(context.stream, q, golden.tensor("qo_indptr"), kv, options, out);
  result.expect("out", out);
}

void run_paged_write(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const std::vector<int64_t> stored = golden.get_ints("stored");
  const std::vector<int64_t> added = golden.get_ints("new");
  const std::vector<int64_t> indptr = golden.tensor("paged_kv_indptr").to_ints();
  const std::vector<int64_t> indices = golden.tensor("paged_kv_indices").to_ints();
  const int64_t page_size = golden.get_int("page_size");
  std::vector<int32_t> pages;
  std::vector<int32_t> slots;
  for (size_t sequence = 0; sequence < stored.size(); ++sequence) {
    for (int64_t token = stored[sequence]; token < stored[sequence] + added[sequence]; ++token) {
      const auto page = static_cast<size_t>(indptr.at(sequence) + token / page_size);
      pages.push_back(static_cast<int32_t>(indices.at(page)));
      slots.push_back(static_cast<int32_t>(token % page_size));
    }
  }
  const auto count = static_cast<int64_t>(pages.size());
  const Tensor token_to_page = Tensor::from(pages, {count});
  const Tensor token_to_slot = Tensor::from(slots, {count});
  result.expect("token_to_page", token_to_page);
  result.expect("token_to_slot", token_to_slot);
  Tensor pool = golden.tensor("pool").copy();
  ops::write_paged_kv(
      context.stream, golden.tensor("k"), golden.tensor("v"), token_to_page, token_to_slot, pool);
  result.expect("pool_after", pool);
}

}  // namespace

void add_paged_kinds(Registry& registry) {
  registry.add_prefix("paged_", run_paged);
  registry.add_prefix("paged_write", run_paged_write);
}

}  // namespace mstar::golden

#include "mstar/checkpoint/name_mapping.h"

#include <gtest/gtest.h>

namespace mstar {
namespace {

TEST(NameMapping, PatternsMatchWholeComponents) {
  EXPECT_TRUE(matches_pattern("up_proj", "mlp.up_proj.weight"));
  EXPECT_FALSE(matches_pattern("up_proj", "mlp.gate_up_proj.weight"));
  EXPECT_TRUE(matches_pattern("layers.*.mlp", "model.layers.11.mlp.up_proj"));
  EXPECT_FALSE(matches_pattern("layers.*.mlp", "model.layers.mlp"));
  EXPECT_TRUE(matches_pattern("^model", "model.norm.weight"));
  EXPECT_FALSE(matches_pattern("^norm", "model.norm.weight"));
  EXPECT_TRUE(matches_pattern("inv_freq$", "rotary.inv_freq"));
  EXPECT_FALSE(matches_pattern("inv_freq$", "rotary.inv_freq.more"));
  EXPECT_FALSE(matches_pattern("a.b.c", "b.c"));
}

TEST(NameMapping, SkipsRenamesAndStacksInThatOrder) {
  NameMapping mapping;
  mapping.skip = {"rotary_emb.inv_freq$"};
  mapping.rename = {{"^language_model", ""}, {"self_attention", "self_attn"}};
  mapping.stacked = {{"qkv_proj", "q_proj", "q"},
                     {"qkv_proj", "k_proj", "k"},
                     {"gate_up_proj", "gate_proj", "0"},
                     {"gate_up_proj", "up_proj", "1"}};
  EXPECT_TRUE(map_name(mapping, "layers.0.rotary_emb.inv_freq").skipped);

  MappedName mapped = map_name(mapping, "language_model.layers.3.self_attn.k_proj.bias");
  EXPECT_EQ(mapped.name, "layers.3.self_attn.qkv_proj.bias");
  EXPECT_EQ(mapped.shard_id, "k");

  mapped = map_name(mapping, "layers.3.mlp.up_proj.weight");
  EXPECT_EQ(mapped.name, "layers.3.mlp.gate_up_proj.weight");
  EXPECT_EQ(mapped.shard_id, "1");

  mapped = map_name(mapping, "layers.3.mlp.down_proj.weight");
  EXPECT_EQ(mapped.name, "layers.3.mlp.down_proj.weight");
  EXPECT_EQ(mapped.shard_id, "");
}

TEST(NameMapping, StarsCarryExpertNumbers) {
  NameMapping mapping;
  mapping.stacked = {{"experts.gate_up_proj", "experts.*.gate_proj.weight", "gate:*"}};
  const MappedName mapped = map_name(mapping, "layers.1.mlp.experts.42.gate_proj.weight");
  EXPECT_EQ(mapped.name, "layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(mapped.shard_id, "gate:42");
}

TEST(NameMapping, RenameKeepsStars) {
  NameMapping mapping;
  mapping.rename = {{"^blk.*.attn_q", "model.layers.*.self_attn.q_proj"}};
  EXPECT_EQ(map_name(mapping, "blk.7.attn_q.weight").name,
            "model.layers.7.self_attn.q_proj.weight");
}

}  // namespace
}  // namespace mstar

#include "mstar/graph/worker_split.h"

#include <gtest/gtest.h>

namespace mstar::graph {
namespace {

TEST(WorkerSplit, ALoopSpreadOverGroups) {
  const CompiledWalk compiled = compile(walk(
      "image_gen_cfg",
      {"latents"},
      loop("denoise",
           50,
           parallel(node("LLM").needs({"latents"}).makes(edge("v").to("combine", "v")),
                    node("LLM_cfg").needs({"latents"}).makes(edge("u").to("combine"))),
           node("combine")
               .needs({"v", "u"})
               .makes(edge("latents").to("LLM"))
               .makes(edge("latents").to("LLM_cfg")))
          .gives("latents", edge("latents").to("vae_decoder")),
      node("vae_decoder").needs({"latents"}).makes(edge("image").to_client(Modality::kImage))));
  const NodeId llm = compiled.find_node("LLM"), cfg = compiled.find_node("LLM_cfg"),
               combine = compiled.find_node("combine"), vae = compiled.find_node("vae_decoder");
  std::vector<uint16_t> group_of(compiled.nodes.size(), 0);
  group_of[cfg] = 7;
  group_of[vae] = 3;
  const WalkPlacement placement = split(compiled, group_of);
  ASSERT_EQ(placement.worker_graphs.size(), 3u);
  EXPECT_EQ(placement.find_group(1), nullptr);

  const WorkerGraph& main = *placement.find_group(0);
  EXPECT_EQ(main.nodes, (uint64_t{1} << llm) | (uint64_t{1} << combine));
  EXPECT_EQ(main.inputs, std::vector<PortId>{compiled.find_port(llm, "latents")});
  EXPECT_EQ(main.arriving, std::vector<EdgeId>{compiled.find_edge(cfg, "u", "combine")});
  EXPECT_EQ(main.leaving.size(), 2u);  // latents to the branch, and the loop's to the decoder

  const WorkerGraph& branch = *placement.find_group(7);
  const EdgeId back = compiled.find_edge(combine, "latents", "LLM_cfg");
  EXPECT_EQ(branch.arriving, std::vector<EdgeId>{back});
  EXPECT_EQ(placement.destination(compiled, back), 7);

  const LoopId loop = compiled.find_loop("denoise");
  EXPECT_EQ(placement.groups_of_loop[loop], (std::vector<uint16_t>{0, 7}));
  EXPECT_TRUE(placement.find_group(3)->loops.empty());
  ASSERT_EQ(placement.find_group(3)->arriving.size(), 1u);  // given by the loop where it was made
}

}  // namespace
}  // namespace mstar::graph

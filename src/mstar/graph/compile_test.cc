#include "mstar/graph/compile.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/graph/testing/walk_text.h"

namespace mstar::graph {
namespace {

WalkGraph image_gen() {
  return walk("image_gen",
              {"latents", "time_index", "cond_latents"},
              loop("image_gen_loop",
                   100,
                   node("dit")
                       .needs({"latents", "time_index", "cond_latents"})
                       .makes(edge("latents").to("dit"))
                       .makes(edge("time_index").to("dit")))
                  .gives("latents", edge("latents").to("vae_decoder")),
              node("vae_decoder")
                  .needs({"latents"})
                  .makes(edge("image_output").to_client(Modality::kImage)));
}

ModelGraph model_of(const std::string& text) {
  std::vector<testing::TextLine> lines = testing::read_lines(text);
  return testing::read_model(lines);
}

// The message of the error that compiling gives, "" when it compiles.
std::string error_of(const std::string& text) {
  try {
    compile(model_of(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

#define EXPECT_ERROR(text, part)                                                \
  do {                                                                          \
    const std::string message = error_of(text);                                 \
    EXPECT_NE(message.find(part), std::string::npos) << "message: " << message; \
  } while (false)

TEST(Compile, BuilderAndTextSayTheSame) {
  const ModelGraph model = model_of(R"(
walk image_gen: latents time_index cond_latents
  loop image_gen_loop x100
    node dit: latents time_index cond_latents
      latents -> dit
      time_index -> dit
    last latents -> vae_decoder
  node vae_decoder: latents
    image_output -> client image
)");
  ASSERT_EQ(model.walks.size(), 1u);
  EXPECT_EQ(model.walks[0], image_gen());
  WalkGraph other = image_gen();
  std::get<Loop>(other.sections[0].value).max_iters = 99;
  EXPECT_FALSE(other == image_gen());
}

TEST(Compile, ADenoiseLoop) {
  const CompiledWalk compiled = compile(image_gen());
  const NodeId dit = compiled.find_node("dit");
  const NodeId decoder = compiled.find_node("vae_decoder");
  const LoopId loop = compiled.find_loop("image_gen_loop");
  ASSERT_NE(dit, kNoId);
  ASSERT_NE(loop, kNoId);
  EXPECT_EQ(compiled.nodes[dit].scope, loop);
  EXPECT_EQ(compiled.nodes[decoder].scope, kWalkScope);
  EXPECT_EQ(compiled.loops[loop].max_iters, 100);
  EXPECT_EQ(compiled.loops[loop].nodes, uint64_t{1} << dit);

  // latents: sent back by the loop, first brought by the conductor; both read once.
  const Port& latents = compiled.ports[compiled.find_port(dit, "latents")];
  ASSERT_EQ(latents.num_cells, 2);
  EXPECT_TRUE(latents.walk_input);
  EXPECT_TRUE(compiled.cells[latents.first_cell].loop_back);
  EXPECT_TRUE(compiled.cells[latents.first_cell + 1].once);
  // cond_latents: shown to every iteration.
  const Port& cond = compiled.ports[compiled.find_port(dit, "cond_latents")];
  ASSERT_EQ(cond.num_cells, 1);
  EXPECT_FALSE(compiled.cells[cond.first_cell].once);

  const EdgeId back = compiled.find_edge(dit, "latents", "dit");
  ASSERT_NE(back, kNoId);
  EXPECT_TRUE(compiled.edges[back].loop_back);
  EXPECT_NE(compiled.find_edge(decoder, "image_output", kEmitToClient), kNoId);
  EXPECT_EQ(compiled.find_edge(dit, "latents", "vae_decoder"), kNoId);
  EXPECT_FALSE(compiled.ports[compiled.find_port(decoder, "latents")].walk_input);
}

TEST(Compile, ParallelPartsMayFeedEachOther) {
  const CompiledWalk compiled =
      compile(walk("w",
                   {"x"},
                   parallel(node("b").needs({"y"}).makes(edge("z").to_client(Modality::kText)),
                            node("a").needs({"x"}).makes(edge("y").to("b")))));
  EXPECT_FALSE(compiled.edges[compiled.find_edge(compiled.find_node("a"), "y", "b")].loop_back);
}

TEST(Compile, NodesOfAModelAreNumberedByName) {
  const CompiledModel model = compile(model_of(R"(
walk prefill: x
  node vit: x
    y -> LLM
  node LLM: y
walk decode: y
  node LLM: y
)"));
  EXPECT_EQ(model.nodes, (std::vector<std::string>{"vit", "LLM"}));
  EXPECT_EQ(model.walks[0].nodes[1].model_node, 1);
  EXPECT_EQ(model.walks[1].nodes[0].model_node, 1);
  ASSERT_EQ(model.topology.partitions.size(), 1u);
  EXPECT_EQ(model.get_walk("decode"), 1);
  EXPECT_THROW(model.get_walk("dekode"), Error);
}

TEST(CompileErrors, Names) {
  EXPECT_ERROR("walk w: x\n  node a: x\n  node a: x\n", "node 'a': the name is taken");
  EXPECT_ERROR("walk w: x\n  node a: x x\n", "needs 'x' twice");
  EXPECT_ERROR("walk w: x\n  node a.b: x\n", "has a dot in it");
  EXPECT_ERROR("walk w: x\n  node emit_to_client: x\n", "reserved");
  EXPECT_ERROR("walk w: x x\n  node a: x\n", "lists the input 'x' twice");
  EXPECT_ERROR("walk w: x\n  node a: x\nwalk w: x\n  node a: x\n", "declared twice");
  EXPECT_ERROR("walk w: x\n  loop l x2\n    node a: x\n  loop l x2\n    node b: x\n",
               "loop 'l': the name is taken");
}

TEST(CompileErrors, Edges) {
  EXPECT_ERROR("walk w: x\n  node a: x\n    y -> vae_decodr\n  node vae_decoder: y\n",
               "'vae_decodr', which is not a node of this walk; did you mean 'vae_decoder'?");
  EXPECT_ERROR("walk w: x z\n  node a: x\n    y -> b\n  node b: z\n",
               "goes to 'b', which has no input 'y' (it needs: z)");
  EXPECT_ERROR("walk w: x\n  node a: x\n    y -> b\n    y -> b\n  node b: y\n", "declared twice");
  EXPECT_ERROR("walk w: x\n  node a: x\n    y -> nowhere\n", "goes nowhere");
  EXPECT_ERROR("walk w: x\n  node a: x\n    y -> b\n    z -> b.y\n  node b: y\n",
               "input 'y' of 'b' gets a value from both 'y' of node 'a' and 'z' of node 'a'");
  EXPECT_ERROR("walk w: x y\n  node b: x y\n  node a: x\n    y -> b\n",
               "goes back to an earlier part outside any loop");
  EXPECT_ERROR("walk w:\n  parallel\n    node a: y\n      x -> b\n    node b: x\n      y -> a\n",
               "in a circle and would never start: 'a', 'b'");
  Node silent = node("a").needs({"x"}).makes(edge("y"));
  silent.outputs[0].destination = kEmitToClient;
  EXPECT_THROW(compile(walk("w", {"x"}, silent)), Error);  // no modality
}

TEST(CompileErrors, Inputs) {
  EXPECT_ERROR("walk w: latents\n  node a: latent\n",
               "'latent' of 'a' is never brought: no edge leads to it and the walk has no such "
               "input; did you mean 'latents'?");
  EXPECT_ERROR("walk w: x y\n  node a: x\n", "has the input 'y', which no node takes from outside");
  EXPECT_ERROR("walk w: x\n  node a:\n", "needs no input, so nothing would ever start it");
  EXPECT_ERROR("walk w:\n  loop l x3\n    node a: x\n      x -> a\n",
               "has no value in the first iteration");
}

TEST(CompileErrors, Loops) {
  EXPECT_ERROR("walk w: x\n  loop l x0\n    node a: x\n", "runs 0 iterations");
  EXPECT_ERROR("walk w: x\n  loop _ until_stopped\n    node a: x\n", "never ends");
  EXPECT_ERROR("walk w: x\n  loop l x2\n", "empty body");
  EXPECT_ERROR("walk w: x\n  loop l x2\n    node a: x\n      y -> b\n  node b: y\n",
               "leaves the loop 'l'; let the loop give it");
  EXPECT_ERROR("walk w: x\n  loop l x2\n    node a: x\n    last y -> b\n  node b: y\n",
               "gives 'y', which nothing directly in its body makes");
  EXPECT_ERROR(
      "walk w: x\n  loop l x2\n    node a: x\n      y -> nowhere\n    node b: x\n      y -> "
      "nowhere\n"
      "    last y -> c\n  node c: y\n",
      "several parts of its body make; say which: a.y, b.y");
  EXPECT_ERROR(
      "walk w: x\n  loop l x2\n    node a: x\n      y -> nowhere\n    last y -> b\n    all y -> c\n"
      "  node b: y\n  node c: y\n",
      "gives 'y' both as its last value and as all values");
  EXPECT_ERROR(
      "walk w: x\n  loop l x2\n    node a: x\n      y -> nowhere\n      z -> nowhere\n"
      "    last y as v -> b\n    last z as v -> c\n  node b: v\n  node c: v\n",
      "gives 'v' from both 'y' and 'z'");
  // The same value again in each iteration, and a value sent back: which one?
  EXPECT_ERROR(
      "walk w: x\n  loop l x2\n    node a: x\n      y -> b\n    node b: y\n      z -> b.y\n",
      "in the same iteration; remove one edge");
  std::string deep = "walk w: x\n";
  for (int depth = 0; depth < 5; ++depth) {
    deep += str_cat(std::string(2 + 2 * depth, ' '), "loop l", depth, " x2\n");
  }
  EXPECT_ERROR(deep + "            node a: x\n", "lies in more than");
}

TEST(CompileErrors, QualifiedNamesChoose) {
  EXPECT_EQ(error_of("walk w: x\n  loop l x2\n    node a: x\n      y -> client text\n"
                     "    node b: x\n      y -> nowhere\n    last b.y as y -> c\n  node c: y\n"),
            "");
}

TEST(CompileErrors, TooManyNodes) {
  std::string text = "walk w: x\n";
  for (int count = 0; count < kMaxNodes; ++count) text += str_cat("  node n", count, ": x\n");
  EXPECT_EQ(error_of(text), "");
  EXPECT_ERROR(text + "  node more: x\n", "more than 64 nodes");
}

constexpr const char* kStreams = R"(
walk decode: x
  node LLM: x
    token -> ~SNAC.snac
walk chunk:
  node snac: ~token
    audio -> client audio
)";
constexpr const char* kPartitions = "partition LLM: decode\npartition SNAC: chunk\n";
constexpr const char* kConnection = "connection LLM SNAC token sliding_window 28 7\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(CompileErrors, Streams) {
  const std::string good = str_cat(kStreams, kPartitions, kConnection);
  EXPECT_EQ(error_of(good), "");
  EXPECT_ERROR(str_cat(kStreams, kPartitions), "the topology has no such connection; add");
  EXPECT_ERROR(str_cat(kStreams, kConnection), "which does not exist");
  EXPECT_ERROR(replaced(good, "~token", "token"), "never brought");
  EXPECT_ERROR(replaced(good, "~SNAC.snac", "~SNAC.snak"), "has a node 'snak'");
  EXPECT_ERROR(replaced(good, "~SNAC.snac", "~SNAK.snac"), "did you mean 'SNAC'?");
  EXPECT_ERROR(replaced(good, "token -> ~SNAC.snac", "token -> client text"),
               "waits for the stream 'token', but no edge streams it");
  EXPECT_ERROR(str_cat(good, "connection SNAC LLM audio fixed 1\n"), "no walk of 'SNAC' has this");
  EXPECT_ERROR(str_cat(good, kConnection), "declared twice");
  EXPECT_ERROR(replaced(good, "LLM SNAC token", "LLM LLM token"), "stays inside one partition");
  EXPECT_ERROR(replaced(good, "window 28 7", "window 28 0"), "the stride must be at least 1");
  EXPECT_ERROR(replaced(good, "window 28 7", "window 28 29"), "larger than the window");
  EXPECT_ERROR(replaced(good, "sliding_window 28 7", "left_context 4 5"), "may not be longer");
  EXPECT_ERROR(replaced(good, "partition LLM: decode", "partition LLM: decode chunk"),
               "in two partitions");
  EXPECT_ERROR(replaced(good, "partition LLM: decode", "partition LLM:"),
               "belongs to no partition");
  EXPECT_ERROR(replaced(good, "partition LLM: decode", "partition LLM: dekode"),
               "did you mean 'decode'?");
  EXPECT_ERROR(replaced(good, "partition SNAC", "partition LLM"), "declared twice");
  EXPECT_ERROR("walk w: x\n  node a: x\n    y -> b\n  node b: ~y\n", "feeds a streaming input");
}

}  // namespace
}  // namespace mstar::graph

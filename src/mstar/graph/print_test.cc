#include "mstar/graph/print.h"

#include <gtest/gtest.h>

#include "mstar/graph/testing/walk_text.h"

namespace mstar::graph {
namespace {

ModelGraph speech() {
  std::vector<testing::TextLine> lines = testing::read_lines(R"(
walk decode: text_inputs style
  loop decode_loop until_stopped
    node LLM no_async: text_inputs style
      new_token -> LLM.text_inputs token
      new_token -> ~SNAC.snac
      states -> nowhere kept
    all LLM.new_token as tokens -> judge
  parallel
    node judge: tokens
      score -> client scalar
    node other: style
walk chunk:
  node snac: ~new_token
    audio -> client audio
partition LLM: decode
partition SNAC: chunk
connection LLM SNAC new_token sliding_window 28 7
)");
  return testing::read_model(lines);
}

TEST(Print, MermaidOfAWalk) {
  EXPECT_EQ(to_mermaid(speech().walks[0]), R"text(flowchart LR
  subgraph loop1["decode_loop, until stopped"]
    n0["LLM"]
  end
  n1["judge"]
  n2["other"]
  in_1(["text_inputs"])
  in_1 --> n0
  in_2(["style"])
  in_2 --> n0
  in_2 --> n2
  n0 -.->|"new_token as text_inputs"| n0
  n3[["SNAC: snac"]]
  n0 ==>|"new_token"| n3
  n0 -->|"states (kept)"| kept[(kept)]
  loop1 -->|"all tokens"| n1
  n1 -->|"score: scalar"| client(((client)))
)text");
}

TEST(Print, MermaidOfAStreamsConsumer) {
  EXPECT_EQ(to_mermaid(speech().walks[1]), R"text(flowchart LR
  n0["snac"]
  in_1[["stream: new_token"]]
  in_1 ==> n0
  n0 -->|"audio: audio"| client(((client)))
)text");
}

TEST(Print, MermaidOfAModelShowsPartitions) {
  const std::string text = to_mermaid(speech());
  EXPECT_NE(text.find("### decode\n\n```mermaid\nflowchart LR\n"), std::string::npos);
  EXPECT_NE(text.find("p0 ==>|\"new_token<br>sliding_window(28, 7)\"| p1"), std::string::npos)
      << text;
}

TEST(Print, Json) {
  EXPECT_EQ(to_json(speech()), Json::parse(R"json({
    "walks": [
      {"walk": "decode", "inputs": ["text_inputs", "style"], "sections": [
        {"loop": "decode_loop", "body": [
          {"node": "LLM", "inputs": ["text_inputs", "style"], "outputs": [
            {"name": "new_token", "to": "LLM", "input": "text_inputs", "conductor_new_token": true},
            {"name": "new_token", "to": "snac", "target_partition": "SNAC"},
            {"name": "states", "to": "", "persist": true}],
           "enable_async_scheduling": false}],
         "accumulated_outputs": [
          {"body_output": "LLM.new_token", "edge": {"name": "tokens", "to": "judge"}}]},
        {"parallel": [
          {"node": "judge", "inputs": ["tokens"],
           "outputs": [{"name": "score", "to": "emit_to_client", "modality": "scalar"}]},
          {"node": "other", "inputs": ["style"], "outputs": []}]}]},
      {"walk": "chunk", "inputs": [], "sections": [
        {"node": "snac", "inputs": [], "streaming_inputs": ["new_token"],
         "outputs": [{"name": "audio", "to": "emit_to_client", "modality": "audio"}]}]}],
    "partitions": [{"name": "LLM", "walks": ["decode"]}, {"name": "SNAC", "walks": ["chunk"]}],
    "connections": [{"from": "LLM", "to": "SNAC", "edge_name": "new_token",
                     "chunk_policy": "sliding_window(28, 7)"}]})json"));
}

}  // namespace
}  // namespace mstar::graph

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mstar/engine/model.h"

namespace mstar::testing {

// A model without weights that walks through what a language model does not use: a stateless
// encoder, parallel branches, a loop with a flow step, a loop stopped by name, a node that reads
// two labels of one cache in one batched step, and a second partition fed by a stream.
//
//   encode:  [double | square] in parallel -> join, kept as "joined"
//   flow:    flow_loop[ flow(latents, time_index, joined) ] -> decoder -> client ("result")
//   count:   count_loop[ counter(value) -> client ("item") and stream to partition "sink" ]
//   consume: summer(items) -> client ("sum"), in partition "sink"
//
// Request parameters: `value` (start), `steps` (of flow), `mode` ("flow", "count"), `stop_at`
// (counter stops its loop at this value), `fail` (name of a node that throws), `nan` (flow makes
// NaN), `slow_us` (every forward waits).
class TestModel : public Model {
 public:
  TestModel();

  const ModelDescription& description() const override { return description_; }

  graph::ModelGraph get_graph_walk_graphs() const override;
  std::vector<NodeResourceSpec> get_node_resources() const override;

  std::vector<std::string> get_labels() const override { return {"main", "uncond", "both"}; }

  std::unique_ptr<NodeSubmodule> get_submodule(std::string_view node,
                                               const LoadContext& context) override;

  std::vector<MemoryItem> memory_plan(const std::vector<std::string>&,
                                      const LoadContext&) const override {
    return {};
  }

  PreparedRequest process_prompt(const ModelRequest& request) const override;
  ForwardPassArgs get_initial_forward_pass_args(RequestProgress& progress) const override;
  ForwardPassArgs get_partition_forward_pass_args(RequestProgress& progress) const override;
  std::unique_ptr<OutputStream> make_output_stream(const PreparedRequest& request) const override;

 private:
  ModelDescription description_;
};

// The value that "flow" ends with: the same arithmetic, one request at a time.
float expected_flow(float value, int steps);

}  // namespace mstar::testing

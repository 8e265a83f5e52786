#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mstar/graph/walk_graph.h"

// Walks written as indented text, for the scenarios in tests/walks:
//
//   walk image_gen: latents time_index            (the conductor's inputs)
//     loop image_gen_loop x100                     (or: loop NAME until_stopped; _ = no name)
//       node dit: latents time_index               (~name is a streaming input; no_async before :)
//         latents -> dit
//         time_index -> dit
//       last latents -> vae_decoder                (all X as Y -> ... accumulates)
//     parallel                                     (or: sequential)
//       node vae_decoder: latents
//         image_output -> client image
//   partition main: image_gen
//   connection LLM SNAC new_token sliding_window 28 7
//
// A target is `node`, `node.input`, `client MODALITY`, `~partition.node` or `nowhere`, then any of
// `kept` and `token`.
namespace mstar::graph::testing {

struct TextLine {
  int number = 0;
  int indent = 0;  // leading spaces
  std::vector<std::string> words;
};

// Lines without comments ("#" to the end) and blanks.
std::vector<TextLine> read_lines(std::string_view text);

// Reads the declaration at the front of `lines` and removes it. Throws Error naming the line.
ModelGraph read_model(std::vector<TextLine>& lines);

}  // namespace mstar::graph::testing

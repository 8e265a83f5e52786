#pragma once

#include <string>

#include "mstar/base/json.h"
#include "mstar/graph/walk_graph.h"

// Graphs as text, for documents, `mstar inspect` and the web page. They draw the declaration, so
// a walk that does not compile can be looked at too.
namespace mstar::graph {

// A Mermaid flowchart: loops as boxes, next-iteration edges dotted, streams thick.
std::string to_mermaid(const WalkGraph& walk);
// One flowchart per walk under its name, then one of the partitions. Markdown.
std::string to_mermaid(const ModelGraph& model);

// Every field of the declaration, default values left out.
Json to_json(const WalkGraph& walk);
Json to_json(const ModelGraph& model);

}  // namespace mstar::graph

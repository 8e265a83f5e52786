#include "mstar/graph/walk_graph.h"

#include <algorithm>

namespace mstar::graph {

const char* to_string(Modality modality) {
  switch (modality) {
    case Modality::kNone: return "none";
    case Modality::kText: return "text";
    case Modality::kImage: return "image";
    case Modality::kVideo: return "video";
    case Modality::kAudio: return "audio";
    case Modality::kAction: return "action";
    case Modality::kScalar: return "scalar";
    case Modality::kTensor: return "tensor";
  }
  return "?";
}

Edge edge(std::string name) {
  Edge made;
  made.input = name;
  made.name = std::move(name);
  return made;
}

Edge& Edge::to(std::string node) {
  destination = std::move(node);
  return *this;
}

Edge& Edge::to(std::string node, std::string input_name) {
  input = std::move(input_name);
  return to(std::move(node));
}

Edge& Edge::to_client(Modality what) {
  modality = what;
  destination = kEmitToClient;
  return *this;
}

Edge& Edge::kept() {
  persist = true;
  return *this;
}

Edge& Edge::counts_as_token() {
  conductor_new_token = true;
  return *this;
}

Edge& Edge::stream_to(std::string partition, std::string node) {
  target_partition = std::move(partition);
  return to(std::move(node));
}

Edge& Edge::stream_to(std::string partition, std::string node, std::string input_name) {
  target_partition = std::move(partition);
  return to(std::move(node), std::move(input_name));
}

Node node(std::string name) {
  Node made;
  made.name = std::move(name);
  return made;
}

bool Node::consumes_stream() const {
  return std::any_of(inputs.begin(), inputs.end(), [](const Input& in) { return in.is_streaming; });
}

Node& Node::needs(std::vector<std::string> names) {
  for (std::string& input : names) inputs.push_back({std::move(input), false});
  return *this;
}

Node& Node::needs_stream(std::string input_name) {
  inputs.push_back({std::move(input_name), true});
  return *this;
}

Node& Node::makes(Edge output) {
  outputs.push_back(std::move(output));
  return *this;
}

Node& Node::without_async_scheduling() {
  enable_async_scheduling = false;
  return *this;
}

Loop& Loop::gives(std::string body_output, Edge edge) {
  outputs.push_back({std::move(body_output), std::move(edge)});
  return *this;
}

Loop& Loop::gives_all(std::string body_output, Edge edge) {
  accumulated_outputs.push_back({std::move(body_output), std::move(edge)});
  return *this;
}

bool Sequential::operator==(const Sequential&) const = default;
bool Parallel::operator==(const Parallel&) const = default;
bool Loop::operator==(const Loop&) const = default;
bool Section::operator==(const Section&) const = default;
bool WalkGraph::operator==(const WalkGraph&) const = default;

}  // namespace mstar::graph

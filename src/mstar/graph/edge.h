#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mstar::graph {

// What a value that reaches the client is.
enum class Modality : uint8_t { kNone, kText, kImage, kVideo, kAudio, kAction, kScalar, kTensor };

const char* to_string(Modality modality);

// Destinations that are not nodes.
inline constexpr std::string_view kEmitToClient = "emit_to_client";
inline constexpr std::string_view kNowhere = "";  // only the conductor wants it, see persist

// One named way for an output of a node (or of a loop) to travel. Written by a model's author:
//   edge("latents").to("vae_decoder")
//   edge("new_token").to("LLM", "text_inputs")            the consumer calls it otherwise
//   edge("image_output").to_client(Modality::kImage)
//   edge("cond_latents").kept()                           for a later walk
//   edge("new_token").stream_to("SNAC", "snac_decoder")   into another partition
// Plain data; several edges may carry the same output to several places. Thread-compatible.
struct Edge {
  std::string name;         // the producer's name for the value
  std::string destination;  // a node of this walk, kEmitToClient or kNowhere
  std::string input;        // the consumer's name for it; equals `name` unless said otherwise
  bool persist = false;     // the producer keeps it for a later walk of the request
  bool conductor_new_token = false;  // counts as generated tokens of the request
  Modality modality = Modality::kNone;
  std::string target_partition;  // not empty: crosses into this partition through a StreamBuffer

  bool is_streaming() const { return !target_partition.empty(); }

  bool is_emitted() const { return destination == kEmitToClient; }

  Edge& to(std::string node);
  Edge& to(std::string node, std::string input_name);
  Edge& to_client(Modality what);
  Edge& kept();
  Edge& counts_as_token();
  Edge& stream_to(std::string partition, std::string node);
  Edge& stream_to(std::string partition, std::string node, std::string input_name);

  bool operator==(const Edge&) const = default;
};

// Starts an edge that goes nowhere yet.
Edge edge(std::string name);

}  // namespace mstar::graph

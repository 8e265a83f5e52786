#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/base/thread_pool.h"
#include "mstar/engine/forward_pass.h"
#include "mstar/engine/named_tensors.h"
#include "mstar/engine/parameters.h"
#include "mstar/engine/submodule.h"
#include "mstar/graph/walk_graph.h"
#include "mstar/resources/spec.h"
#include "mstar/tensor/stream.h"

namespace mstar {

using graph::Modality;

// ---- what a client asks, in the model's terms

// One file a client sent: its bytes as they came.
struct MediaItem {
  Modality modality = Modality::kNone;  // by content
  std::shared_ptr<const std::string> bytes;
  std::string name;  // for messages only, never a path
};

struct ContentPart {
  Modality modality = Modality::kText;
  std::string text;  // kText
  int media = -1;    // else: index into ModelRequest::media
};

struct ChatMessage {
  std::string role;  // system, developer, user, assistant, tool
  std::vector<ContentPart> content;
};

struct ModelRequest {
  std::string request_id;
  std::vector<ChatMessage> messages;  // a bare prompt is one user message
  bool raw_prompt = false;            // the text is tokenized as it is, without a chat template
  std::vector<MediaItem> media;
  std::vector<Modality> output_modalities;  // never empty
  Json parameters = Json::object();         // checked against the model's table
};

// ---- what the model makes of it

// A request ready to run: tensors and numbers, no text. Made outside the step loop.
struct PreparedRequest {
  std::string request_id;
  NamedTensors inputs;  // persistent signals of the first walks, by name
  std::vector<Modality> input_modalities;
  std::vector<Modality> output_modalities;
  Json step_metadata = Json::object();  // resolved parameters and what submodules need
  ValueMap values;                      // typed facts for them
  uint64_t random_seed = 0;
  int64_t num_prompt_tokens = 0;
  int64_t max_tokens = 0;  // generated tokens allowed
  std::map<std::string, RequestResourceConfig, std::less<>> resource_configs;  // by resource key
  std::vector<std::string> stop_strings;  // for the output stream
  Json chunk_metadata = Json::object();   // added to the metadata of every piece of its answer
};

// Where one request of one partition stands; the conductor's, given to the model to decide on.
struct RequestProgress {
  const PreparedRequest& request;
  std::string_view partition;
  std::string graph_walk;  // the walk that just ended; empty before the first
  int64_t fwd_index = 0;   // walks that ended in this partition
  int64_t num_generated_tokens = 0;
  NamedTensors& persist_signals;  // request-wide: what walks kept, and PreparedRequest::inputs
};

// The next walk of one partition.
struct ForwardPassArgs {
  bool request_done = false;  // no further walk: the partition is finished, or takes no part
  std::string graph_walk;
  NamedTensors inputs;  // first values of the walk's inputs; an empty list is a trigger
  std::vector<std::string> unpersist;  // persistent signals that nobody will read again
  Json step_metadata;                  // merged into the partition's; null: nothing new
  ValueMap values;                     // likewise
  bool requires_cfg = false;
  std::vector<std::pair<std::string, int64_t>> loop_limits;  // this request's own bounds by loop
};

// A generated token with its log-probability, and the likeliest tokens at its place.
struct TokenLogprob {
  struct Candidate {
    std::string bytes;  // of the token; may be a part of a character
    double logprob = 0.0;
  };

  Candidate token;
  bool is_shown = true;        // false: a special token, which the text leaves out
  std::vector<Candidate> top;  // likeliest first
};

// One piece of an answer, as a client gets it.
struct OutputChunk {
  Modality modality = Modality::kText;
  std::string data;                // UTF-8 text, PNG, MP4, PCM16, f32 …
  Json metadata = Json::object();  // sizes, rates, shapes
  int64_t num_tokens = 0;          // generated tokens behind it
  std::string finish_reason;       // "stop", "length" when this ends the text; else empty
  // Of the tokens behind it, where the request asked for them.
  std::vector<TokenLogprob> logprobs{};
};

// Turns what a request's walks emit into chunks; keeps what it needs in between (undecoded bytes,
// stop strings). One request, one thread at a time.
class OutputStream {
 public:
  virtual ~OutputStream() = default;

  // Tensors that one edge emitted to the client.
  virtual std::vector<OutputChunk> write(Modality modality,
                                         std::string_view edge,
                                         const TensorList& tensors) = 0;

  // The request ended by itself: what is still held back.
  virtual std::vector<OutputChunk> finish() = 0;

  // True once nothing further will be shown (a stop string matched): the request may be ended.
  virtual bool is_finished() const { return false; }
};

// ---- the model

// Facts for clients: /v1/models, inspect, the page.
struct ModelDescription {
  std::string name;    // as served
  std::string family;  // folder under models/
  std::vector<Modality> input_modalities;
  std::vector<Modality> output_modalities;
  ParameterTable parameters;
  int64_t max_model_len = 0;     // tokens; 0 where it has no meaning
  Json config = Json::object();  // what inspect prints
};

// One line of the memory plan.
struct MemoryItem {
  std::string what;  // "dit weights", "kv pool"
  int64_t size_bytes = 0;
};

// Called as weights are read: bytes done of all.
using LoadProgress = std::function<void(std::string_view what, int64_t done, int64_t all)>;

struct LoadContext {
  ThreadPool& pool;
  Stream& stream;
  DType activation_dtype = DType::kF32;
  // "": weights as they are stored, with the fastest arithmetic for their type; "exact": products
  // in f32 whatever the type; "int8": matrices are stored as 8-bit integers.
  std::string quantization;
  LoadProgress progress;  // may be empty
};

// A model family's answer to the engine, the conductor and the server. const after load, and
// thread-safe from then on; get_submodule is load-time only.
class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelDescription& description() const = 0;

  virtual graph::ModelGraph get_graph_walk_graphs() const = 0;

  virtual std::vector<NodeResourceSpec> get_node_resources() const = 0;

  // The activations' type where the operator leaves it to the model ("auto").
  virtual DType default_activation_dtype() const { return DType::kF32; }

  // Labels of the cache streams and plans that submodules name: label i of this list is LabelId i
  // in every engine. The first is "main".
  virtual std::vector<std::string> get_labels() const { return {"main"}; }

  // Loads one node's weights and builds its submodule. Throws Error(kInvalidArgument) naming file
  // and tensor when the checkpoint is not what the config says.
  virtual std::unique_ptr<NodeSubmodule> get_submodule(std::string_view node,
                                                       const LoadContext& context) = 0;

  // Whether the checkpoint has all that the configuration says, in the right shapes and types.
  // Throws as get_submodule does. The default loads one node after the other; models that can tell
  // from the files' headers do.
  virtual void check_weights(const LoadContext& context);

  // What the listed nodes will need besides their KV caches, and what the steps of one request of
  // the usual size take while they run, without loading anything.
  virtual std::vector<MemoryItem> memory_plan(const std::vector<std::string>& nodes,
                                              const LoadContext& context) const = 0;

  // Text and media to tensors. Throws Error(kInvalidArgument) for requests the model cannot take.
  // Any thread, several at once.
  virtual PreparedRequest process_prompt(const ModelRequest& request) const = 0;

  // The same for input that is answered in several parts, one after the other, such as sound longer
  // than the model hears at once. Never empty; by default process_prompt's.
  virtual std::vector<PreparedRequest> process_parts(const ModelRequest& request) const;

  // The request's first walk in this partition, then each next one when a walk ended.
  // Conductor thread.
  virtual ForwardPassArgs get_initial_forward_pass_args(RequestProgress& progress) const = 0;
  virtual ForwardPassArgs get_partition_forward_pass_args(RequestProgress& progress) const = 0;

  virtual std::unique_ptr<OutputStream> make_output_stream(
      const PreparedRequest& request) const = 0;

  // Text tools of the server; the default throws Error(kUnsupported).
  virtual std::vector<int32_t> tokenize(std::string_view text, bool add_special_tokens) const;
  virtual std::string detokenize(const std::vector<int32_t>& ids) const;

  // The text that an answer to a prompt of these ids goes on from: no special tokens, no half
  // characters. By default detokenize().
  virtual std::string prompt_text(const std::vector<int32_t>& ids) const;
};

}  // namespace mstar

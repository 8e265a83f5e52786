#include "mstar/cli/loaded_model.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/memory_check.h"

namespace mstar {

namespace {

[[noreturn]] void fail_choice(std::string_view flag,
                              const std::string& found,
                              std::string_view expected) {
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[command line] --", flag, ": found \"", found, "\", expected ", expected));
}

// Nothing: the model decides.
std::optional<DType> parse_dtype(const std::string& word) {
  if (word == "auto") {
    return std::nullopt;
  }
  if (word == "float32" || word == "f32") {
    return DType::kF32;
  }
  if (word == "bfloat16" || word == "bf16") {
    return DType::kBF16;
  }
  fail_choice("dtype", word, "auto, float32 or bfloat16");
}

// As resources.KEY.dtype of a deployment; "": the model's own choice.
std::string parse_kv_dtype(const std::string& word) {
  if (word == "auto") {
    return "";
  }
  if (word == "float32" || word == "f32") {
    return "f32";
  }
  if (word == "bfloat16" || word == "bf16") {
    return "bf16";
  }
  fail_choice("kv-cache-dtype", word, "auto, float32 or bfloat16");
}

}  // namespace

std::vector<Flag> model_flags() {
  return {
      {.name = "config", .value = "FILE", .help = "deployment (configs/*.yaml)"},
      {.name = "max-model-len", .value = "TOKENS", .help = "longest prompt and answer together"},
      {.name = "max-num-seqs", .value = "N", .help = "requests on the workers at the same time"},
      {.name = "max-num-queued-reqs",
       .value = "N",
       .fallback = "256",
       .help = "requests that may wait"},
      {.name = "max-num-batched-tokens",
       .value = "N",
       .fallback = "512",
       .help = "tokens of a prefill step; longer prompts run in chunks"},
      {.name = "dtype",
       .value = "TYPE",
       .fallback = "auto",
       .help = "of activations: float32, bfloat16, or auto, what suits model and processor"},
      {.name = "quantization",
       .value = "KIND",
       .fallback = "none",
       .help = "none, int8 or exact (f32 products for q8_0 and q4_0)"},
      {.name = "outputs",
       .value = "LIST",
       .help = "modalities to serve, of those the model makes; only what they need is loaded"},
      {.name = "max-image-pixels",
       .value = "N",
       .help = "largest picture and frame of a film, sent or asked for"},
      {.name = "max-video-frames", .value = "N", .help = "longest film, sent or asked for"},
      {.name = "max-video-mb", .value = "MB", .help = "largest film that is sent"},
      {.name = "memory-gb",
       .value = "GB",
       .help = "that weights, pools and activations may take; what is free unless given"},
      {.name = "kv-cache-dtype",
       .value = "TYPE",
       .fallback = "auto",
       .help = "of keys and values: auto (the model's choice), float32 or bfloat16"},
      {.name = "enable-prefix-caching",
       .help = "prompts that begin alike, and later turns of a conversation, share their pages"},
      {.name = "trace", .value = "FILE", .help = "write what runs when, for Perfetto or Chrome"},
      {.name = "device", .value = "DEVICE", .fallback = "cpu", .help = "cpu"},
      {.name = "threads", .value = "N", .fallback = "0", .help = "of compute; 0: all processors"},
      {.name = "enforce-eager", .help = "no captured graphs"},
      {.name = "help", .help = "this text"},
  };
}

std::string find_default_model() {
  namespace fs = std::filesystem;
  constexpr int kLevels = 4;  // build/release/bin/mstar stands three below the repository
  std::error_code ignored;
  std::vector<fs::path> folders{"."};
  fs::path above = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (int i = 0; i < kLevels && !above.empty(); ++i, above = above.parent_path()) {
    folders.push_back(above);
    folders.push_back(above / "share" / "mstar");
  }
  for (const fs::path& folder : folders) {
    const fs::path model = folder / "models" / "shapes";
    if (fs::is_regular_file(model / "model_index.json", ignored)) {
      return model.lexically_normal().string();
    }
  }
  return "";
}

bool looks_like_model(const std::string& word) {
  std::error_code ignored;
  return word.ends_with(".gguf") || word.starts_with("/") || word.starts_with("./") ||
         std::filesystem::exists(word, ignored);
}

OpenedModel open_from_flags(const Flags& flags, const std::string& path) {
  OpenedModel out;
  if (flags.has("config")) {
    out.deployment = read_deployment(flags.get("config"));
  }
  if (!path.empty()) {
    out.deployment.model = path;
  }
  if (out.deployment.model.empty()) {
    out.deployment.model = find_default_model();
  }
  if (out.deployment.model.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "[command line] no model: give a checkpoint folder, a .gguf file, or --config "
                "(models/shapes, the default, is not beside this program)");
  }
  if (flags.has("max-model-len")) {
    out.deployment.max_seq_len = flags.get_int("max-model-len", 2, int64_t{1} << 24);
  }
  if (out.deployment.max_seq_len > 0) {
    out.deployment.model_kwargs.set("max_model_len", out.deployment.max_seq_len);
  }
  if (flags.has("max-num-seqs")) {
    out.deployment.max_concurrent_requests = flags.get_int("max-num-seqs", 1, 4096);
  }
  RuntimeOptions& options = out.options;
  options.max_queued_requests = flags.get_int("max-num-queued-reqs", 0, 1 << 20);
  options.max_batch_tokens = flags.get_int("max-num-batched-tokens", 16, 1 << 20);
  options.num_threads = static_cast<int>(flags.get_int("threads", 0, 1024));
  const std::optional<DType> dtype = parse_dtype(flags.get("dtype"));
  options.engine.graph_capture = !flags.get_bool("enforce-eager");
  options.engine.max_num_requests = static_cast<int32_t>(
      std::max<int64_t>(options.engine.max_num_requests, out.deployment.max_concurrent_requests));
  const std::string& quantization = flags.get("quantization");
  if (quantization != "none" && quantization != "int8" && quantization != "exact") {
    fail_choice("quantization", quantization, "none, int8 or exact");
  }
  options.engine.quantization = quantization == "none" ? "" : quantization;
  options.memory_bytes = flags.has("memory-gb")
                             ? static_cast<int64_t>(flags.get_double("memory-gb", 0.001, 1e6) * 1e9)
                             : available_memory();
  if (flags.has("outputs")) {
    Json outputs = Json::array();
    for (const std::string& word : split_list(flags.get("outputs"))) {
      outputs.push_back(word);
    }
    out.deployment.model_kwargs.set("output_modalities", std::move(outputs));
  }
  // Models that read and make pictures know these; others refuse them by name.
  Json& kwargs = out.deployment.model_kwargs;
  if (flags.has("max-image-pixels")) {
    kwargs.set("max_image_pixels", flags.get_int("max-image-pixels", 256, int64_t{1} << 40));
  }
  if (flags.has("max-video-frames")) {
    kwargs.set("max_video_frames", flags.get_int("max-video-frames", 1, int64_t{1} << 40));
  }
  if (flags.has("max-video-mb")) {
    kwargs.set("max_video_bytes", flags.get_int("max-video-mb", 1, 1 << 20) << 20);
  }
  if (flags.get("device") != "cpu") {
    fail_choice("device", flags.get("device"), "cpu");
  }
  const std::string kv_dtype = parse_kv_dtype(flags.get("kv-cache-dtype"));
  out.model = open_model(out.deployment.model, out.deployment.model_kwargs);
  options.engine.activation_dtype = dtype.value_or(out.model->default_activation_dtype());
  for (const NodeResourceSpec& resource : out.model->get_node_resources()) {
    if (!std::holds_alternative<KVSpec>(resource.spec)) {
      continue;
    }
    if (!kv_dtype.empty()) {
      out.deployment.resources[resource.resource_key].set("dtype", kv_dtype);
    }
  }
  if (flags.get_bool("enable-prefix-caching")) {
    enable_prefix_caching(out);
  }
  if (flags.has("trace")) {
    out.trace = std::make_unique<TraceWriter>(flags.get("trace"));
    options.listeners.push_back(out.trace.get());
  }
  return out;
}

void enable_prefix_caching(OpenedModel& opened) {
  for (const NodeResourceSpec& resource : opened.model->get_node_resources()) {
    if (std::holds_alternative<KVSpec>(resource.spec)) {
      opened.deployment.resources[resource.resource_key].set("prefix_cache", true);
    }
  }
}

LoadedModel load_model(OpenedModel opened, ProgressBar& bar) {
  LoadedModel loaded{.opened = std::move(opened), .runtime = nullptr, .service = nullptr};
  RuntimeOptions options = loaded.opened.options;
  options.engine.progress = [&bar](std::string_view what, int64_t done, int64_t all) {
    bar.show(str_cat("load ", what), done, all, "B");
  };
  loaded.runtime =
      std::make_unique<Runtime>(*loaded.opened.model, loaded.opened.deployment, options);
  loaded.service = std::make_unique<Service>(
      *loaded.opened.model, loaded.runtime->conductor(), loaded.opened.service);
  bar.clear();
  return loaded;
}

}  // namespace mstar

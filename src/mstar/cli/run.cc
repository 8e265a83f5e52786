// `mstar run`: one request in this process.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/cli/commands.h"
#include "mstar/cli/loaded_model.h"
#include "mstar/media/audio.h"
#include "mstar/media/image.h"
#include "mstar/server/encoding.h"
#include "mstar/server/http/message.h"
#include "mstar/server/openai/video_stream.h"

namespace mstar {

namespace {

using Clock = std::chrono::steady_clock;

struct RunResult {
  std::string text;
  std::string media;  // of the other modality
  Json metadata = Json::object();
  Completion completion;
  double first_chunk_seconds = 0.0;
  double seconds = 0.0;
};

// Prints text as it comes and waits for the end. The model's threads write, the main one waits.
class RunSink final : public ChunkSink {
 public:
  // `wanted`: of the media that come, the one that is kept.
  RunSink(ProgressBar& bar, Modality wanted, bool print)
      : bar_(bar), wanted_(wanted), print_(print) {}

  void on_chunk(OutputChunk chunk) override {
    const std::lock_guard lock(mutex_);
    if (result_.first_chunk_seconds == 0.0) {
      result_.first_chunk_seconds = elapsed();
    }
    if (chunk.modality != Modality::kText) {
      if (chunk.modality != wanted_) {
        return;
      }
      result_.media += chunk.data;
      result_.metadata = chunk.metadata;
      return;
    }
    result_.text += chunk.data;
    if (print_ && !chunk.data.empty()) {
      bar_.clear();
      std::fwrite(chunk.data.data(), 1, chunk.data.size(), stdout);
      std::fflush(stdout);
    }
  }

  void on_progress(std::string_view loop, int64_t iteration, int64_t limit) override {
    if (limit > 0 && !print_) {  // a text being printed is progress enough
      bar_.show(loop, iteration, limit, "steps");
    }
  }

  void on_done(const Completion& completion) override {
    const std::lock_guard lock(mutex_);
    result_.completion = completion;
    result_.seconds = elapsed();
    ended_ = true;
    changed_.notify_all();
  }

  void on_error(ErrorCode code, const std::string& message) override {
    const std::lock_guard lock(mutex_);
    error_.emplace(code, message);
    ended_ = true;
    changed_.notify_all();
  }

  RunResult wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    bar_.clear();
    if (error_) {
      throw *error_;
    }
    return std::move(result_);
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  ProgressBar& bar_;
  const Modality wanted_;
  const bool print_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  RunResult result_;
  std::optional<Error> error_;
  bool ended_ = false;
};

std::vector<Flag> run_flags() {
  std::vector<Flag> flags = model_flags();
  const std::vector<Flag> own = {
      {.name = "system", .value = "TEXT", .help = "a system message before the prompt"},
      {.name = "raw", .help = "no chat template: the prompt is text to go on with"},
      {.name = "image", .value = "FILE", .help = "an image before the prompt", .repeats = true},
      {.name = "video", .value = "FILE", .help = "a video before the prompt", .repeats = true},
      {.name = "audio", .value = "FILE", .help = "a sound before the prompt", .repeats = true},
      {.name = "output", .value = "MODALITY", .help = "text, image, video, audio, action"},
      {.name = "out", .value = "FILE", .help = "where the answer goes; its name tells what it is"},
      {.name = "json", .help = "one JSON document at the end"},
  };
  flags.insert(flags.begin(), own.begin(), own.end());
  return flags;
}

Modality output_modality(const Flags& flags, const ModelDescription& model) {
  if (flags.has("output")) {
    return parse_modality(flags.get("output"), "--output");
  }
  const Modality by_name =
      flags.has("out") ? media_modality("", flags.get("out")) : Modality::kNone;
  if (by_name != Modality::kNone) {
    return by_name;
  }
  const auto& made = model.output_modalities;
  const bool makes_text = std::ranges::find(made, Modality::kText) != made.end();
  return makes_text || made.empty() ? Modality::kText : made.front();
}

// Model parameters are options too: --temperature 0.5.
Json read_parameters(const Flags& flags, const ModelDescription& model) {
  std::vector<std::string> known;
  for (const RequestParameter& parameter : model.parameters.parameters()) {
    std::string name = parameter.name;
    std::ranges::replace(name, '_', '-');
    known.push_back(name);
  }
  for (const Flag& flag : run_flags()) {
    known.push_back(flag.name);
  }
  Json out = Json::object();
  for (const auto& [option, text] : flags.others()) {
    std::string name = option;
    std::ranges::replace(name, '-', '_');
    const RequestParameter* parameter = model.parameters.find(name);
    if (parameter == nullptr) {
      const std::string near = nearest_name(option, known);
      throw Error(
          ErrorCode::kInvalidArgument,
          near.empty()
              ? str_cat("[command line] unknown flag --", option, "; see mstar run --help")
              : str_cat("[command line] unknown flag --", option, "; did you mean --", near, "?"));
    }
    // Text that is no JSON is a string where anything goes (--stop END).
    if (parameter->type == RequestParameter::Type::kAny && text.find_first_of("[{\"") != 0) {
      out.set(parameter->name, text);
    } else {
      out.set(parameter->name, parse_parameter(*parameter, text));
    }
  }
  return out;
}

// `mstar run MODEL "PROMPT"`; the model may be left out, and a lone word is a model only if it can
// be nothing else.
struct Words {
  std::string model;
  std::string prompt;
};

Words read_words(const Flags& flags) {
  const std::vector<std::string>& given = flags.positionals();
  if (given.empty() || given.size() > 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "[command line] run: expected a model (optional) and one prompt (in quotes)");
  }
  if (given.size() == 2) {
    return {given[0], given[1]};
  }
  return looks_like_model(given[0]) ? Words{given[0], ""} : Words{"", given[0]};
}

// Where media go when --out names no file: output.png and the like, in the working directory.
std::string default_out(Modality modality) {
  switch (modality) {
    case Modality::kImage: return "output.png";
    case Modality::kVideo: return "output.mp4";
    case Modality::kAudio: return "output.wav";
    case Modality::kAction: return "output.f32";
    default: return "";
  }
}

ModelRequest read_request(const Flags& flags,
                          const ModelDescription& model,
                          const std::string& prompt) {
  ModelRequest request;
  request.request_id = "run";
  request.raw_prompt = flags.get_bool("raw");
  request.output_modalities = {output_modality(flags, model)};
  request.parameters = read_parameters(flags, model);
  if (request.output_modalities.front() == Modality::kVideo) {
    prefer_mp4(model, request);
  }
  if (flags.has("system")) {
    ChatMessage system;
    system.role = "system";
    system.content.push_back({.text = flags.get("system")});
    request.messages.push_back(std::move(system));
  }
  ChatMessage message;
  message.role = "user";
  for (const char* kind : {"image", "video", "audio"}) {
    for (const std::string& path : flags.get_all(kind)) {
      MediaItem media = media_from_upload(read_text_file(path), path, path);
      message.content.push_back({.modality = media.modality,
                                 .text = "",
                                 .media = static_cast<int>(request.media.size())});
      request.media.push_back(std::move(media));
    }
  }
  if (!prompt.empty()) {
    message.content.push_back({.text = prompt});
  }
  request.messages.push_back(std::move(message));
  return request;
}

std::string lower_extension(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : lower_ascii(std::string_view(path).substr(dot + 1));
}

// Rows of actions as JSON: [[…], …].
std::string action_rows(const RunResult& result) {
  const int64_t columns = result.metadata.at("shape")[1].get_int();
  Json rows = Json::array();
  Json row = Json::array();
  for (size_t offset = 0; offset + sizeof(float) <= result.media.size(); offset += sizeof(float)) {
    float value = 0.0F;
    std::memcpy(&value, result.media.data() + offset, sizeof(value));
    row.push_back(static_cast<double>(value));
    if (static_cast<int64_t>(row.size()) == columns) {
      rows.push_back(std::exchange(row, Json::array()));
    }
  }
  return rows.dump() + "\n";
}

std::string sound_file(const RunResult& result, const std::string& extension) {
  const Json* rate = result.metadata.find("sample_rate");
  const Json* channels = result.metadata.find("num_channels");
  const std::string word = extension == "ogg" ? "opus" : extension;
  return write_audio(from_pcm16(result.media,
                                rate != nullptr ? rate->get_int() : 24000,
                                channels != nullptr ? channels->get_int() : 1),
                     parse_audio_format(word).value_or(AudioFormat::kWav));
}

// The answer in the format that the file's name asks for.
std::string file_bytes(const std::string& path, const RunResult& result, Modality modality) {
  const std::string extension = lower_extension(path);
  switch (modality) {
    case Modality::kText: return result.text;
    case Modality::kAudio: return sound_file(result, extension);
    case Modality::kImage:
      return extension == "jpg" || extension == "jpeg" ? encode_jpeg(decode_image(result.media))
                                                       : result.media;
    case Modality::kAction: return extension == "json" ? action_rows(result) : result.media;
    default: return result.media;
  }
}

void write_file(const std::string& path, const RunResult& result, Modality modality) {
  const std::string bytes = file_bytes(path, result, modality);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    throw Error(ErrorCode::kUnavailable, str_cat("[run] cannot write \"", path, "\""));
  }
}

Json result_json(const RunResult& result, const std::string& path) {
  const Completion& completion = result.completion;
  Json out = Json::object({{"text", result.text},
                           {"finish_reason", completion.finish_reason},
                           {"num_prompt_tokens", completion.num_prompt_tokens},
                           {"num_generated_tokens", completion.num_generated_tokens},
                           {"first_chunk_seconds", result.first_chunk_seconds},
                           {"seconds", result.seconds}});
  if (!path.empty()) {
    out.set("out", path);
  }
  if (result.metadata.size() > 0) {
    out.set("metadata", result.metadata);
  }
  return out;
}

std::string help_text(const Flags& flags) {
  std::string text = str_cat("mstar run [MODEL] \"PROMPT\" [options]\n\n", flags.help());
  if (flags.positionals().empty()) {
    return text + "\nThe model's parameters are options too: mstar run MODEL --help lists them.\n";
  }
  const OpenedModel opened = open_from_flags(flags, read_words(flags).model);
  return text + "\nParameters of this model:\n" +
         opened.model->description().parameters.help_text();
}

}  // namespace

int run_command(const std::vector<std::string>& words) {
  Flags flags("run", run_flags(), true);
  flags.parse(words);
  if (flags.get_bool("help")) {
    std::fputs(help_text(flags).c_str(), stdout);
    return 0;
  }
  const Words given = read_words(flags);
  OpenedModel opened = open_from_flags(flags, given.model);
  ModelRequest request = read_request(flags, opened.model->description(), given.prompt);
  const Modality modality = request.output_modalities.front();
  const std::string path = flags.has("out") ? flags.get("out") : default_out(modality);
  const bool as_json = flags.get_bool("json");
  ProgressBar bar(!as_json);
  LoadedModel loaded = load_model(std::move(opened), bar);
  auto sink = std::make_shared<RunSink>(bar, modality, modality == Modality::kText && !as_json);
  loaded.service->submit(std::move(request), sink, true);
  const RunResult result = sink->wait();
  if (!path.empty()) {
    write_file(path, result, modality);
  }
  if (as_json) {
    std::printf("%s\n", result_json(result, path).dump(2).c_str());
  } else if (modality == Modality::kText) {
    std::fputc('\n', stdout);
  } else {
    std::fprintf(
        stderr, "%s: %zu bytes, %.1f s\n", path.c_str(), result.media.size(), result.seconds);
  }
  return 0;
}

}  // namespace mstar

// `mstar run`: one request in this process.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/cli/commands.h"
#include "mstar/cli/conversation.h"
#include "mstar/cli/loaded_model.h"
#include "mstar/cli/run_output.h"
#include "mstar/cli/run_sink.h"
#include "mstar/server/encoding.h"
#include "mstar/server/openai/video_stream.h"

namespace mstar {

namespace {

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
      {.name = "json-schema",
       .value = "FILE",
       .help = "the answer is a JSON document of the schema in this file"},
      {.name = "json", .help = "one JSON document at the end"},
      {.name = "interactive", .help = "a conversation, also where input is no terminal"},
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

// The schema in a file as the parameter that servers take.
void add_schema(const std::string& path, const ModelDescription& model, Json& parameters) {
  if (model.parameters.find("response_format") == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "[command line] --json-schema: answers of this model cannot be constrained");
  }
  if (parameters.contains("response_format")) {
    throw Error(ErrorCode::kInvalidArgument,
                "[command line] give either --json-schema or --response-format");
  }
  const Json schema = Json::parse(read_text_file(path), path);
  parameters.set(
      "response_format",
      Json::object({{"type", "json_schema"},
                    {"json_schema", Json::object({{"name", "answer"}, {"schema", schema}})}}));
}

// `mstar run MODEL "PROMPT"`; the model may be left out, and a lone word is a model only if it can
// be nothing else. Without a prompt it is a conversation, or what comes through a pipe.
struct Words {
  std::string model;
  std::string prompt;
};

Words read_words(const Flags& flags) {
  const std::vector<std::string>& given = flags.positionals();
  if (given.size() > 2 || (given.empty() && !flags.has("config"))) {
    throw Error(ErrorCode::kInvalidArgument,
                "[command line] run: expected a model (optional) and one prompt (in quotes)");
  }
  if (given.empty()) {
    return {};
  }
  if (given.size() == 2) {
    return {given[0], given[1]};
  }
  return looks_like_model(given[0]) ? Words{given[0], ""} : Words{"", given[0]};
}

ModelRequest read_request(const Flags& flags,
                          const ModelDescription& model,
                          const std::string& prompt) {
  ModelRequest request;
  request.request_id = "run";
  request.raw_prompt = flags.get_bool("raw");
  request.output_modalities = {output_modality(flags, model)};
  request.parameters = read_parameters(flags, model);
  if (flags.has("json-schema")) {
    add_schema(flags.get("json-schema"), model, request.parameters);
  }
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

bool has_media(const Flags& flags) {
  return flags.has("image") || flags.has("video") || flags.has("audio");
}

// A prompt or media make it one request, and so does an answer that is no text.
bool converses(const Flags& flags, const Words& given, const ModelDescription& model) {
  const bool asked = flags.get_bool("interactive");
  const bool could =
      given.prompt.empty() && !has_media(flags) && !flags.get_bool("raw") &&
      !flags.get_bool("json") && !flags.has("out") &&
      output_modality(flags, model) == Modality::kText &&
      std::ranges::find(model.input_modalities, Modality::kText) != model.input_modalities.end();
  if (asked && !could) {
    throw Error(ErrorCode::kInvalidArgument,
                "[command line] --interactive: needs a model that answers text with text, and "
                "goes without a prompt, media files, --raw, --json and --out");
  }
  return could && (asked || isatty(STDIN_FILENO) == 1);
}

// What a pipe or a file brings, without the newline that ends it.
std::string read_all_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

int run_conversation(const Flags& flags, OpenedModel opened) {
  ModelRequest opening = read_request(flags, opened.model->description(), "");
  opening.messages.pop_back();  // the user's, still empty
  enable_prefix_caching(opened);
  ProgressBar bar(true);
  InterruptGuard interrupts;
  LoadedModel loaded = load_model(std::move(opened), bar);
  converse(loaded, opening, interrupts, bar, std::cin, isatty(STDIN_FILENO) == 1);
  return 0;
}

int run_once(const Flags& flags, OpenedModel opened, const std::string& prompt) {
  ModelRequest request = read_request(flags, opened.model->description(), prompt);
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

std::string help_text(const Flags& flags) {
  std::string text = str_cat(
      "mstar run [MODEL] \"PROMPT\" [options]\nmstar run MODEL [options]            a "
      "conversation\n\n",
      flags.help());
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
  Words given = read_words(flags);
  OpenedModel opened = open_from_flags(flags, given.model);
  if (converses(flags, given, opened.model->description())) {
    return run_conversation(flags, std::move(opened));
  }
  if (given.prompt.empty() && !has_media(flags) && isatty(STDIN_FILENO) == 0) {
    given.prompt = read_all_input();
  }
  return run_once(flags, std::move(opened), given.prompt);
}

}  // namespace mstar

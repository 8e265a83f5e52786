// The `mstar` program.
#include <csignal>
#include <cstdio>
#include <exception>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/commands.h"

namespace mstar {

namespace {

constexpr int kFailure = 1;
constexpr int kWrongInput = 2;  // a bad checkpoint, configuration or command line

constexpr const char* kHelp =
    "mstar: serving of models made of several parts\n"
    "\n"
    "  mstar serve [MODEL]        an HTTP server: OpenAI API and mstar's own\n"
    "  mstar run [MODEL] \"PROMPT\" one request, without a server\n"
    "  mstar run MODEL            a conversation on the terminal\n"
    "  mstar inspect MODEL        configuration, parameters, walks, memory plan\n"
    "  mstar check MODEL          whether it could be served: configuration, files, placement\n"
    "  mstar bench serve          load a server and measure it\n"
    "  mstar COMMAND --help       the options of a command\n"
    "  mstar --version\n"
    "\n"
    "MODEL is a checkpoint folder or a .gguf file; without one, serve and run take models/shapes,\n"
    "the tiny model that comes with the sources. Every option is also read from the\n"
    "environment: --max-model-len from MSTAR_MAX_MODEL_LEN.\n";

int dispatch(std::vector<std::string> words) {
  if (words.empty() || words[0] == "help" || words[0] == "--help" || words[0] == "-h") {
    std::fputs(kHelp, stdout);
    return words.empty() ? kWrongInput : 0;
  }
  const std::string command = words[0];
  words.erase(words.begin());
  if (command == "--version" || command == "version") {
    std::printf("mstar %s\n", version_text().c_str());
    return 0;
  }
  if (command == "serve") {
    return serve_command(words);
  }
  if (command == "run") {
    return run_command(words);
  }
  if (command == "inspect") {
    return inspect_command(words);
  }
  if (command == "check") {
    return check_command(words);
  }
  if (command == "bench" && !words.empty() && words[0] == "serve") {
    words.erase(words.begin());
    return bench_serve_command(words);
  }
  const std::string near =
      nearest_name(command, {"serve", "run", "inspect", "check", "bench", "version", "help"});
  throw Error(
      ErrorCode::kInvalidArgument,
      command == "bench" ? std::string("[command line] bench: expected \"bench serve\"")
      : near.empty()
          ? str_cat("[command line] unknown command \"", command, "\"; see mstar help")
          : str_cat(
                "[command line] unknown command \"", command, "\"; did you mean \"", near, "\"?"));
}

bool is_wrong_input(ErrorCode code) {
  return code == ErrorCode::kInvalidArgument || code == ErrorCode::kNotFound ||
         code == ErrorCode::kUnsupported || code == ErrorCode::kTooLarge ||
         code == ErrorCode::kUnsupportedMedia;
}

}  // namespace

}  // namespace mstar

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return mstar::dispatch(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const mstar::Error& error) {
    std::fprintf(stderr, "mstar: %s\n", error.what());
    return mstar::is_wrong_input(error.code()) ? mstar::kWrongInput : mstar::kFailure;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mstar: %s\n", error.what());
    return mstar::kFailure;
  }
}

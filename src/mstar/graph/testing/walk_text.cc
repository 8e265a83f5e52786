#include "mstar/graph/testing/walk_text.h"

#include <algorithm>
#include <sstream>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar::graph::testing {
namespace {

[[noreturn]] void fail(const TextLine& line, std::string_view what) {
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[line ", line.number, "] ", what, ": ", str_join(line.words, " ")));
}

class ModelReader {
 public:
  explicit ModelReader(std::vector<TextLine>& lines) : lines_(lines) {}

  ModelGraph read() {
    ModelGraph model;
    while (next_ < lines_.size()) {
      const TextLine& line = lines_[next_];
      const std::string& word = line.words[0];
      if (word == "walk") {
        model.walks.push_back(read_walk());
      } else if (word == "partition") {
        model.topology.partitions.push_back({without_colon(line, 1), rest(line, 2)});
        ++next_;
      } else if (word == "connection") {
        model.topology.connections.push_back(read_connection(line));
        ++next_;
      } else {
        break;
      }
    }
    lines_.erase(lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(next_));
    return model;
  }

 private:
  static const std::string& word_at(const TextLine& line, size_t index) {
    if (index >= line.words.size()) fail(line, "too few words");
    return line.words[index];
  }

  static std::string without_colon(const TextLine& line, size_t index) {
    std::string word = word_at(line, index);
    if (word.back() == ':') word.pop_back();
    return word;
  }

  static std::vector<std::string> rest(const TextLine& line, size_t from) {
    from = std::min(from, line.words.size());
    return {line.words.begin() + static_cast<std::ptrdiff_t>(from), line.words.end()};
  }

  bool has_child(int indent) const {
    return next_ < lines_.size() && lines_[next_].indent > indent;
  }

  WalkGraph read_walk() {
    const TextLine line = lines_[next_++];
    WalkGraph walk{without_colon(line, 1), rest(line, 2), {}};
    while (has_child(line.indent)) walk.sections.push_back(read_section());
    return walk;
  }

  Section read_section() {
    const TextLine line = lines_[next_];
    const std::string& word = line.words[0];
    if (word == "node") return read_node();
    if (word == "loop") return read_loop();
    ++next_;
    std::vector<Section> sections;
    while (has_child(line.indent)) sections.push_back(read_section());
    if (word == "parallel") return Parallel{std::move(sections)};
    if (word == "sequential") return Sequential{std::move(sections)};
    fail(line, "expected node, loop, parallel or sequential");
  }

  Section read_node() {
    const TextLine line = lines_[next_++];
    Node made = node(without_colon(line, 1));
    bool in_options = line.words[1].back() != ':';
    for (std::string word : rest(line, 2)) {
      if (in_options) {
        in_options = word.back() != ':';
        if (word.rfind("no_async", 0) != 0) fail(line, "expected no_async or ':'");
        made.enable_async_scheduling = false;
      } else if (word[0] == '~') {
        made.needs_stream(word.substr(1));
      } else {
        made.needs({word});
      }
    }
    while (has_child(line.indent)) made.makes(read_edge(lines_[next_++], 0).second);
    return made;
  }

  Section read_loop() {
    const TextLine line = lines_[next_++];
    const std::string& times = word_at(line, 2);
    Loop made;
    made.name = line.words[1] == "_" ? "" : line.words[1];
    made.max_iters = times == "until_stopped" ? kUntilStopped : std::stoi(times.substr(1));
    while (has_child(line.indent)) {
      const std::string word = lines_[next_].words[0];
      if (word != "last" && word != "all") {
        made.sections.push_back(read_section());
        continue;
      }
      auto [body_output, given] = read_edge(lines_[next_++], 1);
      auto& outputs = word == "last" ? made.outputs : made.accumulated_outputs;
      outputs.push_back({body_output, given});
    }
    return made;
  }

  // NAME [as OTHER] -> TARGET... ; the edge is called OTHER.
  static std::pair<std::string, Edge> read_edge(const TextLine& line, size_t at) {
    const std::string source = word_at(line, at++);
    std::string name = source;
    if (word_at(line, at) == "as") {
      name = word_at(line, at + 1);
      at += 2;
    }
    if (word_at(line, at++) != "->") fail(line, "expected ->");
    Edge made = edge(name);
    const std::string target = word_at(line, at++);
    const size_t dot = target.find('.');
    if (target == "client") {
      made.to_client(read_modality(line, word_at(line, at++)));
    } else if (target[0] == '~') {
      if (dot == std::string::npos) fail(line, "expected ~partition.node");
      made.stream_to(target.substr(1, dot - 1), target.substr(dot + 1));
    } else if (dot != std::string::npos) {
      made.to(target.substr(0, dot), target.substr(dot + 1));
    } else if (target != "nowhere") {
      made.to(target);
    }
    for (; at < line.words.size(); ++at) {
      if (line.words[at] == "kept") {
        made.kept();
      } else if (line.words[at] == "token") {
        made.counts_as_token();
      } else {
        fail(line, "expected kept or token");
      }
    }
    return {source, made};
  }

  static Modality read_modality(const TextLine& line, const std::string& word) {
    for (int value = 1; value <= static_cast<int>(Modality::kTensor); ++value) {
      if (word == to_string(static_cast<Modality>(value))) return static_cast<Modality>(value);
    }
    fail(line, "unknown modality");
  }

  static Connection read_connection(const TextLine& line) {
    const std::string& kind = word_at(line, 4);
    const int first = std::stoi(word_at(line, 5));
    ChunkPolicy policy;
    if (kind == "fixed") {
      policy = ChunkPolicy::fixed(first, line.words.back() == "continue_after_done");
    } else if (kind == "sliding_window") {
      policy = ChunkPolicy::sliding_window(first, std::stoi(word_at(line, 6)));
    } else if (kind == "left_context") {
      policy = ChunkPolicy::left_context(first, std::stoi(word_at(line, 6)));
    } else {
      fail(line, "unknown chunk policy");
    }
    return {line.words[1], line.words[2], line.words[3], policy};
  }

  std::vector<TextLine>& lines_;
  size_t next_ = 0;
};

}  // namespace

std::vector<TextLine> read_lines(std::string_view text) {
  std::vector<TextLine> lines;
  std::istringstream stream{std::string(text)};
  std::string raw;
  for (int number = 1; std::getline(stream, raw); ++number) {
    raw = raw.substr(0, raw.find('#'));
    TextLine line{number, static_cast<int>(raw.find_first_not_of(' ')), {}};
    std::istringstream words(raw);
    for (std::string word; words >> word;) line.words.push_back(word);
    if (!line.words.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

ModelGraph read_model(std::vector<TextLine>& lines) {
  return ModelReader(lines).read();
}

}  // namespace mstar::graph::testing

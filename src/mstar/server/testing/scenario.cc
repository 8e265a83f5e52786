#include "mstar/server/testing/scenario.h"

#include <charconv>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"

namespace mstar::testing {

namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The value at "a.b[0].c", or null.
const Json* find_path(const Json& json, std::string_view path) {
  const Json* at = &json;
  while (!path.empty() && at != nullptr) {
    if (path.front() == '[') {
      size_t index = 0;
      const size_t end = path.find(']');
      std::from_chars(path.data() + 1, path.data() + end, index);
      at = at->is_array() && index < at->size() ? &(*at)[index] : nullptr;
      path.remove_prefix(end + 1);
      continue;
    }
    if (path.front() == '.') {
      path.remove_prefix(1);
    }
    const size_t end = std::min(path.find_first_of(".["), path.size());
    at = at->find(path.substr(0, end));
    path.remove_prefix(end);
  }
  return at;
}

std::string check_json(const std::string& text, const std::string& body) {
  const size_t blank = text.find(' ');
  const std::string path = text.substr(0, blank);
  const char relation = text.at(blank + 1);
  const std::string expected = text.substr(blank + 3);
  Json json;
  try {
    json = Json::parse(body, "body");
  } catch (const Error& error) {
    return error.what();
  }
  const Json* found = find_path(json, path);
  if (found == nullptr) {
    return str_cat("no ", path);
  }
  const bool good = relation == '=' ? *found == Json::parse(expected, "expectation")
                                    : found->is_string() &&
                                          found->get_string().find(expected) != std::string::npos;
  return good ? "" : str_cat(path, " is ", found->dump());
}

std::string check_order(const std::string& text, const std::string& body) {
  size_t at = 0;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(" | ", begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    at = body.find(word, at);
    if (at == std::string::npos) {
      return str_cat("no ", word, " behind the others");
    }
    at += word.size();
    begin = end + 3;
  }
  return "";
}

std::string check(const Scenario::Expectation& expectation, const HttpResponse& response) {
  const std::string& text = expectation.text;
  if (expectation.kind == "status") {
    return str_cat(response.status) == text ? "" : str_cat("status is ", response.status);
  }
  if (expectation.kind == "header") {
    const size_t colon = text.find(": ");
    const std::string_view value = response.headers.get(text.substr(0, colon));
    return value.starts_with(text.substr(colon + 2)) ? "" : str_cat("header is \"", value, "\"");
  }
  if (expectation.kind == "json") {
    return check_json(text, response.body);
  }
  if (expectation.kind == "order") {
    return check_order(text, response.body);
  }
  const bool found = response.body.find(text) != std::string::npos;
  return found == (expectation.kind == "body") ? "" : "the body is otherwise";
}

// One "### …" section of the file.
class ScenarioReader {
 public:
  explicit ScenarioReader(std::string where) { scenario_.where = std::move(where); }

  void take(const std::string& line, int number) {
    if (line.starts_with("> ")) {
      const size_t blank = std::min(line.find(' ', 2), line.size());
      const std::string kind = line.substr(2, blank - 2);
      const std::string text = blank < line.size() ? line.substr(blank + 1) : "";
      if (kind == "crlf") {
        line_end_ = "\r\n";
      } else {
        scenario_.expectations.push_back({.kind = kind, .text = text, .line = number});
      }
    } else if (!has_target_) {
      const size_t blank = line.find(' ');
      if (blank != std::string::npos) {
        scenario_.call.method = line.substr(0, blank);
        scenario_.call.path = line.substr(blank + 1);
        has_target_ = true;
      }
    } else if (!in_body_ && line.find(": ") != std::string::npos) {
      const size_t colon = line.find(": ");
      scenario_.call.headers.add(line.substr(0, colon), line.substr(colon + 2));
    } else if (!in_body_) {
      in_body_ = true;
    } else {
      body_.push_back(line);
    }
  }

  Scenario finish() {
    while (!body_.empty() && body_.back().empty()) {
      body_.pop_back();
    }
    for (size_t index = 0; index < body_.size(); ++index) {
      const bool last = index + 1 == body_.size() && line_end_ == "\n";
      scenario_.call.body += body_[index] + (last ? "" : line_end_);
    }
    return std::move(scenario_);
  }

 private:
  Scenario scenario_;
  std::vector<std::string> body_;
  std::string line_end_ = "\n";
  bool has_target_ = false;
  bool in_body_ = false;
};

}  // namespace

std::vector<Scenario> read_scenarios(const std::string& path) {
  std::vector<Scenario> scenarios;
  std::optional<ScenarioReader> reader;
  int number = 0;
  for (const std::string& line : split_lines(read_text_file(path))) {
    ++number;
    if (line.starts_with("### ")) {
      if (reader) {
        scenarios.push_back(reader->finish());
      }
      reader.emplace(str_cat(path, ":", number, " ", line.substr(4)));
    } else if (reader) {
      reader->take(line, number);
    }
  }
  if (reader) {
    scenarios.push_back(reader->finish());
  }
  return scenarios;
}

std::string check_scenario(const Scenario& scenario, const HttpResponse& response) {
  for (const Scenario::Expectation& expectation : scenario.expectations) {
    const std::string problem = check(expectation, response);
    if (!problem.empty()) {
      return str_cat(scenario.where,
                     "\nline ",
                     expectation.line,
                     ": ",
                     expectation.kind,
                     " ",
                     expectation.text,
                     ": ",
                     problem,
                     "\n",
                     response.body.substr(0, 2000));
    }
  }
  return "";
}

}  // namespace mstar::testing

#include "mstar/graph/testing/walk_scenario.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar::graph::testing {
namespace {

const char* name_of(DeliverResult result) {
  switch (result) {
    case DeliverResult::kAccepted: return "accepted";
    case DeliverResult::kDuplicate: return "duplicate";
    case DeliverResult::kStale: return "stale";
    case DeliverResult::kNotYet: return "not_yet";
  }
  return "?";
}

const char* name_of(CompleteResult result) {
  switch (result) {
    case CompleteResult::kContinues: return "continues";
    case CompleteResult::kWalkDone: return "walk_done";
    case CompleteResult::kDiscarded: return "discarded";
    case CompleteResult::kMissing: return "missing";
  }
  return "?";
}

const char* name_of(StopResult result) {
  switch (result) {
    case StopResult::kApplied: return "applied";
    case StopResult::kIgnored: return "ignored";
    case StopResult::kNotYet: return "not_yet";
  }
  return "?";
}

std::vector<std::string> cut(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace

WalkScenario::WalkScenario(std::string_view text) : lines_(read_lines(text)) {
  model_ = compile(read_model(lines_));
}

WalkScenario::~WalkScenario() {
  for (auto& [name, state] : states_) {
    for (const Route& route : state.remote) release(route.signal);
  }
}

std::vector<std::string> WalkScenario::run() {
  run_lines(lines_);
  return failures_;
}

void WalkScenario::run_lines(const std::vector<TextLine>& lines) {
  for (size_t at = 0; at < lines.size(); ++at) {
    if (lines[at].words[0] != "repeat") {
      run_line(lines[at]);
      continue;
    }
    const int rounds = std::stoi(lines[at].words.at(1));
    const int indent = lines[at].indent;
    std::vector<TextLine> body;
    while (at + 1 < lines.size() && lines[at + 1].indent > indent) body.push_back(lines[++at]);
    for (int round = 0; round < rounds; ++round) {
      std::vector<TextLine> now = body;
      for (TextLine& line : now) {
        for (std::string& each : line.words) {
          const size_t mark = each.find("$i");
          if (mark != std::string::npos) each.replace(mark, 2, std::to_string(round));
        }
      }
      run_lines(now);
    }
  }
}

void WalkScenario::run_line(const TextLine& line) {
  line_ = &line;
  if (run_walk_command(line) || run_loop_command(line) || run_speculation_command(line) ||
      run_stream_command(line)) {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[line ", line.number, "] unknown command '", line.words[0], "'"));
}

bool WalkScenario::run_walk_command(const TextLine& line) {
  const std::string& command = line.words[0];
  if (command == "start") {
    start(line);
  } else if (command == "give") {
    State& at = state_at(1);
    const PortId port = port_at(at, word(2));
    const Signal signal = signal_of(word(3));
    const DeliverResult result = at.state->deliver(port, signal);
    if (result != DeliverResult::kAccepted) release(signal);
    expect(arrow("accepted"), name_of(result));
  } else if (command == "ready") {
    expect(words_from(2), nodes_of(state_at(1), state_at(1).state->ready()));
  } else if (command == "waits") {
    expect(words_from(2), nodes_of(state_at(1), state_at(1).state->waiting_for_stream()));
  } else if (command == "run") {
    State& at = state_at(1);
    const NodeId node = node_at(at, word(2));
    std::vector<Signal> inputs(at.walk->nodes[node].num_ports);
    if ((at.state->ready() >> node & 1) == 0) {
      expect(word(2), str_cat("not ready; ready are: ", nodes_of(at, at.state->ready())));
      return true;
    }
    at.state->begin(node, inputs);
    std::string seen;
    for (Signal input : inputs) seen += (seen.empty() ? "" : " ") + text_of(input);
    expect(words_from(3), seen);
  } else if (command == "done") {
    done(line);
  } else if (command == "abandon") {
    state_at(1).state->abandon(node_at(state_at(1), word(2)));
  } else if (command == "routed") {
    expect(words_from(1), routed_.empty() ? "none" : routed_);
    routed_.clear();
  } else if (command == "cancel") {
    state_at(1).state->cancel();
  } else if (command == "payloads") {
    expect(word(1), std::to_string(payloads_.num_live()));
  } else {
    return false;
  }
  return true;
}

bool WalkScenario::run_loop_command(const TextLine& line) {
  const std::string& command = line.words[0];
  if (command == "stop") {
    State& at = state_at(1);
    const LoopId loop = loop_at(at, word(2));
    // Any node directly in the loop knows the loop's time.
    NodeId inside = 0;
    while (at.walk->nodes[inside].scope != loop) ++inside;
    LoopTime time = at.state->time_of(inside);
    if (line.words.size() > 4 && word(3) == "at") {
      const std::vector<std::string> iterations = cut(word(4), '.');
      for (size_t level = 0; level < iterations.size(); ++level) {
        time.iterations[level] = static_cast<uint32_t>(std::stoi(iterations[level]));
      }
    }
    const StopResult result = at.state->stop_loop(loop, time, routing_);
    collect(at);
    expect(arrow("applied"), name_of(result));
  } else if (command == "limit") {
    state_at(1).state->limit_loop(loop_at(state_at(1), word(2)), std::stoi(word(3)));
  } else if (command == "iteration") {
    const uint32_t now = state_at(1).state->iteration(loop_at(state_at(1), word(2)));
    expect(word(3), std::to_string(now));
  } else {
    return false;
  }
  return true;
}

bool WalkScenario::run_speculation_command(const TextLine& line) {
  const std::string& command = line.words[0];
  if (command == "speculate" || command == "launch") {
    State& at = state_at(1);
    const bool is_launch = command == "launch";
    const NodeId running = node_at(at, word(is_launch ? 4 : 2));
    std::vector<Speculation> candidates;
    at.state->speculate(running, candidates);
    if (!is_launch) {
      std::string found;
      for (const Speculation& candidate : candidates) {
        found += str_cat(found.empty() ? "" : " ",
                         at.walk->nodes[candidate.node].name,
                         candidate.new_iteration ? "*" : "");
      }
      expect(arrow("none"), found.empty() ? "none" : found);
      return true;
    }
    const NodeId node = node_at(at, word(2));
    for (const Speculation& candidate : candidates) {
      if (candidate.node != node) continue;
      std::vector<Signal> inputs(at.walk->nodes[node].num_ports);
      at.state->begin_speculative(candidate, running, inputs);
      std::string seen;
      for (Signal input : inputs) seen += (seen.empty() ? "" : " ") + text_of(input);
      expect(words_from(5), seen);
      return true;
    }
    expect("a candidate", "none");
  } else if (command == "promote") {
    const bool holds = state_at(1).state->promote(node_at(state_at(1), word(2)));
    expect(arrow("yes"), holds ? "yes" : "no");
  } else if (command == "undo") {
    state_at(1).state->rollback(node_at(state_at(1), word(2)));
  } else {
    return false;
  }
  return true;
}

bool WalkScenario::run_stream_command(const TextLine& line) {
  const std::string& command = line.words[0];
  if (command == "queue") {
    for (const Connection& connection : model_.topology.connections) {
      if (connection.edge_name != word(1)) continue;
      queues_[word(1)] =
          std::make_unique<StreamBuffer>(connection.policy, std::stoi(word(2)), payloads_);
    }
    queue_at(word(1));
  } else if (command == "end") {
    queue_at(word(1)).close();
  } else if (command == "chunk") {
    check_chunk(line);
  } else if (command == "nochunk") {
    const StreamBuffer& queue = queue_at(word(1));
    expect("no chunk", queue.peek().has_value() ? "a chunk" : "no chunk");
    const bool finished = line.words.size() > 2;
    expect(finished ? "finished" : "open", queue.is_finished() ? "finished" : "open");
  } else if (command == "carry") {
    carry(state_at(1), state_at(2));
  } else {
    return false;
  }
  return true;
}

void WalkScenario::start(const TextLine& line) {
  State& at = states_[word(1)];
  at.walk_name = word(2);
  at.walk = &model_.walks[model_.get_walk(word(2))];
  if (at.state == nullptr) at.state = std::make_unique<WalkState>(payloads_);
  uint64_t nodes = at.walk->all_nodes();
  if (line.words.size() > 3) {
    nodes = 0;
    for (size_t index = 4; index < line.words.size(); ++index) {
      nodes |= uint64_t{1} << node_at(at, word(index));
    }
  }
  // Workers of one request number its walks alike: each state counts its own.
  at.state->start(*at.walk, at.num_passes++, nodes);
}

void WalkScenario::done(const TextLine& line) {
  State& at = state_at(1);
  const NodeId node = node_at(at, word(2));
  const auto outputs = at.walk->outputs_of(node);
  std::vector<Signal> made(outputs.size());
  for (size_t index = 3; index < line.words.size() && word(index) != "->"; ++index) {
    const size_t equals = word(index).find('=');
    const std::string name = word(index).substr(0, equals);
    const auto found = std::find_if(
        outputs.begin(), outputs.end(), [&](const Output& output) { return output.name == name; });
    if (found == outputs.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[line ", line.number, "] ", word(2), " makes no '", name, "'"));
    }
    made[static_cast<size_t>(found - outputs.begin())] = signal_of(word(index).substr(equals + 1));
  }
  const CompleteResult result = at.state->complete(node, made, routing_);
  std::string found = name_of(result);
  if (result == CompleteResult::kMissing) found += " " + at.walk->edges[routing_.missing].name;
  collect(at);
  expect(arrow("continues"), found);
}

// Notes what was routed; streams go to their queue, remote values wait for `carry`.
void WalkScenario::collect(State& from) {
  for (const Route& route : routing_.routes) {
    const std::string& edge = from.walk->edges[route.edge].name;
    routed_ += str_cat(
        routed_.empty() ? "" : " ", to_string(route.kind), " ", edge, "=", text_of(route.signal));
    if (route.kind == RouteKind::kRemote) {
      from.remote.push_back(route);
      continue;
    }
    const auto queue = queues_.find(edge);
    if (route.kind != RouteKind::kStream || queue == queues_.end()) {
      release(route.signal);
    } else if (queue->second->push(route.signal.payload) != PushResult::kAccepted) {
      expect("room in the queue", "the queue refuses");
      release(route.signal);
    }
  }
  routing_.clear();
}

void WalkScenario::carry(State& from, State& to) {
  std::vector<Route> kept;
  for (const Route& route : from.remote) {
    const DeliverResult result = to.state->deliver_remote(route.edge, route.time, route.signal);
    if (result == DeliverResult::kNotYet) {
      kept.push_back(route);
    } else if (result != DeliverResult::kAccepted) {
      release(route.signal);
    }
  }
  from.remote = std::move(kept);
}

void WalkScenario::check_chunk(const TextLine& line) {
  StreamBuffer& queue = queue_at(word(1));
  State& at = state_at(2);
  const std::optional<StreamChunk> chunk = queue.peek();
  if (!chunk) {
    expect("a chunk", "none");
    return;
  }
  std::string items;
  for (PayloadId item : chunk->items) {
    payloads_.retain(item);
    items += (items.empty() ? "" : "+") + text_of(Signal::tensors(item));
  }
  expect(word(4), items.empty() ? "empty" : items);
  expect(line.words.back() == "final" ? "final" : "more", chunk->is_final ? "final" : "more");
  const Signal signal =
      items.empty() ? Signal::trigger() : Signal::tensors(payloads_.concat(chunk->items));
  const DeliverResult result = at.state->deliver_stream(port_at(at, word(3)), signal);
  if (result == DeliverResult::kAccepted) {
    queue.pop(*chunk);
  } else {
    release(signal);
  }
  expect("accepted", name_of(result));
}

void WalkScenario::expect(const std::string& wanted, const std::string& found) {
  if (wanted == found) return;
  failures_.push_back(str_cat("line ",
                              line_->number,
                              ": ",
                              str_join(line_->words, " "),
                              "\n  expected: ",
                              wanted,
                              "\n  found:    ",
                              found));
}

const std::string& WalkScenario::word(size_t index) {
  if (index >= line_->words.size()) {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[line ", line_->number, "] too few words"));
  }
  return line_->words[index];
}

std::string WalkScenario::words_from(size_t index) {
  std::string text;
  for (; index < line_->words.size(); ++index) text += (text.empty() ? "" : " ") + word(index);
  return text;
}

// The words behind "->".
std::string WalkScenario::arrow(const std::string& otherwise) {
  for (size_t index = 0; index < line_->words.size(); ++index) {
    if (word(index) == "->") return words_from(index + 1);
  }
  return otherwise;
}

WalkScenario::State& WalkScenario::state_at(size_t index) {
  const auto found = states_.find(word(index));
  if (found != states_.end()) return found->second;
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[line ", line_->number, "] no walk was started as '", word(index), "'"));
}

NodeId WalkScenario::node_at(const State& state, const std::string& name) {
  const NodeId node = state.walk->find_node(name);
  if (node != kNoId) return node;
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[line ", line_->number, "] no node '", name, "'"));
}

LoopId WalkScenario::loop_at(const State& state, const std::string& name) {
  const LoopId loop = state.walk->find_loop(name);
  if (loop != kNoId) return loop;
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[line ", line_->number, "] no loop '", name, "'"));
}

PortId WalkScenario::port_at(const State& state, const std::string& name) {
  const size_t dot = name.find('.');
  const NodeId node = node_at(state, name.substr(0, dot));
  const PortId port = state.walk->find_port(node, name.substr(dot + 1));
  if (port != kNoId) return port;
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[line ", line_->number, "] no input '", name, "'"));
}

StreamBuffer& WalkScenario::queue_at(const std::string& edge) {
  const auto found = queues_.find(edge);
  if (found != queues_.end()) return *found->second;
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[line ", line_->number, "] no connection or queue '", edge, "'"));
}

Signal WalkScenario::signal_of(const std::string& value) {
  if (value == "-") return {};
  if (value == "!") return Signal::trigger();
  return Signal::tensors(payloads_.add(cut(value, '+')));
}

std::string WalkScenario::text_of(Signal signal) {
  switch (signal.kind) {
    case SignalKind::kAbsent: return "-";
    case SignalKind::kTrigger: return "!";
    case SignalKind::kLate: return "?";
    case SignalKind::kTensors: return str_join(payloads_.get(signal.payload), "+");
  }
  return "";
}

std::string WalkScenario::nodes_of(const State& state, uint64_t mask) {
  std::string text;
  for (size_t node = 0; node < state.walk->nodes.size(); ++node) {
    if ((mask >> node & 1) == 0) continue;
    text += str_cat(text.empty() ? "" : " ", state.walk->nodes[node].name);
  }
  return text.empty() ? "none" : text;
}

void WalkScenario::release(Signal signal) {
  if (signal.kind == SignalKind::kTensors) payloads_.release(signal.payload);
}

}  // namespace mstar::graph::testing

#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/graph/compile.h"
#include "mstar/graph/readiness.h"
#include "mstar/graph/stream_buffer.h"
#include "mstar/graph/testing/walk_text.h"

namespace mstar::graph::testing {

// Runs one text scenario (tests/walks/*.walk): a model as in walk_text.h, then commands, each of
// which is checked. S names a WalkState (one request on one worker), values are words, `a+b` is a
// payload of two, `!` a trigger, `-` an absent value, `?` a late one.
//
//   start S WALK [on NODE...]           begins a walk (of these nodes only)
//   give S NODE.INPUT VALUE [-> RESULT]
//   ready S NODE...|none                waits S NODE...|none  (for a chunk)
//   run S NODE VALUE...                 begins it; these are the inputs it must see
//   done S NODE [OUT=VALUE...] [-> continues|walk_done|discarded|missing OUT]
//   abandon S NODE
//   routed [KIND EDGE=VALUE]...         what has to be done since the last `routed`, in order
//   stop S LOOP [at ITER[.ITER...]] [-> applied|ignored|not_yet]
//   limit S LOOP N                      iteration S LOOP N
//   speculate S NODE [-> NODE[*]...]    * = in the next iteration
//   launch S NODE after NODE VALUE...   promote S NODE -> yes|no       undo S NODE
//   queue EDGE CAPACITY                 a StreamBuffer; routes of kind stream go into it
//   end EDGE                            the stream ends
//   chunk EDGE S NODE.INPUT VALUE|empty [final]     the next chunk, delivered
//   nochunk EDGE [finished]
//   carry S T                           delivers S's pending remote routes to T
//   cancel S                            payloads N
//   repeat N / indented commands        $i is the round, from 0
class WalkScenario {
 public:
  // Throws Error with the line for a scenario that cannot be read.
  explicit WalkScenario(std::string_view text);
  ~WalkScenario();

  // The lines whose expectation failed, each with what was found. Empty: passed.
  std::vector<std::string> run();

 private:
  struct State {
    std::string walk_name;
    const CompiledWalk* walk = nullptr;
    std::unique_ptr<WalkState> state;
    std::vector<Route> remote;
    uint32_t num_passes = 0;
  };

  void run_lines(const std::vector<TextLine>& lines);
  void run_line(const TextLine& line);
  bool run_walk_command(const TextLine& line);
  bool run_loop_command(const TextLine& line);
  bool run_speculation_command(const TextLine& line);
  bool run_stream_command(const TextLine& line);
  void expect(const std::string& wanted, const std::string& found);
  void start(const TextLine& line);
  void done(const TextLine& line);
  void carry(State& from, State& to);
  void collect(State& from);
  void check_chunk(const TextLine& line);

  State& state_at(size_t index);
  NodeId node_at(const State& state, const std::string& name);
  LoopId loop_at(const State& state, const std::string& name);
  PortId port_at(const State& state, const std::string& name);
  StreamBuffer& queue_at(const std::string& edge);
  const std::string& word(size_t index);
  std::string words_from(size_t index);
  std::string arrow(const std::string& otherwise);
  Signal signal_of(const std::string& value);
  std::string text_of(Signal signal);
  std::string nodes_of(const State& state, uint64_t mask);
  void release(Signal signal);

  CompiledModel model_;
  std::vector<TextLine> lines_;
  PayloadTable<std::string> payloads_;
  std::map<std::string, State> states_;
  std::map<std::string, std::unique_ptr<StreamBuffer>> queues_;
  Routing routing_;
  std::string routed_;
  const TextLine* line_ = nullptr;
  std::vector<std::string> failures_;
};

}  // namespace mstar::graph::testing

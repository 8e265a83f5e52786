#include "mstar/graph/testing/random_walk.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"

namespace mstar::graph::testing {
namespace {

// ---- generator

struct Part {
  enum class Kind { kNode, kSequential, kParallel, kLoop };

  Kind kind = Kind::kNode;
  Node node;
  Loop loop;
  std::vector<std::unique_ptr<Part>> parts;
  std::vector<std::pair<bool, int>> path;  // (ordered, index) from the walk down to here
  std::vector<Part*> loops;                // enclosing, outermost first
};

class Generator {
 public:
  Generator(uint64_t seed, int max_nodes) : random_(seed), nodes_left_(max_nodes) {}

  WalkGraph make() {
    root_.kind = Part::Kind::kSequential;
    fill(root_, root_.path, {});
    for (Part* part : in_order_) {
      if (part->kind == Part::Kind::kNode) add_inputs(*part);
    }
    for (Part* part : in_order_) {
      if (part->kind == Part::Kind::kNode) add_exits(part->node);
    }
    WalkGraph walk{"random", walk_inputs_, {}};
    for (const auto& part : root_.parts) walk.sections.push_back(build(*part));
    return walk;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  bool chance(int percent) { return pick(1, 100) <= percent; }

  void fill(Part& parent, std::vector<std::pair<bool, int>> path, std::vector<Part*> loops) {
    const int count = pick(1, 3);
    for (int index = 0; index < count && (nodes_left_ > 0 || index == 0); ++index) {
      auto part = std::make_unique<Part>();
      part->path = path;
      part->path.emplace_back(parent.kind != Part::Kind::kParallel, index);
      part->loops = loops;
      in_order_.push_back(part.get());
      const int choice = nodes_left_ > 1 && part->path.size() < 5 ? pick(0, 9) : 0;
      if (choice < 5) {
        part->node = graph::node(str_cat("n", num_names_++));
        --nodes_left_;
      } else if (choice < 8 && loops.size() < 3) {
        part->kind = Part::Kind::kLoop;
        part->loop.name = str_cat("l", num_names_++);
        part->loop.max_iters = pick(1, 4);
        std::vector<Part*> inside = loops;
        inside.push_back(part.get());
        fill(*part, part->path, inside);
      } else {
        part->kind = choice == 8 ? Part::Kind::kSequential : Part::Kind::kParallel;
        fill(*part, part->path, loops);
      }
      parent.parts.push_back(std::move(part));
    }
  }

  static bool comes_later(const Part& from, const Part& to) {
    for (size_t step = 0; step < std::min(from.path.size(), to.path.size()); ++step) {
      if (from.path[step] == to.path[step]) continue;
      return to.path[step].second > from.path[step].second;
    }
    return false;
  }

  // Same as comes_later, or parts of a Parallel, between which every edge points forward.
  static bool points_forward(const Part& from, const Part& to) {
    for (size_t step = 0; step < std::min(from.path.size(), to.path.size()); ++step) {
      if (from.path[step] == to.path[step]) continue;
      return !from.path[step].first || to.path[step].second > from.path[step].second;
    }
    return false;
  }

  // Parts that can make values in the iterations of `scope`: nodes and loops directly inside.
  std::vector<Part*> makers(const std::vector<Part*>& scope, const Part& consumer, bool back) {
    std::vector<Part*> found;
    for (Part* part : in_order_) {
      if (part->kind != Part::Kind::kNode && part->kind != Part::Kind::kLoop) continue;
      if (part->loops != scope || (part->kind == Part::Kind::kLoop && !gives_something(*part)))
        continue;
      if (back ? !points_forward(*part, consumer) : comes_later(*part, consumer))
        found.push_back(part);
    }
    return found;
  }

  // A loop gives what some node or loop directly inside makes.
  bool gives_something(const Part& loop) const {
    return std::any_of(in_order_.begin(), in_order_.end(), [&](const Part* part) {
      return part->kind == Part::Kind::kNode && !part->loops.empty() && part->loops.back() == &loop;
    });
  }

  // Adds an output of `maker` under a new name that takes `edge` along.
  void add_edge(Part& maker, Edge edge) {
    if (maker.kind == Part::Kind::kNode) {
      maker.node.makes(std::move(edge));
      return;
    }
    std::vector<Part*> inside;
    for (Part* part : in_order_) {
      const bool is_direct = !part->loops.empty() && part->loops.back() == &maker;
      const bool makes = part->kind == Part::Kind::kNode ||
                         (part->kind == Part::Kind::kLoop && gives_something(*part));
      if (is_direct && makes) inside.push_back(part);
    }
    Part& source = *inside[static_cast<size_t>(pick(0, static_cast<int>(inside.size()) - 1))];
    const std::string name = str_cat("v", num_names_++);
    add_edge(source, graph::edge(name));
    if (chance(50)) {
      maker.loop.gives(name, std::move(edge));
    } else {
      maker.loop.gives_all(name, std::move(edge));
    }
  }

  void add_inputs(Part& consumer) {
    const int count = pick(1, 3);
    for (int index = 0; index < count; ++index) {
      const std::string input = str_cat("i", pick(0, 5), "_", index);
      consumer.node.needs({input});
      // The base: the conductor, or a part before in this or an enclosing iteration.
      const int base = pick(0, static_cast<int>(consumer.loops.size()));
      std::vector<Part*> scope(consumer.loops.begin(), consumer.loops.begin() + base);
      std::vector<Part*> sources = makers(scope, consumer, false);
      int lowest_back = 1;
      if (!sources.empty() && chance(70)) {
        Part& maker = *sources[static_cast<size_t>(pick(0, static_cast<int>(sources.size()) - 1))];
        add_edge(maker, graph::edge(str_cat("v", num_names_++)).to(consumer.node.name, input));
        lowest_back = base + 1;
      } else if (std::find(walk_inputs_.begin(), walk_inputs_.end(), input) == walk_inputs_.end()) {
        walk_inputs_.push_back(input);
      }
      for (int level = lowest_back; level <= static_cast<int>(consumer.loops.size()); ++level) {
        scope.assign(consumer.loops.begin(), consumer.loops.begin() + level);
        sources = makers(scope, consumer, true);
        if (sources.empty() || !chance(50)) continue;
        Part& maker = *sources[static_cast<size_t>(pick(0, static_cast<int>(sources.size()) - 1))];
        add_edge(maker, graph::edge(str_cat("v", num_names_++)).to(consumer.node.name, input));
      }
    }
  }

  void add_exits(Node& node) {
    if (chance(50)) node.makes(graph::edge(str_cat("c_", node.name)).to_client(Modality::kTensor));
    if (chance(30)) node.makes(graph::edge(str_cat("s_", node.name)).stream_to("other", "sink"));
    if (chance(30)) node.makes(graph::edge(str_cat("k_", node.name)).kept());
  }

  Section build(const Part& part) {
    if (part.kind == Part::Kind::kNode) return part.node;
    std::vector<Section> sections;
    for (const auto& each : part.parts) sections.push_back(build(*each));
    if (part.kind == Part::Kind::kSequential) return Sequential{std::move(sections)};
    if (part.kind == Part::Kind::kParallel) return Parallel{std::move(sections)};
    Loop loop = part.loop;
    loop.sections = std::move(sections);
    return loop;
  }

  std::mt19937_64 random_;
  Part root_;
  std::vector<Part*> in_order_;
  std::vector<std::string> walk_inputs_;
  int nodes_left_;
  int num_names_ = 0;
};

// ---- interpreter

using Ports = std::map<std::pair<std::string, std::string>, Value>;  // (node, input)

// Runs each node or loop of a body once, in any order its inputs allow. A value for a part that
// already ran is the next iteration's.
class Interpreter {
 public:
  explicit Interpreter(const StopRule& stop_rule) : stop_rule_(stop_rule) {}

  struct Body {
    Ports now;
    Ports next;
    std::map<std::string, Value> made;  // [output]
    bool stopped = false;
  };

  // False when some part lacks an input; nothing counts then.
  bool run_body(const std::vector<Section>& sections, const std::string& loop, Body& body) {
    std::vector<const Section*> parts;
    flatten(sections, parts);
    std::vector<bool> ran(parts.size(), false);
    for (size_t left = parts.size(); left > 0;) {
      const size_t before = left;
      for (size_t index = 0; index < parts.size(); ++index) {
        if (ran[index] || !run_part(*parts[index], loop, parts, ran, index, body)) continue;
        ran[index] = true;
        --left;
        break;  // from the front again, so that earlier parts come first
      }
      if (left == before) return false;
    }
    return true;
  }

  ReferenceRun result;

 private:
  static void flatten(const std::vector<Section>& sections, std::vector<const Section*>& parts) {
    for (const Section& section : sections) {
      if (const auto* sequence = std::get_if<Sequential>(&section.value)) {
        flatten(sequence->sections, parts);
      } else if (const auto* sides = std::get_if<Parallel>(&section.value)) {
        flatten(sides->sections, parts);
      } else {
        parts.push_back(&section);
      }
    }
  }

  static bool contains(const Section& section, const std::string& node) {
    if (const auto* leaf = std::get_if<Node>(&section.value)) return leaf->name == node;
    std::vector<const Section*> parts;
    flatten(std::get<Loop>(section.value).sections, parts);
    return std::any_of(
        parts.begin(), parts.end(), [&](const Section* part) { return contains(*part, node); });
  }

  bool run_part(const Section& part,
                const std::string& loop,
                const std::vector<const Section*>& parts,
                std::vector<bool>& ran,
                size_t index,
                Body& body) {
    const auto send = [&](const Edge& edge, const Value& value) {
      body.made[edge.name] = value;
      const bool leaves = edge.is_emitted() || edge.is_streaming() || edge.persist;
      if (leaves) result.left[edge.name].push_back(value);
      if (edge.destination.empty() || edge.is_emitted() || edge.is_streaming()) return;
      bool is_next = false;
      for (size_t other = 0; other < parts.size(); ++other) {
        if (contains(*parts[other], edge.destination)) is_next = ran[other] || other == index;
      }
      (is_next ? body.next : body.now)[{edge.destination, edge.input}] = value;
    };
    if (const auto* leaf = std::get_if<Node>(&part.value)) {
      std::vector<Value> inputs, outputs;
      for (const Input& input : leaf->inputs) {
        const auto found = body.now.find({leaf->name, input.name});
        if (found == body.now.end()) return false;
        inputs.push_back(found->second);
      }
      ++result.num_runs[leaf->name];
      for (const Edge& edge : leaf->outputs) {
        outputs.push_back(compute(leaf->name, edge.name, inputs));
        send(edge, outputs.back());
      }
      body.stopped |= stop_rule_(leaf->name, outputs) == loop && !loop.empty();
      return true;
    }
    return run_loop(std::get<Loop>(part.value), body, send);
  }

  template <typename Send>
  bool run_loop(const Loop& loop, Body& outer, const Send& send) {
    const ReferenceRun before = result;
    std::map<std::string, Value> last, all;
    Ports back;
    for (int iteration = 0; iteration < loop.max_iters; ++iteration) {
      Body body;
      body.now = outer.now;
      for (const auto& [port, value] : back) body.now[port] = value;
      if (!run_body(loop.sections, loop.name, body)) {
        result = before;
        return false;
      }
      for (const auto& [name, value] : body.made) {
        last[name] = value;
        all[name].insert(all[name].end(), value.begin(), value.end());
      }
      back = body.next;
      if (body.stopped) break;
    }
    for (const LoopOutput& output : loop.outputs) send(output.edge, last.at(output.body_output));
    for (const LoopOutput& output : loop.accumulated_outputs) {
      send(output.edge, all.at(output.body_output));
    }
    return true;
  }

  const StopRule& stop_rule_;
};

}  // namespace

WalkGraph random_walk(uint64_t seed, int max_nodes) {
  return Generator(seed, max_nodes).make();
}

Value compute(const std::string& node,
              const std::string& output,
              const std::vector<Value>& inputs) {
  uint64_t hash = std::hash<std::string>()(node + "." + output);
  for (const Value& input : inputs) {
    for (uint64_t each : input) hash = (hash ^ each) * 0x9e3779b97f4a7c15ull + (hash >> 29);
    hash = hash * 31 + input.size();
  }
  return {hash};
}

ReferenceRun interpret(const WalkGraph& walk,
                       const std::map<std::string, Value>& inputs,
                       const StopRule& stop_rule) {
  Interpreter interpreter(stop_rule);
  Interpreter::Body body;
  for (const auto& [port, value] : inputs) {
    const size_t dot = port.find('.');
    body.now[{port.substr(0, dot), port.substr(dot + 1)}] = value;
  }
  const bool ran = interpreter.run_body(walk.sections, "", body);
  MSTAR_CHECK(ran, "the interpreter is stuck");
  return interpreter.result;
}

}  // namespace mstar::graph::testing

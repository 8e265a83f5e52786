// Functions that every template may call.

#include <ctime>
#include <memory>

#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/call_arguments.h"
#include "mstar/text/jinja/interpreter.h"

namespace mstar::jinja {

namespace {

constexpr int64_t kMaxRange = 100'000;  // the sandbox of the reference has the same

Value range(Interpreter& in, Arguments& arguments) {
  ArgumentReader read(arguments, "range");
  int64_t start = 0;
  int64_t stop = read.get_int("stop", 0);
  int64_t step = 1;
  if (arguments.positional.size() > 1) {
    start = stop;
    stop = read.get_int("stop", 0);
    step = read.get_int("step", 1);
  }
  read.finish();
  if (step == 0) {
    fail("range() arg 3 must not be zero");
  }
  List out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(out.size()) >= kMaxRange) {
      fail(str_cat("range too big: more than ", kMaxRange, " numbers"));
    }
    out.push_back(Value(i));
    if (__builtin_add_overflow(i, step, &i)) {
      break;
    }
  }
  in.charge(static_cast<int64_t>(out.size()) * 32);
  return Value::list(std::move(out), SequenceKind::kRange);
}

Value name_space(Interpreter& in, Arguments& arguments) {
  auto space = in.new_namespace();
  for (const Value& source : arguments.positional) {
    if (!source.is_dict()) {
      fail("namespace() takes names with values");
    }
    for (const auto& [key, value] : source.dict().items) {
      space->set(to_text(key).text, value);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    space->set(name, value);
  }
  return Value(std::move(space));
}

Value dict(Interpreter& in, Arguments& arguments) {
  auto out = std::make_shared<Dict>();
  for (const Value& source : arguments.positional) {
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().items) {
        out->set(key, value);
      }
      continue;
    }
    for (const Value& pair : elements(in, source)) {
      const List parts = elements(in, pair);
      if (parts.size() != 2) {
        fail("dict() takes pairs of key and value");
      }
      out->set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    out->set(Value(name), value);
  }
  return Value(std::move(out));
}

Value raise_exception(Interpreter&, Arguments& arguments) {
  ArgumentReader read(arguments, "raise_exception");
  const Value message = read.get("message");
  read.finish();
  throw_refusal(to_text(message).text);
}

Value strftime_now(Interpreter& in, Arguments& arguments) {
  ArgumentReader read(arguments, "strftime_now");
  const std::string format = read.get_text("format").text;
  read.finish();
  if (format.size() > 256) {
    fail("strftime_now with a format of more than 256 bytes");
  }
  if (format.empty()) {
    return Value(std::string());
  }
  const std::time_t now = in.now ? *in.now : std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char buffer[4096];
  const size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &parts);
  return in.made({std::string(buffer, size), {}});
}

// joiner(", "): nothing at the first call, then the separator.
Value joiner(Interpreter&, Arguments& arguments) {
  ArgumentReader read(arguments, "joiner");
  const MarkedText separator = read.get_text("sep", ", ");
  read.finish();
  return Value::function(
      "joiner", [separator, used = std::make_shared<bool>(false)](Interpreter& in, Arguments&) {
        const bool first = !std::exchange(*used, true);
        return first ? Value(std::string()) : in.made(separator);
      });
}

}  // namespace

void define_globals(Scope& scope) {
  const auto define = [&](const char* name, Value (*function)(Interpreter&, Arguments&)) {
    scope.set(name, Value::function(name, function));
  };
  define("range", range);
  define("namespace", name_space);
  define("dict", dict);
  define("raise_exception", raise_exception);
  define("strftime_now", strftime_now);
  define("joiner", joiner);
}

}  // namespace mstar::jinja

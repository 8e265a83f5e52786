#pragma once

#include <string>
#include <vector>

#include "mstar/server/http/client.h"

namespace mstar::testing {

// One call of a tests/http/*.http file and what must come of it.
struct Scenario {
  std::string where;  // file and line
  HttpCall call;

  struct Expectation {
    std::string kind;  // status, header, json, body, order, absent
    std::string text;
    int line = 0;
  };

  std::vector<Expectation> expectations;
};

// Reads a file of scenarios:
//   ### what this shows
//   POST /v1/completions
//   Content-Type: application/json
//
//   {"prompt": "say a"}
//   > status 200
//   > header Content-Type: application/json      the value begins so
//   > json choices[0].text = "a"                  a path and the JSON that is there
//   > json error.message ~ prompt                 the text there contains this
//   > body [DONE]                                 the body contains this
//   > absent [DONE]                               and not this
//   > order "a" | "b" | [DONE]                    these, one behind the other
// In bodies, lines end with \n; with "> crlf" before the body's expectations they end with \r\n.
std::vector<Scenario> read_scenarios(const std::string& path);

// "" when the response is as expected, else what is wrong.
std::string check_scenario(const Scenario& scenario, const HttpResponse& response);

}  // namespace mstar::testing

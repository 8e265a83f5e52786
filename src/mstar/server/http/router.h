#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/server/http/server.h"

namespace mstar {

// Finds the handler of a request by method and path. Filled once, then const and thread-safe.
class Router {
 public:
  using Handler = std::function<void(const HttpRequest&, std::shared_ptr<ResponseWriter>)>;

  struct Route {
    std::string method;
    std::string pattern;
    Handler handler;
    bool is_quick = false;  // may run on an HTTP thread
  };

  // `pattern`: "/v1/models/{id}"; a last "{id*}" takes the rest of the path with its slashes.
  void add(Route route) { routes_.push_back(std::move(route)); }

  struct Match {
    const Route* route = nullptr;  // null: see `allow`
    std::string allow;             // methods of that path; empty: no such path
  };

  // The route of the request, with its path values filled in. HEAD counts as GET.
  Match find(HttpRequest& request) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace mstar

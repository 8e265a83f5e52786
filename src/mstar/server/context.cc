#include "mstar/server/context.h"

#include <random>

#include "mstar/base/str_cat.h"
#include "mstar/server/api_error.h"

namespace mstar {

ServerContext::ServerContext(ApiOptions options)
    : options_(std::move(options)), media_(options_.media), images_(options_.images) {}

void ServerContext::set_backend(std::shared_ptr<Backend> backend) {
  const std::lock_guard lock(mutex_);
  backend_ = std::move(backend);
}

std::string ServerContext::unready_reason() const {
  if (draining_) {
    return "draining";
  }
  return find_backend() == nullptr ? "loading" : "";
}

std::shared_ptr<Backend> ServerContext::backend() const {
  const std::string reason = unready_reason();
  if (!reason.empty()) {
    throw Error(ErrorCode::kUnavailable, str_cat("[server] ", reason, ", try again later"));
  }
  return find_backend();
}

std::shared_ptr<Backend> ServerContext::find_backend() const {
  const std::lock_guard lock(mutex_);
  return backend_;
}

void ServerContext::check_model(const Backend& backend, std::string_view name) const {
  const std::string& served = backend.description().name;
  if (!name.empty() && name != served) {
    throw ApiError(ErrorCode::kNotFound,
                   str_cat("The model `", name, "` does not exist; this server has `", served, "`"),
                   "model",
                   "model_not_found");
  }
}

std::string ServerContext::new_id(std::string_view prefix) {
  thread_local std::random_device device;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id(prefix);
  for (int word = 0; word < 4; ++word) {
    uint32_t bits = device();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) {
      id += kDigits[bits & 15U];
    }
  }
  return id;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace mstar

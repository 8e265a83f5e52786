#include "mstar/server/http/exchange.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "mstar/base/str_cat.h"

namespace mstar {

namespace asio = boost::asio;

std::string http_head(int status, const HttpHeaders& headers, std::string_view framing) {
  std::string text = str_cat("HTTP/1.1 ", status, " ", reason_phrase(status), "\r\n");
  for (const auto& [name, value] : headers.fields()) {
    text += name;
    text += ": ";
    for (const char letter : value) {  // a header never ends early, whatever it was made from
      text += letter == '\r' || letter == '\n' ? ' ' : letter;
    }
    text += "\r\n";
  }
  text += framing;
  text += "\r\n";
  return text;
}

Exchange::Exchange(asio::any_io_executor executor, AnswerStyle style, size_t high_water_bytes)
    : executor_(std::move(executor)), style_(style), high_water_(high_water_bytes) {}

void Exchange::send(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (closed_ || started_) {
    return;
  }
  started_ = ended_ = true;
  const bool no_body = response.status == 204 || response.status < 200;
  std::string framing = no_body ? "" : str_cat("Content-Length: ", response.body.size(), "\r\n");
  framing += connection_line();
  pending_ += http_head(response.status, response.headers, framing);
  if (!style_.is_head && !no_body) {
    pending_ += response.body;
  }
  wake();
}

void Exchange::start(int status, const HttpHeaders& headers) {
  const std::lock_guard lock(mutex_);
  if (closed_ || started_) {
    return;
  }
  started_ = true;
  if (!style_.can_chunk) {
    style_.keep_alive = false;  // the end of the connection is the end of the answer
  }
  std::string framing = style_.can_chunk ? "Transfer-Encoding: chunked\r\n" : "";
  framing += connection_line();
  pending_ += http_head(status, headers, framing);
  wake();
}

void Exchange::write(std::string_view data) {
  bool changed = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || !started_ || ended_ || data.empty() || style_.is_head) {
      return;
    }
    if (style_.can_chunk) {
      constexpr char kDigits[] = "0123456789abcdef";
      std::string size;
      for (size_t rest = data.size(); rest != 0; rest /= 16) {
        size.insert(size.begin(), kDigits[rest % 16]);
      }
      pending_ += size;
      pending_ += "\r\n";
      pending_ += data;
      pending_ += "\r\n";
    } else {
      pending_ += data;
    }
    if (!paused_ && pending_.size() > high_water_) {
      paused_ = changed = true;
    }
    wake();
  }
  if (changed) {
    tell_backpressure();
  }
}

void Exchange::finish() {
  const std::lock_guard lock(mutex_);
  if (closed_ || !started_ || ended_) {
    return;
  }
  ended_ = true;
  if (style_.can_chunk && !style_.is_head) {
    pending_ += "0\r\n\r\n";
  }
  wake();
}

void Exchange::abort() {
  const std::lock_guard lock(mutex_);
  if (closed_ || ended_) {
    return;
  }
  ended_ = aborted_ = true;
  wake();
}

void Exchange::dropped() {
  bool answered = false;
  {
    const std::lock_guard lock(mutex_);
    answered = started_;
  }
  if (answered) {
    abort();
  } else {
    send({.status = 500, .headers = {}, .body = "the request was dropped\n"});
  }
}

void Exchange::on_disconnect(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (complete_) {
      return;
    }
    if (!closed_) {
      disconnect_ = std::move(callback);
      return;
    }
  }
  callback();
}

void Exchange::on_backpressure(std::function<void(bool)> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || complete_) {
      return;
    }
    backpressure_ = std::move(callback);
    if (!paused_) {
      return;
    }
  }
  tell_backpressure();
}

asio::awaitable<Exchange::Piece> Exchange::next(asio::steady_timer& wakeup) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      wakeup_ = &wakeup;
      if (closed_ || !pending_.empty() || ended_) {
        Piece piece{
            .data = std::exchange(pending_, {}), .last = ended_, .abort = aborted_ || closed_};
        wakeup_ = nullptr;
        co_return piece;
      }
      wakeup.expires_at(asio::steady_timer::time_point::max());
    }
    [[maybe_unused]] const auto [error] =
        co_await wakeup.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

void Exchange::sent() {
  bool changed = false;
  {
    const std::lock_guard lock(mutex_);
    if (paused_ && pending_.size() <= high_water_ / 2) {
      paused_ = false;
      changed = true;
    }
  }
  if (changed) {
    tell_backpressure();
  }
}

void Exchange::close(bool complete) {
  std::function<void()> disconnect;
  std::function<void(bool)> backpressure;  // dropped without the lock: it may own the request
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      return;
    }
    closed_ = true;
    complete_ = complete;
    wake();
    wakeup_ = nullptr;
    executor_ = {};  // may outlive its io_context
    disconnect = std::exchange(disconnect_, nullptr);
    backpressure = std::exchange(backpressure_, nullptr);
    pending_.clear();
  }
  if (!complete && disconnect) {
    disconnect();
  }
}

std::string Exchange::connection_line() const {
  return style_.keep_alive ? "" : "Connection: close\r\n";
}

void Exchange::wake() {  // mutex_ is held
  if (wakeup_ != nullptr) {
    // The timer lives as long as the connection, which closes the exchange before it ends; the
    // cancel runs on its strand, so never beside next().
    asio::post(executor_, [timer = wakeup_] { timer->cancel(); });
    wakeup_ = nullptr;
  }
}

// Two threads may change the state at the same time; each tells it after its change, one at a time,
// so that the last call tells what is true.
void Exchange::tell_backpressure() {
  const std::lock_guard order(callback_mutex_);
  std::function<void(bool)> callback;
  bool paused = false;
  {
    const std::lock_guard lock(mutex_);
    callback = backpressure_;
    paused = paused_;
  }
  if (callback) {
    callback(paused);
  }
}

bool Exchange::keep_alive() const {
  const std::lock_guard lock(mutex_);
  return style_.keep_alive;
}

}  // namespace mstar

#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "mstar/server/http/message.h"

// Between the threads that write an answer and the connection that sends it. Only server.cc and
// exchange.cc include this: Asio is heavy to compile.
namespace mstar {

// Status line and fields; `framing` says how the body is delimited.
std::string http_head(int status, const HttpHeaders& headers, std::string_view framing);

// How the request wants to be answered.
struct AnswerStyle {
  bool is_head = false;  // no body
  bool keep_alive = true;
  bool can_chunk = true;  // HTTP/1.1
};

// One answer. Thread-safe, but for the connection's side, which runs on its strand.
class Exchange {
 public:
  Exchange(boost::asio::any_io_executor executor, AnswerStyle style, size_t high_water_bytes);

  // ---- the writer's side, as ResponseWriter

  void send(HttpResponse response);
  void start(int status, const HttpHeaders& headers);
  void write(std::string_view data);
  void finish();
  void abort();
  // The writer went away without an end.
  void dropped();
  void on_disconnect(std::function<void()> callback);
  void on_backpressure(std::function<void(bool)> callback);

  // ---- the connection's side

  struct Piece {
    std::string data;
    bool last = false;
    bool abort = false;
  };

  // The next bytes to send; waits for them on `wakeup`. A closed exchange gives an aborting piece.
  boost::asio::awaitable<Piece> next(boost::asio::steady_timer& wakeup);

  // What was taken has been sent: a paused producer may go on.
  void sent();

  // Nothing more will be sent: the answer is complete, or the client is gone.
  void close(bool complete);

  bool keep_alive() const;

 private:
  std::string connection_line() const;
  void wake();
  void tell_backpressure();

  std::mutex callback_mutex_;  // over backpressure_'s calls; taken before mutex_
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  boost::asio::any_io_executor executor_;
  AnswerStyle style_;
  const size_t high_water_;
  boost::asio::steady_timer* wakeup_ = nullptr;
  std::string pending_;
  bool started_ = false;
  bool ended_ = false;  // the writer is done
  bool aborted_ = false;
  bool closed_ = false;  // the connection is done
  bool complete_ = false;
  bool paused_ = false;
  std::function<void()> disconnect_;
  std::function<void(bool)> backpressure_;
};

}  // namespace mstar

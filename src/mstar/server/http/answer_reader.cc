#include "mstar/server/http/answer_reader.h"

#include <charconv>
#include <utility>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr size_t kMostHeaderBytes = size_t{256} << 10;

[[noreturn]] void unavailable(const std::string& what) {
  throw Error(ErrorCode::kUnavailable, str_cat("[http client] ", what));
}

// Reads one answer piece by piece.
class AnswerReader {
 public:
  AnswerReader(ByteSource& source, const HttpCall& call, size_t max_body_bytes)
      : source_(source), call_(call), left_bytes_(max_body_bytes) {}

  HttpResponse read() {
    do {
      read_head();
    } while (response_.status == 100);
    const std::string_view length = response_.headers.get("Content-Length");
    if (call_.method == "HEAD" || response_.status == 204) {
      return std::move(response_);
    }
    if (equals_ignoring_case(response_.headers.get("Transfer-Encoding"), "chunked")) {
      read_chunks();
    } else if (!length.empty()) {
      read_exactly(number(length, 10));
    } else {
      while (deliver(std::exchange(buffer_, {})) && source_.read(buffer_)) {
      }
    }
    return std::move(response_);
  }

 private:
  static size_t number(std::string_view text, int base) {
    size_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (result.ec != std::errc() || result.ptr == text.data()) {
      unavailable(str_cat("found \"", text, "\", expected a number"));
    }
    return value;
  }

  void more() {
    if (!source_.read(buffer_)) {
      unavailable("the connection broke off");
    }
  }

  std::string take_line() {
    size_t end = 0;
    while ((end = buffer_.find("\r\n")) == std::string::npos) {
      if (buffer_.size() > kMostHeaderBytes) {
        unavailable("a line does not end");
      }
      more();
    }
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 2);
    return line;
  }

  void read_head() {
    const std::string status = take_line();
    if (!status.starts_with("HTTP/1.") || status.size() < 12) {
      unavailable("the answer is not HTTP/1.1");
    }
    response_ = {};
    response_.status = static_cast<int>(number(std::string_view(status).substr(9, 3), 10));
    for (std::string line = take_line(); !line.empty(); line = take_line()) {
      const size_t colon = std::min(line.find(':'), line.size());
      response_.headers.add(
          line.substr(0, colon),
          std::string(trim(std::string_view(line).substr(std::min(colon + 1, line.size())))));
    }
  }

  // False: the caller has had enough.
  bool deliver(std::string data) {
    if (data.empty()) {
      return true;
    }
    if (data.size() > left_bytes_) {
      throw Error(ErrorCode::kTooLarge, "[http client] the answer is over the limit");
    }
    left_bytes_ -= data.size();
    if (!call_.on_data) {
      response_.body += data;
      return true;
    }
    return call_.on_data(response_, data);
  }

  bool read_exactly(size_t size) {
    while (size > 0) {
      if (buffer_.empty()) {
        more();
      }
      const size_t part = std::min(size, buffer_.size());
      std::string data = buffer_.substr(0, part);
      buffer_.erase(0, part);
      size -= part;
      if (!deliver(std::move(data))) {
        return false;
      }
    }
    return true;
  }

  void read_chunks() {
    while (true) {
      const size_t size = number(take_line(), 16);
      if (size == 0) {
        while (!take_line().empty()) {
        }
        return;
      }
      if (!read_exactly(size)) {
        return;
      }
      take_line();
    }
  }

  ByteSource& source_;
  const HttpCall& call_;
  HttpResponse response_;
  std::string buffer_;
  size_t left_bytes_;  // of the body
};

}  // namespace

HttpResponse read_answer(ByteSource& source, const HttpCall& call, size_t max_body_bytes) {
  return AnswerReader(source, call, max_body_bytes).read();
}

}  // namespace mstar

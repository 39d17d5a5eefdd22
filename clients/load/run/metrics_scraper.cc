// A GET over a socket, and the three gauges in its answer.
#include "clients/load/run/metrics_scraper.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

namespace quire::load {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::milliseconds kWithin(1000);
constexpr size_t kLongestPage = 16 << 20;

// The sample's value, or NaN. A name stands at a line's start and ends at a blank or its labels.
double Sample(const std::string& page, const std::string& name) {
  for (size_t at = page.find(name); at != std::string::npos; at = page.find(name, at + 1)) {
    if (at > 0 && page[at - 1] != '\n') continue;
    size_t end = at + name.size();
    if (end < page.size() && page[end] == '{') end = page.find('}', end) + 1;
    if (end == 0 || end >= page.size() || page[end] != ' ') continue;
    return std::strtod(page.c_str() + end, nullptr);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double FirstSample(const std::string& page, const char* name, const char* other_name) {
  const double value = Sample(page, name);
  return value == value ? value : Sample(page, other_name);
}

// True if the socket became ready for `events` before the deadline.
bool Await(int fd, short events, steady_clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
  pollfd wanted{fd, events, 0};
  return left.count() > 0 && poll(&wanted, 1, static_cast<int>(left.count())) == 1;
}

bool SendAll(int fd, const std::string& text, steady_clock::time_point deadline) {
  for (size_t sent = 0; sent < text.size();) {
    if (!Await(fd, POLLOUT, deadline)) return false;
    const ssize_t n = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

std::string ReceiveAll(int fd, steady_clock::time_point deadline) {
  std::string all;
  char piece[16384];
  while (all.size() < kLongestPage && Await(fd, POLLIN, deadline)) {
    const ssize_t n = recv(fd, piece, sizeof(piece), 0);
    if (n == 0) return all;
    if (n < 0) break;
    all.append(piece, static_cast<size_t>(n));
  }
  return "";
}

int ConnectTo(const std::string& address, steady_clock::time_point deadline) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return -1;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return -1;
  int fd = -1;
  for (const addrinfo* one = found; one != nullptr && fd < 0; one = one->ai_next) {
    fd = socket(one->ai_family, one->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    int error = 0;
    socklen_t size = sizeof(error);
    connect(fd, one->ai_addr, one->ai_addrlen);
    const bool connected = Await(fd, POLLOUT, deadline) &&
                           getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
    if (connected) continue;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  return fd;
}

}  // namespace

ScrapedGauges ParseGauges(const std::string& page) {
  ScrapedGauges gauges;
  gauges.kv_usage = FirstSample(page, "quire_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc");
  gauges.running = FirstSample(page, "quire_requests_running", "vllm:num_requests_running");
  gauges.waiting = FirstSample(page, "quire_requests_waiting", "vllm:num_requests_waiting");
  return gauges;
}

std::string HttpGet(const std::string& address, const std::string& path) {
  const auto deadline = steady_clock::now() + kWithin;
  const int fd = ConnectTo(address, deadline);
  if (fd < 0) return "";
  // HTTP/1.0: the answer ends with the connection, so no length needs to be parsed.
  const std::string request = "GET " + path + " HTTP/1.0\r\nHost: " + address + "\r\n\r\n";
  const std::string answer = SendAll(fd, request, deadline) ? ReceiveAll(fd, deadline) : "";
  close(fd);
  const size_t body = answer.find("\r\n\r\n");
  const bool ok = answer.compare(0, 7, "HTTP/1.") == 0 && answer.compare(8, 5, " 200 ") == 0;
  return ok && body != std::string::npos ? answer.substr(body + 4) : "";
}

MetricsScraper::MetricsScraper(const std::string& address) : address_(address) {
  if (!address_.empty()) thread_ = std::thread([this] { Loop(); });
}

MetricsScraper::~MetricsScraper() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    stop_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

ScrapedGauges MetricsScraper::latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
}

void MetricsScraper::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    lock.unlock();
    const ScrapedGauges gauges = ParseGauges(HttpGet(address_, "/metrics"));
    lock.lock();
    latest_ = gauges;
    stop_.wait_for(lock, std::chrono::seconds(1), [this] { return stopped_; });
  }
}

}  // namespace quire::load

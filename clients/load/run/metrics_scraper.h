// MetricsScraper: reads the server's /metrics once a second, so that a report can show the use of
// the KV cache.
#pragma once

#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <thread>

namespace quire::load {

// NaN where the page lacks a gauge.
struct ScrapedGauges {
  double kv_usage = std::numeric_limits<double>::quiet_NaN();  // 0 to 1
  double running = std::numeric_limits<double>::quiet_NaN();
  double waiting = std::numeric_limits<double>::quiet_NaN();
};

// The gauges in a page of Prometheus text, by Quire's names or else vLLM's.
ScrapedGauges ParseGauges(const std::string& page);

// The body of http://address/path, or "" if it did not arrive whole within a second. `address` is
// host:port, a host with colons in brackets.
std::string HttpGet(const std::string& address, const std::string& path);

class MetricsScraper {
 public:
  // Scrapes on a thread of its own; an empty address: never.
  explicit MetricsScraper(const std::string& address);
  ~MetricsScraper();
  MetricsScraper(const MetricsScraper&) = delete;

  // The last answer; NaN when the last attempt had none. Any thread.
  ScrapedGauges latest() const;

 private:
  void Loop();

  const std::string address_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;  // guarded by mutex_
  ScrapedGauges latest_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace quire::load

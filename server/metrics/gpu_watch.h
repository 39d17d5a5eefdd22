// GpuWatch: reads the GPUs of this server once a second, on a thread of its own, so that neither a
// scrape nor the start waits for the driver.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/metrics/gpu/nvml.h"

namespace quire {

class GpuMetrics;

class GpuWatch {
 public:
  struct Options {
    std::string library = kNvmlLibrary;
    double seconds = 1;  // between two readings
  };

  // Starts to read the GPUs with these UUIDs into `metrics`, which outlives this. A library that
  // cannot be used and a GPU that is not on this host cost a line in the log; their metrics are
  // absent.
  GpuWatch(std::vector<std::string> uuids, GpuMetrics* metrics, Options options);
  GpuWatch(std::vector<std::string> uuids, GpuMetrics* metrics)
      : GpuWatch(std::move(uuids), metrics, Options()) {}
  // Waits for the reading in progress.
  ~GpuWatch();

 private:
  void Run();
  bool WaitForNext();

  const std::vector<std::string> uuids_;
  GpuMetrics* const metrics_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace quire

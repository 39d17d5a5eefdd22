// DeviceFacts: a device before anything is loaded. WorkerReport: what a worker reports once ready.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace quire {

struct DeviceFacts {
  std::string kind;           // "cpu", "cuda"
  std::string name;           // for people
  int64_t total_bytes = 0;    // of memory
  int64_t free_bytes = 0;     // not held by any process or by this process's context
  int64_t backend_bytes = 0;  // that the backend will take for its own workspaces
  std::string uuid;           // of a GPU, "GPU-..."
};

struct WorkerReport {
  // A batch size with a captured step.
  struct Graph {
    int32_t size = 0;
    int32_t nodes = 0;
    double capture_ms = 0;
    int64_t bytes = 0;
  };

  std::string description;                              // Backend::Describe
  std::vector<std::pair<std::string, int64_t>> memory;  // measured bytes, by part
  std::vector<std::pair<std::string, double>> seconds;  // of the start, by phase
  std::vector<Graph> graphs;
  bool late_masks = true;  // its device reads the mask board in place
  // UUIDs of the GPUs of all ranks, by rank: joined from the ranks' facts, no part of the message.
  std::vector<std::string> gpus;
};

}  // namespace quire

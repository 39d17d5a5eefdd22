// SchedulerView: the scheduler's state at one moment, as the status page and Control.GetMemory show
// it. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/values/kv_map.h"

namespace quire {

// Requests of one priority.
struct PriorityClass {
  int32_t priority = 0;
  int32_t running = 0;
  int32_t waiting = 0;    // in the queue
  int32_t restoring = 0;  // wait for KV from the host
};

struct SchedulerView {
  // More priorities than this are joined: the last class counts all that are lower.
  static constexpr size_t kMaxClasses = 8;

  KvMap kv;
  std::vector<PriorityClass> classes;  // that have requests, the highest first
  int64_t taken_ns = 0;                // steady clock; the engine sets both
  int64_t took_ns = 0;                 // time of the scheduler thread
};

}  // namespace quire

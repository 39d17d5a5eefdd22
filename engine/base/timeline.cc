// One vector under a lock: a few ten thousand events a second at most.
#include "engine/base/timeline.h"

#include <mutex>

namespace quire {
namespace {

struct Memory {
  std::mutex mutex;
  Timeline::Recording recording;
  size_t max_events = 0;
};

Memory& TheMemory() {
  static Memory* const memory = new Memory;  // threads may add events until the process ends
  return *memory;
}

}  // namespace

std::atomic<bool> Timeline::on_{false};

bool Timeline::Start(size_t max_events) {
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  if (on()) return false;
  memory.recording = {};
  memory.recording.events.reserve(max_events);
  memory.max_events = max_events;
  on_.store(true, std::memory_order_relaxed);
  return true;
}

Timeline::Recording Timeline::Stop() {
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  on_.store(false, std::memory_order_relaxed);
  return std::exchange(memory.recording, {});
}

void Timeline::Add(Event event) {
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  if (!on()) return;
  if (memory.recording.events.size() < memory.max_events) {
    memory.recording.events.push_back(std::move(event));
  } else {
    ++memory.recording.dropped;
  }
}

}  // namespace quire

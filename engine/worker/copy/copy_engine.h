// CopyEngine: executes the copy jobs of one rank: takes them from its rings, has its CopyRunner do
// them, and answers. A thread for each direction, so that a load never waits for a store.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "engine/worker/copy/copy_runner.h"
#include "engine/worker/shm/copy_rings.h"

namespace quire {

class CopyEngine {
 public:
  // Starts. `runner` and the memory of `rings` outlive this; `notify` is called, on any of its
  // threads, after each ack.
  CopyEngine(CopyRunner& runner, const CopyRings& rings, std::function<void()> notify);
  // Finishes what has begun; at once after the last message, within SharedRing::kPatienceNs without
  // one.
  ~CopyEngine();

 private:
  class Lane;

  void PrepareAll();

  CopyRunner& runner_;
  const CopyRings rings_;
  const std::function<void()> notify_;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> begun_{0};  // grows with each job begun
  // Jobs acked. A job of the other direction that follows from an ack sees what was copied, though
  // the order between the two passes through the scheduler, maybe in another process.
  std::atomic<uint64_t> acked_{0};
  std::vector<std::thread> threads_;
};

}  // namespace quire

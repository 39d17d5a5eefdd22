// CopyEngine: executes the copy jobs of one rank: takes jobs from the rings, lets the CopyRunner
// copy, and sends acks. One thread for each direction, so that a load never waits for a store, and
// one that makes the pages of host memory ready.
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
  // Makes the first pages ready, then starts the threads. `runner` and the memory of `rings`
  // outlive this; `notify` is called on any of these threads after each ack.
  CopyEngine(CopyRunner& runner, const CopyRings& rings, std::function<void()> notify);
  // Finishes the jobs that have begun. Ends at once if the last message has arrived, else within
  // SharedRing::kPatienceNs.
  ~CopyEngine();

 private:
  class Lane;

  int32_t PrepareNext();
  void PreparePages();

  CopyRunner& runner_;
  const CopyRings rings_;
  const std::function<void()> notify_;
  std::atomic<bool> stop_{false};
  // Jobs acked. Orders a job after the ack it follows from: it sees the bytes that were copied,
  // although the two threads synchronise only through the scheduler, maybe in another process.
  std::atomic<uint64_t> acked_{0};
  std::vector<std::thread> threads_;
};

}  // namespace quire

// ThreadPool: the worker threads of one CPU rank. The thread that calls ParallelFor works too, so a
// pool of n threads starts n - 1. After a job workers spin for a few microseconds, because a step's
// next operation follows at once; then they sleep, because clients and the server share these
// cores.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace quire::cpu {

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller. `may_spin` must be false when there are more threads than
  // cores.
  ThreadPool(int threads, bool may_spin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(begin, end) for disjoint ranges that cover [0, count), from any of the pool's threads,
  // and returns when all calls have returned. A range is `grain` long, the last may be shorter; a
  // pool of one thread takes [0, count) as one range. fn's results must not depend on the ranges or
  // on their threads, because neither is fixed. One caller at a time; fn must not call ParallelFor.
  template <typename Fn>
  void ParallelFor(int64_t count, int64_t grain, const Fn& fn) {
    if (count <= 0) return;
    if (count <= grain || workers_.empty()) {
      fn(int64_t{0}, count);
      return;
    }
    Run(count, grain, &Call<Fn>, &fn);
  }

 private:
  using Body = void (*)(const void* fn, int64_t begin, int64_t end);

  template <typename Fn>
  static void Call(const void* fn, int64_t begin, int64_t end) {
    (*static_cast<const Fn*>(fn))(begin, end);
  }

  void Run(int64_t count, int64_t grain, Body body, const void* fn);
  void WorkerLoop();
  // Claims and runs one range of job `generation`. False if no range is left.
  bool RunOne(uint32_t generation);

  const bool may_spin_;
  std::vector<std::thread> workers_;

  // The job. The caller writes it while no range can be claimed, and workers read it before they
  // claim. A claim that succeeds proves that the values read belong to the claimed job.
  std::atomic<Body> body_{nullptr};
  std::atomic<const void*> fn_{nullptr};
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> grain_{1};
  std::atomic<uint32_t> num_ranges_{0};

  alignas(64) std::atomic<uint64_t> claim_{0};  // generation << 32 | next range
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace quire::cpu

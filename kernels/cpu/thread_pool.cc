// ThreadPool: threads claim ranges from one counter. A worker that wakes late costs nothing,
// because other threads have taken its ranges by then.
#include "kernels/cpu/thread_pool.h"

#include <algorithm>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cpu/spin_wait.h"

namespace quire::cpu {
namespace {

constexpr uint64_t Claim(uint32_t generation, uint32_t next) {
  return (uint64_t{generation} << 32) | next;
}

// The value of the next range while claiming is closed: no job has so many ranges.
constexpr uint32_t kClosed = 0xffffffffu;

}  // namespace

ThreadPool::ThreadPool(int threads, bool may_spin) : may_spin_(may_spin) {
  CHECK_GE(threads, 1);
  workers_.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerLoop(); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t count, int64_t grain, Body body, const void* fn) {
  const int64_t ranges = CeilDiv(count, grain);
  CHECK_LT(ranges, int64_t{1} << 31);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  // Closes claiming before the job changes. A worker that reads a new field with an old claim then
  // fails its exchange, because the release stores below order the two.
  claim_.store(Claim(generation, kClosed), std::memory_order_relaxed);
  body_.store(body, std::memory_order_release);
  fn_.store(fn, std::memory_order_release);
  count_.store(count, std::memory_order_release);
  grain_.store(grain, std::memory_order_release);
  num_ranges_.store(static_cast<uint32_t>(ranges), std::memory_order_release);
  done_.store(0, std::memory_order_release);

  claim_.store(Claim(generation, 0), std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  generation_.notify_all();

  while (RunOne(generation)) {
  }
  for (uint32_t done = done_.load(std::memory_order_acquire); done != ranges;
       done = done_.load(std::memory_order_acquire)) {
    SpinThenWait(done_, done, may_spin_);
  }
}

bool ThreadPool::RunOne(uint32_t generation) {
  uint64_t claim = claim_.load(std::memory_order_acquire);
  for (;;) {
    const uint32_t next = static_cast<uint32_t>(claim);
    const uint32_t ranges = num_ranges_.load(std::memory_order_acquire);
    if ((claim >> 32) != generation || next >= ranges) return false;
    const Body body = body_.load(std::memory_order_acquire);
    const void* fn = fn_.load(std::memory_order_acquire);
    const int64_t count = count_.load(std::memory_order_acquire);
    const int64_t grain = grain_.load(std::memory_order_acquire);
    if (!claim_.compare_exchange_weak(claim, Claim(generation, next + 1), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;
    }
    body(fn, next * grain, std::min<int64_t>(count, (next + 1) * grain));
    const uint32_t done = done_.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (done == ranges) done_.notify_all();
    return true;
  }
}

void ThreadPool::WorkerLoop() {
  uint32_t seen = 0;
  for (;;) {
    SpinThenWait(generation_, seen, may_spin_);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    while (RunOne(seen)) {
    }
  }
}

}  // namespace quire::cpu

// The loop of the sending thread.
#include "clients/load/pacer.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <chrono>
#include <utility>

namespace quire::load {
namespace {

// A thread that sleeps most of the time and must be back in time: the kernel shall neither lump its
// timers together nor let others go first. The second needs a privilege and is no loss without.
void AskForPunctuality() {
  prctl(PR_SET_TIMERSLACK, 1UL);
  sched_param priority{};
  priority.sched_priority = 1;
  pthread_setschedparam(pthread_self(), SCHED_RR, &priority);
}

}  // namespace

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Pacer::Pacer(SendQueue queue, int64_t base_ns, Send send)
    : base_ns_(base_ns),
      send_(std::move(send)),
      queue_(std::move(queue)),
      thread_([this] { Loop(); }) {}

Pacer::~Pacer() { Stop(); }

bool Pacer::Add(DueSend send) {
  std::lock_guard lock(mutex_);
  if (stopped_) return false;
  const int64_t before = queue_.NextNs();
  queue_.Add(std::move(send));
  if (queue_.NextNs() < before) changed_.notify_one();
  return true;
}

void Pacer::Release() {
  std::lock_guard lock(mutex_);
  const int64_t before = queue_.NextNs();
  queue_.Release(NowNs() - base_ns_);
  if (queue_.NextNs() < before) changed_.notify_one();
}

std::vector<DueSend> Pacer::Stop() {
  std::vector<DueSend> unsent;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    unsent = queue_.TakeAll();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  return unsent;
}

void Pacer::Loop() {
  AskForPunctuality();
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (auto eligible = queue_.Take(NowNs() - base_ns_)) {
      lock.unlock();
      send_(*std::move(eligible));
      lock.lock();
      continue;
    }
    const int64_t next = queue_.NextNs();
    if (next == SendQueue::kNever) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(
          lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(base_ns_ + next)));
    }
  }
}

}  // namespace quire::load

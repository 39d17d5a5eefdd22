// The loop of the sending thread.
#include "clients/load/run/pacer.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <chrono>
#include <optional>
#include <utility>

namespace quire::load {
namespace {

// This thread sleeps most of the time and must wake on time: the kernel must neither merge its
// timers with others nor run other threads first. The second needs a privilege; without it the run
// goes on.
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

// Holds the pacer's mutex while it lives.
class Pacer::Hold {
 public:
  explicit Hold(Pacer* pacer) : mutex_(&pacer->mutex_) { pthread_mutex_lock(mutex_); }
  ~Hold() { pthread_mutex_unlock(mutex_); }
  Hold(const Hold&) = delete;

 private:
  pthread_mutex_t* const mutex_;
};

Pacer::Pacer(SendQueue queue, int64_t base_ns, Send send)
    : base_ns_(base_ns), send_(std::move(send)), queue_(std::move(queue)) {
  pthread_mutexattr_t inherit;
  pthread_mutexattr_init(&inherit);
  pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
  pthread_mutex_init(&mutex_, &inherit);
  pthread_mutexattr_destroy(&inherit);
  pthread_condattr_t steady;
  pthread_condattr_init(&steady);
  pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
  pthread_cond_init(&changed_, &steady);
  pthread_condattr_destroy(&steady);
  thread_ = std::thread([this] { Loop(); });
}

Pacer::~Pacer() {
  Stop();
  pthread_cond_destroy(&changed_);
  pthread_mutex_destroy(&mutex_);
}

bool Pacer::Add(DueSend send) {
  Hold hold(this);
  if (stopped_) return false;
  const int64_t before = queue_.NextNs();
  queue_.Add(std::move(send));
  if (queue_.NextNs() < before) pthread_cond_signal(&changed_);
  return true;
}

void Pacer::Release() {
  const int64_t now_ns = NowNs() - base_ns_;
  Hold hold(this);
  const int64_t before = queue_.NextNs();
  queue_.Release(now_ns);
  if (queue_.NextNs() < before) pthread_cond_signal(&changed_);
}

std::vector<DueSend> Pacer::Stop() {
  std::vector<DueSend> unsent;
  {
    Hold hold(this);
    stopped_ = true;
    unsent = queue_.TakeAll();
    pthread_cond_signal(&changed_);
  }
  if (thread_.joinable()) thread_.join();
  return unsent;
}

void Pacer::WaitUntil(int64_t queue_ns) {
  if (queue_ns == SendQueue::kNever) {
    pthread_cond_wait(&changed_, &mutex_);
    return;
  }
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t at = base_ns_ + queue_ns;
  const timespec until{at / kSecond, at % kSecond};
  pthread_cond_timedwait(&changed_, &mutex_, &until);
}

void Pacer::Loop() {
  AskForPunctuality();
  for (;;) {
    std::optional<EligibleSend> eligible;
    {
      Hold hold(this);
      while (!stopped_ && !(eligible = queue_.Take(NowNs() - base_ns_))) {
        WaitUntil(queue_.NextNs());
      }
      if (!eligible) return;
    }
    send_(*std::move(eligible));
  }
}

}  // namespace quire::load

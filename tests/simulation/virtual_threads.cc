// A token passes from thread to thread. Only its holder touches the state, so the state needs no
// lock; the token itself is a futex word of each thread, waited for by a bare system call.
#include "tests/simulation/virtual_threads.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLookNs = 20;             // the cost of a look at the clock
constexpr int64_t kMostLooks = 20'000'000;  // until all threads wait: beyond it, some never will

long BareSyscall(long number, const std::array<long, 6>& a) {
  register long r10 asm("r10") = a[3];
  register long r8 asm("r8") = a[4];
  register long r9 asm("r9") = a[5];
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// Keeps errno: whether a thread has to wait for its turn is up to the machine.
void BareFutex(std::atomic<uint32_t>& word, int operation, long value) {
  const int before = errno;
  BareSyscall(SYS_futex, {reinterpret_cast<long>(&word), operation, value});
  errno = before;
}

// The C library's function of this name.
template <typename Function>
Function* Real(std::atomic<void*>& slot, const char* name, const char* version = nullptr) {
  void* found = slot.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = version != nullptr ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name);
    slot.store(found, std::memory_order_release);
  }
  return reinterpret_cast<Function*>(found);
}

struct Thread {
  std::atomic<uint32_t> turn{0};
  pthread_t handle{};
  void* (*body)(void*) = nullptr;
  void* argument = nullptr;
  int number = 0;
  // Under the token.
  bool ended = false;
  const void* waits_at = nullptr;  // null: it can run
  int64_t until_ns = VirtualThreads::kNever;
  bool woken = false;  // by Wake, not by the time
};

thread_local Thread* self = nullptr;  // null: a thread of no schedule

void AwaitTurn(Thread& thread) {
  while (thread.turn.load(std::memory_order_acquire) == 0) {
    BareFutex(thread.turn, FUTEX_WAIT_PRIVATE, 0);
  }
  thread.turn.store(0, std::memory_order_relaxed);
}

void GiveTurn(Thread& thread) {
  thread.turn.store(1, std::memory_order_release);
  BareFutex(thread.turn, FUTEX_WAKE_PRIVATE, 1);
}

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

}  // namespace

struct VirtualThreads::State {
  State(uint64_t seed, const Chances& chances_in)
      : chances(chances_in), random(seed), now_ns(chances_in.start_ns) {}

  bool OneIn(int n) { return n > 0 && random() % static_cast<uint64_t>(n) == 0; }

  // The next to run. Moves the clock when all threads wait.
  Thread& Next() {
    std::vector<Thread*>& able = able_now;
    able.clear();
    int64_t first_ns = kNever;
    for (const auto& thread : threads) {
      if (thread->ended) continue;
      if (thread->waits_at == nullptr || thread->until_ns <= now_ns) able.push_back(thread.get());
      first_ns = std::min(first_ns, thread->until_ns);
    }
    if (able.empty()) {
      if (first_ns == kNever) Fail("every thread waits, and no time is left to wait for");
      now_ns = first_ns;
      num_looks = 0;
      return Next();
    }
    return *able[random() % able.size()];
  }

  void Switch() {
    Thread& next = Next();
    next.waits_at = nullptr;
    next.until_ns = kNever;
    if (&next == self) return;
    ++num_switches;
    GiveTurn(next);
    AwaitTurn(*self);
  }

  void MaySwitch() {
    if (OneIn(chances.switch_one_in)) Switch();
  }

  // True if it was woken, false if the time came.
  bool Wait(const void* place, int64_t until_ns) {
    self->woken = false;
    self->waits_at = place;
    self->until_ns = until_ns;
    if (OneIn(chances.early_wake_one_in)) {
      self->woken = true;
      self->waits_at = nullptr;
      self->until_ns = kNever;
    }
    Switch();
    return self->woken;
  }

  int Wake(const void* place, int count) {
    waiters.clear();
    for (const auto& thread : threads) {
      if (!thread->ended && thread->waits_at == place) waiters.push_back(thread.get());
    }
    int woken = 0;
    for (; woken < count && !waiters.empty(); ++woken) {
      const size_t chosen = random() % waiters.size();
      waiters[chosen]->woken = true;
      waiters[chosen]->waits_at = nullptr;
      waiters[chosen]->until_ns = kNever;
      waiters.erase(waiters.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    return woken;
  }

  [[noreturn]] void Fail(const char* what) {
    std::fprintf(stderr, "%s:\n", what);
    for (const auto& thread : threads) {
      if (thread->ended) continue;
      std::fprintf(stderr, "  thread %d at %p\n", thread->number, thread->waits_at);
    }
    std::abort();
  }

  const Chances chances;
  std::mt19937_64 random;
  int64_t now_ns;
  int64_t wall_ns = 0;  // that the wall clock was moved
  int64_t num_switches = 0;
  int64_t num_looks = 0;  // at the clock, since all threads waited
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Thread*> able_now, waiters;
};

namespace {

VirtualThreads::State* schedule = nullptr;  // set while no other thread runs

}  // namespace

VirtualThreads::VirtualThreads(uint64_t seed, const Chances& chances)
    : state_(std::make_unique<State>(seed, chances)) {
  auto first = std::make_unique<Thread>();
  first->handle = pthread_self();
  self = first.get();
  state_->threads.push_back(std::move(first));
  schedule = state_.get();
}

VirtualThreads::~VirtualThreads() {
  for (const auto& thread : state_->threads) {
    if (thread.get() == self || thread->ended) continue;
    std::fprintf(stderr, "thread %d outlives its schedule\n", thread->number);
    std::abort();
  }
  self = nullptr;
  schedule = nullptr;
}

int64_t VirtualThreads::now_ns() const { return state_->now_ns; }
void VirtualThreads::JumpSteadyClock(int64_t ns) { state_->now_ns += ns; }
void VirtualThreads::JumpWallClock(int64_t ns) { state_->wall_ns += ns; }
void VirtualThreads::WaitAt(const void* place, int64_t until_ns) { state_->Wait(place, until_ns); }
void VirtualThreads::Wake(const void* place) { state_->Wake(place, 1); }
int64_t VirtualThreads::num_switches() const { return state_->num_switches; }

// The C library's functions, as threads of the schedule see them.
struct VirtualCalls {
  static void* Body(void* argument) {
    auto* const thread = static_cast<Thread*>(argument);
    AwaitTurn(*thread);
    self = thread;
    void* const result = thread->body(thread->argument);
    thread->ended = true;
    schedule->Wake(thread, 1);
    Thread& next = schedule->Next();
    next.waits_at = nullptr;
    next.until_ns = VirtualThreads::kNever;
    self = nullptr;
    GiveTurn(next);
    return result;
  }

  static int Create(pthread_t* handle, const pthread_attr_t* attributes, void* (*body)(void*),
                    void* argument) {
    static std::atomic<void*> slot;
    auto* const real = Real<decltype(pthread_create)>(slot, "pthread_create");
    if (self == nullptr) return real(handle, attributes, body, argument);
    auto thread = std::make_unique<Thread>();
    thread->body = body;
    thread->argument = argument;
    thread->number = static_cast<int>(schedule->threads.size());
    const int error = real(&thread->handle, attributes, Body, thread.get());
    if (error != 0) return error;
    *handle = thread->handle;
    schedule->threads.push_back(std::move(thread));
    schedule->MaySwitch();
    return 0;
  }

  static int Join(pthread_t handle, void** result) {
    static std::atomic<void*> slot;
    auto* const real = Real<decltype(pthread_join)>(slot, "pthread_join");
    if (self == nullptr) return real(handle, result);
    auto& threads = schedule->threads;
    const auto found = std::find_if(threads.begin(), threads.end(), [handle](const auto& thread) {
      return thread.get() != self && pthread_equal(thread->handle, handle);
    });
    if (found == threads.end()) return real(handle, result);
    Thread* const thread = found->get();
    while (!thread->ended) schedule->Wait(thread, VirtualThreads::kNever);
    const int error = real(handle, result);
    // The C library may use the handle again.
    std::erase_if(threads, [thread](const auto& each) { return each.get() == thread; });
    return error;
  }

  static int Lock(pthread_mutex_t* mutex) {
    static std::atomic<void*> slot;
    if (self == nullptr)
      return Real<decltype(pthread_mutex_lock)>(slot, "pthread_mutex_lock")(mutex);
    schedule->MaySwitch();
    return LockSoon(mutex);
  }

  static int LockSoon(pthread_mutex_t* mutex) {
    for (;;) {
      const int error = pthread_mutex_trylock(mutex);
      if (error != EBUSY) return error;
      schedule->Wait(mutex, VirtualThreads::kNever);
    }
  }

  static int Unlock(pthread_mutex_t* mutex) {
    static std::atomic<void*> slot;
    const int error = Real<decltype(pthread_mutex_unlock)>(slot, "pthread_mutex_unlock")(mutex);
    if (self == nullptr) return error;
    schedule->Wake(mutex, 1);
    schedule->MaySwitch();
    return error;
  }

  static int WaitCondition(pthread_cond_t* condition, pthread_mutex_t* mutex, int64_t until_ns) {
    // Nothing runs between the unlock and the wait.
    static std::atomic<void*> slot;
    Real<decltype(pthread_mutex_unlock)>(slot, "pthread_mutex_unlock")(mutex);
    schedule->Wake(mutex, 1);
    const bool woken = schedule->Wait(condition, until_ns);
    LockSoon(mutex);
    return woken ? 0 : ETIMEDOUT;
  }

  static int64_t Until(clockid_t clock, const timespec& time) {
    const int64_t skew =
        clock == CLOCK_REALTIME ? schedule->chances.wall_minus_steady_ns + schedule->wall_ns : 0;
    return Nanoseconds(time) - skew;
  }

  static int Notify(int count, const void* condition) {
    schedule->Wake(condition, count);
    schedule->MaySwitch();
    return 0;
  }

  static long Futex(const std::atomic<uint32_t>* word, int operation, uint32_t value,
                    const timespec* time) {
    const int command = operation & FUTEX_CMD_MASK;
    if (command == FUTEX_WAKE || command == FUTEX_WAKE_BITSET) {
      const int woken = schedule->Wake(word, static_cast<int>(std::min<uint32_t>(value, 1 << 20)));
      schedule->MaySwitch();
      return woken;
    }
    if (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET) std::abort();
    if (word->load(std::memory_order_acquire) != value) {
      errno = EAGAIN;
      return -1;
    }
    int64_t until_ns = VirtualThreads::kNever;
    if (time != nullptr && command == FUTEX_WAIT) until_ns = schedule->now_ns + Nanoseconds(*time);
    if (time != nullptr && command == FUTEX_WAIT_BITSET) {
      until_ns =
          Until((operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC, *time);
    }
    if (schedule->Wait(word, until_ns)) return 0;
    errno = ETIMEDOUT;
    return -1;
  }

  static int Sleep(int64_t until_ns) {
    const int place = 0;
    while (schedule->now_ns < until_ns) schedule->Wait(&place, until_ns);
    return 0;
  }

  static bool Tell(clockid_t clock, timespec* time) {
    if (self == nullptr) return false;
    const bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    const bool steady = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ||
                        clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME;
    if (!wall && !steady) return false;
    if (++schedule->num_looks > kMostLooks) schedule->Fail("the threads never all wait");
    int64_t ns = schedule->now_ns += kLookNs;
    if (wall) ns += schedule->chances.wall_minus_steady_ns + schedule->wall_ns;
    time->tv_sec = ns / kSecond;
    time->tv_nsec = ns % kSecond;
    return true;
  }
};

}  // namespace quire

using quire::Real;
using quire::VirtualCalls;

extern "C" {

int pthread_create(pthread_t* handle, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  return VirtualCalls::Create(handle, attributes, body, argument);
}

int pthread_join(pthread_t handle, void** result) { return VirtualCalls::Join(handle, result); }

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept { return VirtualCalls::Lock(mutex); }

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept { return VirtualCalls::Unlock(mutex); }

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static std::atomic<void*> slot;
  if (quire::self != nullptr) {
    VirtualCalls::WaitCondition(condition, mutex, quire::VirtualThreads::kNever);
    return 0;
  }
  return Real<decltype(pthread_cond_wait)>(slot, "pthread_cond_wait", "GLIBC_2.3.2")(condition,
                                                                                     mutex);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* time) {
  static std::atomic<void*> slot;
  if (quire::self != nullptr) {
    return VirtualCalls::WaitCondition(condition, mutex,
                                       VirtualCalls::Until(CLOCK_REALTIME, *time));
  }
  return Real<decltype(pthread_cond_timedwait)>(slot, "pthread_cond_timedwait", "GLIBC_2.3.2")(
      condition, mutex, time);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* time) {
  static std::atomic<void*> slot;
  if (quire::self != nullptr) {
    return VirtualCalls::WaitCondition(condition, mutex, VirtualCalls::Until(clock, *time));
  }
  return Real<decltype(pthread_cond_clockwait)>(slot, "pthread_cond_clockwait")(condition, mutex,
                                                                                clock, time);
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  static std::atomic<void*> slot;
  if (quire::self != nullptr) return VirtualCalls::Notify(1, condition);
  return Real<decltype(pthread_cond_signal)>(slot, "pthread_cond_signal", "GLIBC_2.3.2")(condition);
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  static std::atomic<void*> slot;
  if (quire::self != nullptr) return VirtualCalls::Notify(1 << 20, condition);
  return Real<decltype(pthread_cond_broadcast)>(slot, "pthread_cond_broadcast",
                                                "GLIBC_2.3.2")(condition);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static std::atomic<void*> slot;
  if (VirtualCalls::Tell(clock, time)) return 0;
  return Real<decltype(clock_gettime)>(slot, "clock_gettime")(clock, time);
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  static std::atomic<void*> slot;
  if (quire::self != nullptr) {
    const bool absolute = (flags & TIMER_ABSTIME) != 0;
    return VirtualCalls::Sleep(absolute ? VirtualCalls::Until(clock, *time)
                                        : quire::schedule->now_ns + quire::Nanoseconds(*time));
  }
  return Real<decltype(clock_nanosleep)>(slot, "clock_nanosleep")(clock, flags, time, left);
}

int nanosleep(const timespec* time, timespec* left) {
  static std::atomic<void*> slot;
  if (quire::self != nullptr) {
    return VirtualCalls::Sleep(quire::schedule->now_ns + quire::Nanoseconds(*time));
  }
  return Real<decltype(nanosleep)>(slot, "nanosleep")(time, left);
}

long syscall(long number, ...) noexcept {
  std::array<long, 6> a{};
  va_list list;
  va_start(list, number);
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && quire::self != nullptr) {
    return VirtualCalls::Futex(reinterpret_cast<const std::atomic<uint32_t>*>(a[0]),
                               static_cast<int>(a[1]), static_cast<uint32_t>(a[2]),
                               reinterpret_cast<const timespec*>(a[3]));
  }
  return quire::BareSyscall(number, a);
}

}  // extern "C"

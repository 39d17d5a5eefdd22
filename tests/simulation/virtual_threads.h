// VirtualThreads: runs threads one at a time, in virtual time, in an order that a seed decides.
//
// While an object lives, the thread that made it and all threads that start from it take turns: one
// runs, and the others wait for their turn. A thread gives its turn away where it waits (for a
// mutex, a condition variable, a futex, another thread, or a time), and sometimes where it locks or
// wakes, so that each seed is another interleaving. The clock stands still while any thread can
// run, except for a few nanoseconds per look at it; when all wait, it jumps to the first deadline.
// Waits end early without a reason at times, as the functions' contracts allow.
//
// No code has to know of it: a program that links this library has its own pthread_create,
// pthread_mutex_lock, pthread_cond_wait, futex, clock_gettime and their kin, which pass calls of
// other threads on to the C library. So the product's threads run as they are, and a run is
// repeated exactly by its seed, unless a thread reads the cycle counter of the CPU (as absl::Now
// does) or decides by an address.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

namespace quire {

class VirtualThreads {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  struct Chances {
    int switch_one_in = 8;       // at a lock, an unlock or a wake
    int early_wake_one_in = 64;  // of a wait
    int64_t start_ns = 1'000'000'000;
    int64_t wall_minus_steady_ns = 1'700'000'000'000'000'000;
  };

  // One object at a time.
  VirtualThreads(uint64_t seed, const Chances& chances);
  // Requires that every other thread has ended and was joined.
  ~VirtualThreads();
  VirtualThreads(const VirtualThreads&) = delete;
  VirtualThreads& operator=(const VirtualThreads&) = delete;

  // Of the steady clock, without moving it.
  int64_t now_ns() const;
  // Time that passes while no thread may run, as on a machine that was suspended.
  void JumpSteadyClock(int64_t ns);
  // Moves the wall clock alone; it may go back.
  void JumpWallClock(int64_t ns);
  // The calling thread waits until Wake of the same place, or the time.
  void WaitAt(const void* place, int64_t until_ns);
  void Wake(const void* place);
  int64_t num_switches() const;

  struct State;  // of virtual_threads.cc

 private:
  std::unique_ptr<State> state_;
};

}  // namespace quire

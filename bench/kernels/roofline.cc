// Measures read bandwidth and FMA peak by the simplest loops that reach them.
#include "bench/kernels/roofline.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

// Runs fn(thread) on `threads` threads: seconds from the first begin to the last end.
double TimeOnThreads(int threads, const std::function<void(int)>& fn) {
  std::latch ready(threads);
  std::vector<std::thread> all;
  std::vector<Clock::time_point> begin(threads), end(threads);
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      ready.arrive_and_wait();
      begin[t] = Clock::now();
      fn(t);
      end[t] = Clock::now();
    });
  }
  for (std::thread& t : all) t.join();
  const auto first = *std::min_element(begin.begin(), begin.end());
  const auto last = *std::max_element(end.begin(), end.end());
  return std::chrono::duration<double>(last - first).count();
}

#if defined(__x86_64__)
// Registers in flight: a latency of 4 cycles times two units needs eight.
#define QUIRE_FMA_STEP(reg)                                                                     \
  "vfmadd231ps %%" reg "0, %%" reg "0, %%" reg "2\n vfmadd231ps %%" reg "0, %%" reg "0, %%" reg \
  "3\n vfmadd231ps %%" reg "0, %%" reg "0, %%" reg "4\n vfmadd231ps %%" reg "0, %%" reg         \
  "0, %%" reg "5\n vfmadd231ps %%" reg "0, %%" reg "0, %%" reg "6\n vfmadd231ps %%" reg         \
  "0, %%" reg "0, %%" reg "7\n vfmadd231ps %%" reg "0, %%" reg "0, %%" reg                      \
  "8\n vfmadd231ps %%" reg "0, %%" reg "0, %%" reg "9\n vfmadd231ps %%" reg "0, %%" reg         \
  "0, %%" reg "10\n vfmadd231ps %%" reg "0, %%" reg "0, %%" reg "11\n"
constexpr double kFmasPerStep = 10;
#define QUIRE_FMA_CLOBBERS \
  "xmm0", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "memory"

void FmaLoop(cpu::Isa isa, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) {
    if (isa == cpu::Isa::kAvx512) {
      asm volatile(QUIRE_FMA_STEP("zmm") : : : QUIRE_FMA_CLOBBERS);
    } else {
      asm volatile(QUIRE_FMA_STEP("ymm") : : : QUIRE_FMA_CLOBBERS);
    }
  }
}
#endif

}  // namespace

double ReadBandwidth(const void* data, size_t bytes, int threads) {
  const auto* words = static_cast<const uint64_t*>(data);
  const size_t part = bytes / sizeof(uint64_t) / static_cast<size_t>(threads) / 8 * 8;
  double best = 1e30;
  std::vector<uint64_t> sums(threads);
  for (int pass = 0; pass < 7; ++pass) {
    best = std::min(best, TimeOnThreads(threads, [&](int t) {
                      uint64_t sum[8] = {};
                      const uint64_t* from = words + static_cast<size_t>(t) * part;
                      for (size_t i = 0; i < part; i += 8) {
                        for (int j = 0; j < 8; ++j) sum[j] += from[i + j];
                      }
                      for (uint64_t s : sum) sums[t] += s;
                    }));
  }
  volatile uint64_t keep = 0;
  for (uint64_t s : sums) keep = keep + s;
  return static_cast<double>(part * 8 * static_cast<size_t>(threads)) / best;
}

double FmaPeak(cpu::Isa isa, int threads) {
#if defined(__x86_64__)
  if (isa == cpu::Isa::kGeneric) return 0;
  constexpr int64_t kSteps = 4'000'000;
  const double lanes = isa == cpu::Isa::kAvx512 ? 16 : 8;
  double best = 1e30;
  for (int pass = 0; pass < 5; ++pass) {
    best = std::min(best, TimeOnThreads(threads, [&](int) { FmaLoop(isa, kSteps); }));
  }
  return static_cast<double>(threads) * kSteps * kFmasPerStep * lanes * 2 / best;
#else
  (void)isa;
  (void)threads;
  return 0;
#endif
}

}  // namespace quire

// Ratio: a speed as a share of another that was measured beside it in the same run, so that it says
// the same on a fast machine and on a slow one. Each part of the program adds its own.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace quire {

struct Ratio {
  std::string name;  // "this_over_that": more is better
  double value = 0;
};

// Each checks its results first and ends the process with a sentence if one is wrong.
void AddKernelRatios(std::vector<Ratio>* ratios);
void AddEngineRatios(std::vector<Ratio>* ratios);
void AddTextRatios(std::vector<Ratio>* ratios);

// Seconds that fn takes.
template <typename Fn>
double SecondsOf(const Fn& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// How many times faster `fast` is than `slow`: the median over rounds in which one follows the
// other, so that both have the same machine. Each is called often enough to take some milliseconds.
double TimesFaster(const std::function<void()>& fast, const std::function<void()>& slow);

}  // namespace quire

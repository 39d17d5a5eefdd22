// Prints the ratios that tell a slowdown on any machine, as one JSON object. check.py holds them
// against the committed baseline.
#include <algorithm>
#include <cstdio>

#include "bench/ratios/ratio.h"

namespace quire {
namespace {

constexpr int kRounds = 7;
constexpr double kLeastSeconds = 0.02;  // of a measurement: scheduling shifts it by less

double SecondsOfMany(const std::function<void()>& fn, int times) {
  return SecondsOf([&] {
    for (int i = 0; i < times; ++i) fn();
  });
}

int TimesFor(const std::function<void()>& fn) {
  fn();  // touches its memory once
  return 1 + static_cast<int>(kLeastSeconds / std::max(SecondsOf(fn), 1e-9));
}

}  // namespace

double TimesFaster(const std::function<void()>& fast, const std::function<void()>& slow) {
  const int fast_times = TimesFor(fast), slow_times = TimesFor(slow);
  std::vector<double> ratios;
  for (int round = 0; round < kRounds; ++round) {
    const double slow_seconds = SecondsOfMany(slow, slow_times) / slow_times;
    ratios.push_back(slow_seconds / (SecondsOfMany(fast, fast_times) / fast_times));
  }
  std::nth_element(ratios.begin(), ratios.begin() + kRounds / 2, ratios.end());
  return ratios[kRounds / 2];
}

}  // namespace quire

int main() {
  std::vector<quire::Ratio> ratios;
  quire::AddKernelRatios(&ratios);
  quire::AddTextRatios(&ratios);
  quire::AddEngineRatios(&ratios);
  std::printf("{");
  for (size_t i = 0; i < ratios.size(); ++i) {
    std::printf("%s\n  \"%s\": %.4g", i == 0 ? "" : ",", ratios[i].name.c_str(), ratios[i].value);
  }
  std::printf("\n}\n");
  return 0;
}

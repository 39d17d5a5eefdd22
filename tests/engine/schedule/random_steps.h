// What a test of random programs is asked for on its command line.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

// Sanitized programs take ten times as long and more.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int64_t kDefaultSteps = 200'000;
#else
inline constexpr int64_t kDefaultSteps = 1'000'000;
#endif

struct RandomSteps {
  uint64_t only_seed = 0;         // --seed=N: the program of this seed alone; 0: those from 1 on
  int64_t steps = kDefaultSteps;  // --steps=N: of all programs together
};

inline RandomSteps random_steps;

// Behind InitGoogleTest, which takes its own flags.
inline void ReadRandomSteps(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--seed=")) random_steps.only_seed = std::stoull(argument.substr(7));
    if (argument.starts_with("--steps=")) random_steps.steps = std::stoll(argument.substr(8));
  }
}

}  // namespace quire

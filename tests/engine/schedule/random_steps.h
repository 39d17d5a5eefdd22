// The command line of a test that runs random programs: --seed=N and --steps=N.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

// Sanitized programs take at least ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int64_t kDefaultSteps = 200'000;
#else
inline constexpr int64_t kDefaultSteps = 1'000'000;
#endif

struct RandomSteps {
  uint64_t only_seed = 0;  // --seed=N: run the program of this seed alone; 0: run those from 1 on
  int64_t steps = kDefaultSteps;  // --steps=N: steps of all programs together
};

inline RandomSteps random_steps;

// Call it after InitGoogleTest, which removes its own flags.
inline void ReadRandomSteps(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--seed=")) random_steps.only_seed = std::stoull(argument.substr(7));
    if (argument.starts_with("--steps=")) random_steps.steps = std::stoll(argument.substr(8));
  }
}

}  // namespace quire

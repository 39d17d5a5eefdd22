// FuzzSeed: the seed of a test's mutations. A test runs the same inputs each time; tests/fuzz/soak
// sets QUIRE_FUZZ_SEED for others.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace quire {

inline uint32_t FuzzSeed(uint32_t seed) {
  const char* const run = std::getenv("QUIRE_FUZZ_SEED");
  return run == nullptr ? seed : seed + 1000 * static_cast<uint32_t>(std::atoi(run));
}

}  // namespace quire

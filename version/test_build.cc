// The facts of tests and benchmarks, which are the same at every commit.
#include "version/build_facts.h"

namespace quire {

const BuildFacts& ThisBuild() {
  static constexpr BuildFacts kFacts = {"0.0.0-test", "unknown", "a compiler", "none", "Test"};
  return kFacts;
}

}  // namespace quire

// One fuzz target under libFuzzer, whose arguments it takes. QUIRE_FUZZ_TARGET names it: libFuzzer
// starts the program again with arguments of its own, but with the same environment.
#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "engine/base/log.h"
#include "tests/fuzz/targets/targets.h"

namespace {

const quire::FuzzTarget* target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const name = std::getenv("QUIRE_FUZZ_TARGET");
  target = quire::FindFuzzTarget(name == nullptr ? "" : name);
  if (target != nullptr) {
    // Thousands of damaged files are told of.
    quire::StartLog(quire::LogFormat::kText, quire::Severity::kError,
                    open("/dev/null", O_WRONLY | O_CLOEXEC));
    return 0;
  }
  for (const quire::FuzzTarget& known : quire::FuzzTargets()) std::puts(known.name);
  std::exit(name == nullptr ? 0 : 2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target->run({reinterpret_cast<const char*>(data), size});
  return 0;
}

// One fuzz target under clang's fuzzer; CMake names it by QUIRE_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/parser_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::QUIRE_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}

// CHECK macros for our own invariants, on in every build: a failure prints file, line and condition
// and aborts. Never for user input, which is refused with absl::Status at the boundary.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace quire::internal {
[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}
}  // namespace quire::internal

#define CHECK(condition)              \
  (__builtin_expect(!!(condition), 1) \
       ? static_cast<void>(0)         \
       : ::quire::internal::CheckFailed(__FILE__, __LINE__, #condition))
#define CHECK_EQ(a, b) CHECK((a) == (b))
#define CHECK_NE(a, b) CHECK((a) != (b))
#define CHECK_LE(a, b) CHECK((a) <= (b))
#define CHECK_LT(a, b) CHECK((a) < (b))
#define CHECK_GE(a, b) CHECK((a) >= (b))
#define CHECK_GT(a, b) CHECK((a) > (b))

// DCHECK is for inner loops: release builds type-check the condition and do not evaluate it.
#ifdef NDEBUG
#define DCHECK(condition) CHECK(true || (condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif

// How a process ends whose requests are refused. tests/faults refuses them to real programs.
#include "flags/refusal_exit.h"

#include <gtest/gtest.h>

#include <csignal>
#include <new>
#include <stdexcept>
#include <system_error>

namespace quire {
namespace {

constexpr int kCode = 6;

// The test framework catches what leaves a test, so nothing does.
template <typename Exception>
void EndBy(const Exception& exception) noexcept {
  ExitOnRefusal(kCode);
  [&] { throw exception; }();
}

TEST(RefusalExitTest, SaysThatMemoryIsRefused) {
  EXPECT_EXIT(
      {
        ExitOnRefusal(kCode);
        std::get_new_handler()();
      },
      testing::ExitedWithCode(kCode),
      "^the system refuses this process memory: Cannot allocate memory; raise the limit .*\n$");
  EXPECT_EXIT(EndBy(std::bad_alloc()), testing::ExitedWithCode(kCode), "refuses this process mem");
}

TEST(RefusalExitTest, SaysThatAThreadIsRefused) {
  const std::system_error refused(std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_EXIT(EndBy(refused), testing::ExitedWithCode(kCode),
              "^the system refuses this process a thread: Resource temporarily unavailable; raise "
              "the limit .*\n$");
}

TEST(RefusalExitTest, LeavesOtherExceptionsAlone) {
  EXPECT_EXIT(EndBy(std::logic_error("odd")), testing::KilledBySignal(SIGABRT), "odd");
  const std::system_error other(std::make_error_code(std::errc::invalid_argument));
  EXPECT_EXIT(EndBy(other), testing::KilledBySignal(SIGABRT), "Invalid argument");
}

}  // namespace
}  // namespace quire

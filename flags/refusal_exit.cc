// The two hooks of the C++ library: operator new calls one where malloc fails; the other gets
// exceptions without a catch, and a refused std::thread throws one.
#include "flags/refusal_exit.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

namespace quire {
namespace {

constexpr int kReaderMs = 3000;

std::atomic<int> exit_code{1};
std::atomic<std::terminate_handler> otherwise{nullptr};

// One write, so that no line of another thread comes between the parts.
[[noreturn]] void End(const char* refused, const char* reason, const char* advice) {
  const auto part = [](const char* text) {
    return iovec{const_cast<char*>(text), std::strlen(text)};
  };
  const iovec line[] = {part(refused), part(": "),   part(reason),
                        part("; "),    part(advice), part("\n")};
  // A stalled reader must not keep the process, and a pipe that is ready takes the line at once.
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, kReaderMs) > 0) {
    [[maybe_unused]] const ssize_t written = writev(STDERR_FILENO, line, std::size(line));
  }
  _exit(exit_code);
}

[[noreturn]] void EndWithoutMemory() {
  End("the system refuses this process memory", "Cannot allocate memory",
      "raise the limit (memory of the container or the unit, memory.max, ulimit -v), or give the "
      "machine more");
}

[[noreturn]] void EndUncaught() {
  if (const std::exception_ptr uncaught = std::current_exception()) {
    try {
      std::rethrow_exception(uncaught);
    } catch (const std::system_error& error) {
      // pthread_create gives this error for every kind of shortage.
      if (error.code() == std::errc::resource_unavailable_try_again) {
        End("the system refuses this process a thread", error.what(),
            "raise the limit (pids of the container, TasksMax of the unit, pids.max, ulimit -u, "
            "ulimit -v)");
      }
    } catch (const std::bad_alloc&) {
      EndWithoutMemory();
    } catch (...) {
    }
  }
  otherwise.load()();
  _exit(exit_code);
}

}  // namespace

void ExitOnRefusal(int code) {
  exit_code = code;
  otherwise = std::set_terminate(EndUncaught);
  std::set_new_handler(EndWithoutMemory);
}

}  // namespace quire

// The answer outlives a caller that has given up.
#include "server/session/archive/engine_call.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace quire {
namespace {

// How late a stop may be noticed.
constexpr std::chrono::milliseconds kLook(20);

struct Waiting {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<SessionAnswer> answer;  // under mutex
};

}  // namespace

std::optional<SessionAnswer> RunAndWait(Engine& engine, SessionOperation operation,
                                        const std::atomic<bool>& stopping) {
  const auto waiting = std::make_shared<Waiting>();
  engine.Run(std::move(operation), [waiting](SessionAnswer answer) {
    const std::lock_guard lock(waiting->mutex);
    waiting->answer = std::move(answer);
    waiting->changed.notify_all();
  });
  std::unique_lock lock(waiting->mutex);
  while (!waiting->answer.has_value() && !stopping.load()) {
    waiting->changed.wait_for(lock, kLook);
  }
  return std::move(waiting->answer);
}

}  // namespace quire
